# Everything runs in a virtual environment of the checkout's own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo
BASE := $(DEMO)/venv

# TypeScript, ESLint and esbuild, at the versions of package-lock.json; npm writes this file last.
NODE_MODULES := node_modules/.package-lock.json

PAGE := orthobench/reporting/page
ESBUILD := $(BIN)/node node_modules/esbuild/bin/esbuild $(PAGE)/script/page.js --bundle --minify --target=es2022 \
    --charset=utf8 --log-level=warning

# The tests of the repository itself: documents, packaging, workflows, the index, and the check of prose.
REPOSITORY := tests/repository

.PHONY: demo docs install kernels cells index drawings readme quick test test-all test-instructions test-oldest test-newest \
    mutants faults reproduce-quick reproduce measure gpu gpu-prepare gpu-fold report check lint \
    lint-page page-script bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

# The C kernels, which the installation has built, again after a change of a C file; ORTHOBENCH_MARCH=x86-64-v4 builds only
# that variant.
kernels: $(INSTALLED)
	$(BIN)/python setup.py --quiet build_ext --inplace

# The demonstration has an environment of its own, without the packages of the tests, because installing those takes longer
# than its runs.
$(BASE)/.installed: pyproject.toml setup.py constraints.txt
	$(PYTHON) -m venv $(BASE)
	$(BASE)/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable .
	touch $@

demo: $(BASE)/.installed
	cd $(DEMO) && venv/bin/orthobench sweep adding --models scornn,lstm --preset quick
	cd $(DEMO) && venv/bin/orthobench report --html

# The documentation site: site/index.html opens from the disk. The build reads no network. A server shows 404.html at any
# depth; SITE_URL=https://you.github.io/orthobench/ writes links into it that hold everywhere.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

# The dense cells in C and CUDA C++, generated/ in orthobench/recurrence/cpu and cuda, from the steps of their operations.
cells: $(INSTALLED)
	$(BIN)/python -m workshop.cells

# The index of the built-in plugins and of the papers' runs, orthobench/spec/index.json, from their classes and settings.
index: $(INSTALLED)
	$(BIN)/python -m workshop.index

# The drawing of the rooms in ARCHITECTURE.md, from its table.
drawings: $(INSTALLED)
	$(BIN)/python -m workshop.drawings

# The pictures and tables of README.md and docs/, and the scores that `place` compares with, from results.db.
readme: $(INSTALLED)
	$(BIN)/python -m workshop.website.readme

# Tests of the rooms that the changes touch, and of the rooms that import them, for at most a minute: see workshop/quick.py.
quick: kernels
	$(BIN)/python -m workshop.quick

# OPTIONS are pytest's, for example OPTIONS=--strict-skips. Bytecode is kept, because each worker would otherwise rewrite
# the assertions of all files again.
test: kernels
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n auto --dist worksteal --ignore=$(REPOSITORY) $(OPTIONS)

test-all: kernels
	$(BIN)/python -m pytest -m '' --whole-grids $(OPTIONS)

# Test the C kernels for other processors than this one: for AVX2 by the tests of kernels and models, for arm64 and for
# x86-64 without AVX by a sample under qemu. Tests that compile for themselves or for GPUs are left out.
INSTRUCTIONS := x86-64-v3
test-instructions: kernels
	ORTHOBENCH_MARCH=$(INSTRUCTIONS) $(BIN)/python -m pytest -n auto --dist worksteal $(OPTIONS) tests/recurrence \
	  tests/models --ignore-glob='*/test_library.py' --ignore-glob='*/test_cuda*.py' --ignore-glob='*/test_self_test.py'
	$(BIN)/python -m pytest -n auto -m slow $(OPTIONS) tests/recurrence/test_other_processors.py

# The oldest versions that pyproject.toml allows, in an environment of their own, with tests that reach every dependency.
OLDEST := $(VENV)-oldest
REACHING := tests/test_spec.py tests/cli/test_cli.py tests/cli/test_db.py tests/store/test_store.py \
    tests/store/test_schemas.py tests/store/test_merge.py tests/gate/test_baseline.py \
    tests/analysis/test_inference.py tests/reporting/test_tables.py tests/reporting/test_claims.py \
    tests/reporting/test_stills.py tests/data/speech/test_spectra.py tests/data/speech/test_quality.py \
    tests/data/test_download.py tests/data/test_images.py tests/data/test_torchvision.py tests/planning/test_space.py \
    tests/executors/test_pruning.py tests/nn/test_layer.py tests/nn/test_export.py tests/nn/test_transforms.py \
    tests/sinks tests/hub
test-oldest:
	$(PYTHON) -m venv $(OLDEST)
	$(OLDEST)/bin/pip install --quiet --disable-pip-version-check --constraint constraints-minimum.txt \
	  --editable '.[audio,hub,mlflow,onnx,parquet,postgresql,ray,search,slurm,tensorboard,trackio,vision,wandb]' pytest \
	  pytest-xdist hypothesis aiohttp flask flask-cors onnxruntime 'pyarrow<18' # newer ones need NumPy 2
	$(OLDEST)/bin/python -m pytest -n auto --dist worksteal -p no:cacheprovider $(OPTIONS) $(REACHING)

