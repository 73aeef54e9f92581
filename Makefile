# Everything runs in a virtual environment of the checkout's own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo
BASE := $(DEMO)/venv

# TypeScript and ESLint, at the versions of package-lock.json; npm writes this file last.
NODE_MODULES := node_modules/.package-lock.json

# The tests of the repository itself: documents, packaging, workflows, and the check of prose.
REPOSITORY := tests/repository

.PHONY: demo docs install kernels layers drawings readme quick test test-all test-instructions mutants faults reproduce-quick reproduce measure \
    measure-stop measure-status gpu gpu-prepare gpu-fold report check lint \
    lint-page bench clean

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
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# The layers of orthobench.nn, orthobench/nn/cells.py, from the classes of the models.
layers: $(INSTALLED)
	$(BIN)/python -m checks.layers

# The drawings of ARCHITECTURE.md: docs/rooms.svg from its table, and docs/run.svg.
drawings: $(INSTALLED)
	$(BIN)/python -m checks.drawings

# The picture of the matrix and the table of papers in README.md, from results.db.
readme: $(INSTALLED)
	$(BIN)/python -m website.readme

# Tests of the rooms that the changes touch, and of the rooms that import them, for at most a minute: see checks/quick.py.
quick: kernels
	$(BIN)/python -m checks.quick

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

# The papers' numbers at their size, checks/papers.toml, in the background: one per core, at the lowest priority.
# measure-stop ends them, folds their results into results.db, and keeps checkpoints from which measure resumes.
measure: $(INSTALLED)
	@$(BIN)/python -m checks.measure start

measure-stop: $(INSTALLED)
	@$(BIN)/python -m checks.measure stop

measure-status: $(INSTALLED)
	@$(BIN)/python -m checks.measure status

# A machine with a GPU for some minutes: tests, benchmarks and as many of the papers' runs as fit. gpu-prepare collects in
# gpu/ what a machine without network needs; there, `make gpu` uses the Python that has PyTorch; gpu-fold merges gpu/results.
MINUTES := 12
gpu-prepare: $(INSTALLED)
	$(BIN)/python -m checks.gpu prepare

gpu:
	$(PYTHON) -m checks.gpu run --minutes $(MINUTES)

gpu-fold: $(INSTALLED)
	$(BIN)/python -m checks.gpu fold

# The page and the account of results.db, with the author's reports/commentary.md, and the README's table. The page is not
# committed; the site has it.
report: $(INSTALLED)
	$(BIN)/orthobench report --html -o reports/reference.html --commentary reports/commentary.md $(REFERENCE)
	$(BIN)/orthobench report --format reproduction --commentary reports/commentary.md $(REFERENCE)
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
	$(BIN)/python -m checks.prose
	$(MAKE) lint-page
	$(BIN)/python -m pytest -n auto --dist loadfile $(REPOSITORY) $(OPTIONS)

# The scripts of the page: their types and imports, and ESLint's recommended rules. Node.js is a package of the environment.
lint-page: $(NODE_MODULES)
	$(BIN)/node node_modules/typescript/bin/tsc
	$(BIN)/node node_modules/eslint/bin/eslint.js --max-warnings 0 orthobench website eslint.config.js

$(NODE_MODULES): package-lock.json | $(INSTALLED)
	@$(BIN)/npm ci --ignore-scripts --no-audit --no-fund --loglevel silent \
	  --fetch-retry-mintimeout 1000 --fetch-retry-factor 3 || { echo "make lint-page: npm cannot install \
	TypeScript and ESLint from $$($(BIN)/npm config get registry 2>/dev/null); $(BIN)/npm ci tells why" >&2; exit 1; }
	@touch $@

bench: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench bench
	cd $(DEMO) && $(abspath $(BIN))/orthobench bench --constraints
	$(BIN)/python benchmarks/logging_cost.py

clean:
	rm -rf $(VENV) $(DEMO) node_modules build dist site *.egg-info orthobench/recurrence/cpu/*.so
