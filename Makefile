# Everything runs in a virtual environment of the checkout's own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo

.PHONY: demo install test test-all mutants reproduce-quick reproduce check lint bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench sweep adding --models scornn,lstm --preset quick
	cd $(DEMO) && $(abspath $(BIN))/orthobench report --html

test: $(INSTALLED)
	$(BIN)/python -m pytest -n auto

test-all: $(INSTALLED)
	$(BIN)/python -m pytest -m ''

# Break the code in small ways and list the breaks that no test notices: at most twenty minutes on two cores.
mutants: $(INSTALLED)
	$(BIN)/python tests/mutants.py

# Figures of the papers in small, with what is claimed of them checked: about five minutes on two cores.
reproduce-quick: $(INSTALLED)
	mkdir -p $(DEMO)
	cd $(DEMO) && $(abspath $(BIN))/orthobench reproduce --small --db reproduction.db

# What the papers ran, at their scale and in the order in which it tells most: weeks on two cores. Each run is made once,
# so that it may be stopped and asked for again at any time.
SEEDS := 1
reproduce: $(INSTALLED)
	-$(BIN)/orthobench reproduce helfrich2018 --figure 2 --models scornn,lstm,ornn,full_urnn --seeds $(SEEDS)
	-$(BIN)/orthobench reproduce helfrich2018 --figure 1 --models scornn,lstm,full_urnn --seeds $(SEEDS)
	-$(BIN)/orthobench study gradient-norms --seeds $(SEEDS)
	-$(BIN)/orthobench study toy-dynamics
	-$(BIN)/orthobench study heat-maps --seeds $(SEEDS)
	-$(BIN)/orthobench sweep timit --models scornn,lstm,enrnn,full_urnn -s dataset=timit_sample --seeds $(SEEDS)
	-$(BIN)/orthobench reproduce helfrich2018 --table 1 --where hidden_size=170 --seeds $(SEEDS)
	-$(BIN)/orthobench study orthogonality --seeds $(SEEDS)
	-$(BIN)/orthobench study time
	-$(BIN)/orthobench reproduce maduranga2020 --figure 1 --seeds $(SEEDS)
	-$(BIN)/orthobench reproduce maduranga2020 --figure 2 --seeds $(SEEDS)
	-$(BIN)/orthobench reproduce maduranga2020 --table 3 --seeds $(SEEDS)
	-$(BIN)/orthobench study sizes --seeds $(SEEDS)
	-$(BIN)/orthobench reproduce chang2019 --table 1 --seeds $(SEEDS)
	-$(BIN)/orthobench study jacobians --seeds $(SEEDS)
	-for paper in helfrich2018 maduranga2020 chang2019 lezcano2019 kerg2019 vorontsov2017 wisdom2016 rusch2021cornn \
	    rusch2022lem helfrich2017; do \
	  $(BIN)/orthobench reproduce $$paper --seeds $(SEEDS); done
	$(BIN)/orthobench report --html
	$(BIN)/orthobench report --format reproduction

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
	rm -rf $(VENV) $(DEMO) build dist *.egg-info
