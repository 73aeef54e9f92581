# Everything runs in a virtual environment of the checkout's own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo

.PHONY: demo docs install readme test test-all mutants faults reproduce-quick reproduce check lint bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench sweep adding --models scornn,lstm --preset quick
	cd $(DEMO) && $(abspath $(BIN))/orthobench report --html

# The documentation site: site/index.html opens from the disk. The build reads no network.
docs: $(INSTALLED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --quiet

# The table of headline results in README.md, from results.db.
readme: $(INSTALLED)
	$(BIN)/python -m website.readme

# OPTIONS are pytest's, for example OPTIONS=--strict-skips.
test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto --dist worksteal $(OPTIONS)

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -m '' --whole-grids $(OPTIONS)

# Break the code in small ways and list the breaks that no test notices: at most twenty minutes on two cores.
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants.py

# Plant faults into a copy of the code and list those that the tests or the gate do not catch: about an hour.
faults: $(INSTALLED)
	$(BIN)/python tests/gate/planted_faults.py

# Figures of the papers in small, with what is claimed of them checked: about five minutes on two cores.
reproduce-quick: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench reproduce --small --db reproduction.db

# What the papers ran, at their scale: first the runs that decide most claims, then all others; weeks on two cores. Each
# run is made once, so that it may be stopped and asked for again at any time. `reports/checkpoints` has those of runs that
# were cut off. HOURS limits the first part.
SEEDS := 1
HOURS :=
REFERENCE := --db results.db
reproduce: $(INSTALLED)
	if [ -d reports/checkpoints ]; then mkdir -p results.db.checkpoints; cp -rn reports/checkpoints/. results.db.checkpoints; fi
	-$(BIN)/orthobench reproduce --file checks/reproduction.toml $(REFERENCE) $(if $(HOURS),--budget $(HOURS)h)
	$(if $(HOURS),,$(MAKE) reproduce-all)
	$(BIN)/orthobench report --html -o reports/reference.html --account reports/REPRODUCTION.md $(REFERENCE)
	$(BIN)/orthobench report --format reproduction $(REFERENCE)
	$(MAKE) readme

.PHONY: reproduce-all
reproduce-all: $(INSTALLED)
	-for study in gradient-norms toy-dynamics heat-maps orthogonality time sizes jacobians; do \
	  $(BIN)/orthobench study $$study --seeds $(SEEDS) $(REFERENCE); done
	-$(BIN)/orthobench sweep timit --models scornn,lstm,enrnn,full_urnn -s dataset=timit_sample --seeds $(SEEDS) $(REFERENCE)
	-for paper in helfrich2018 helfrich2020 chang2019 lezcano2019 kerg2019 vorontsov2017 wisdom2016 rusch2021cornn \
	    rusch2022lem helfrich2017; do \
	  $(BIN)/orthobench reproduce $$paper --seeds $(SEEDS) $(REFERENCE); done

check: $(INSTALLED)
	$(BIN)/orthobench check

lint: $(INSTALLED)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

bench: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench bench
	cd $(DEMO) && $(abspath $(BIN))/orthobench bench --constraints
	$(BIN)/python benchmarks/logging_cost.py

clean:
	rm -rf $(VENV) $(DEMO) build dist site *.egg-info