# The newest versions of everything, without constraints.txt, in an environment of their own.
NEWEST := $(VENV)-newest
test-newest:
	$(PYTHON) -m venv $(NEWEST)
	$(NEWEST)/bin/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	$(NEWEST)/bin/python -m pytest -n auto --dist worksteal --ignore=$(REPOSITORY) $(OPTIONS)

# Break the code in small ways and list the breaks that no test notices: at most twenty minutes on two cores.
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants.py

# Plant faults into a copy of the code and list those that the tests or the gate do not catch: about an hour.
faults: $(INSTALLED)
	$(BIN)/python tests/gate/planted_faults.py

# Small versions of the papers' figures, with a check of their claims: about five minutes on two cores.
reproduce-quick: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench reproduce --small --db reproduction.db

# The papers' numbers at their size, checks/papers.toml: one run per core, at the lowest priority. Ctrl-C stops it, and
# the same command goes on, also in another clone, because the folder of checkpoints is committed with results.db.
measure: $(INSTALLED)
	OMP_NUM_THREADS=1 nice -n 19 $(BIN)/orthobench reproduce --file checks/papers.toml --device cpu --keep-weights none \
	  $(REFERENCE)

# A machine with a GPU for some minutes: tests, benchmarks and as many of the papers' runs as fit. gpu-prepare collects in
# gpu/ what a machine without network needs; there, `make gpu` uses the Python that has PyTorch; gpu-fold merges gpu/results.
MINUTES := 12
gpu-prepare: $(INSTALLED)
	$(BIN)/python -m workshop.gpu prepare

gpu:
	$(PYTHON) -m workshop.gpu run --minutes $(MINUTES)

gpu-fold: $(INSTALLED)
	$(BIN)/python -m workshop.gpu fold

# The page and the account of results.db, with the author's reports/commentary.toml, and the README's table. The page is not
# committed; the site has it.
report: $(INSTALLED)
	$(BIN)/orthobench report --html -o reports/reference.html --commentary reports/commentary.toml $(REFERENCE)
	$(BIN)/orthobench report --format reproduction --commentary reports/commentary.toml $(REFERENCE)
	$(MAKE) readme

# All that the papers ran, at their scale, in the foreground; weeks on two cores. Each run trains once, so it may be
# stopped and asked for again at any time.
SEEDS := 1
REFERENCE := --db results.db
reproduce: $(INSTALLED)
	-for study in $$($(BIN)/python -c 'from orthobench.papers import studies; print(*(each.name for each in studies()))'); do \
	  $(BIN)/orthobench study $$study --seeds $(SEEDS) $(REFERENCE); done
	-$(BIN)/orthobench sweep timit --models scornn,lstm,enrnn,full_urnn -s dataset=timit_sample --seeds $(SEEDS) $(REFERENCE)
	-for paper in $(notdir $(basename $(wildcard orthobench/papers/*.toml))); do \
	  $(BIN)/orthobench reproduce $$paper --seeds $(SEEDS) $(REFERENCE); done
	$(MAKE) report

check: $(INSTALLED)
	$(BIN)/orthobench check

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/python -m workshop.prose
	$(BIN)/python -m workshop.quoted_numbers
	$(MAKE) lint-page
	$(BIN)/python -m pytest -n auto --dist loadfile $(REPOSITORY) $(OPTIONS)

# The scripts of the page: their types and imports, ESLint's recommended rules, and whether the bundle is theirs. Node.js is
# a package of the environment.
lint-page: $(NODE_MODULES)
	$(BIN)/node node_modules/typescript/bin/tsc
	$(BIN)/node node_modules/eslint/bin/eslint.js --max-warnings 0 orthobench workshop eslint.config.js
	@$(ESBUILD) | cmp -s - $(PAGE)/script.min.js || { echo "$(PAGE)/script.min.js differs from its modules: \
	run make page-script, and commit it" >&2; exit 1; }

# The script of the page, orthobench/reporting/page/script.min.js, from its modules.
page-script: $(NODE_MODULES)
	$(ESBUILD) --outfile=$(PAGE)/script.min.js

$(NODE_MODULES): package-lock.json | $(INSTALLED)
	@$(BIN)/npm ci --ignore-scripts --no-audit --no-fund --loglevel silent \
	  --fetch-retry-mintimeout 1000 --fetch-retry-factor 3 || { echo "make lint-page: npm cannot install \
	TypeScript, ESLint and esbuild from $$($(BIN)/npm config get registry 2>/dev/null); $(BIN)/npm ci tells why" >&2; exit 1; }
	@touch $@

bench: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench bench
	$(BIN)/python workshop/benchmarks/constraints.py
	$(BIN)/python workshop/benchmarks/logging_cost.py

clean:
	rm -rf $(VENV) $(DEMO) node_modules build dist site *.egg-info orthobench/recurrence/cpu/*.so
