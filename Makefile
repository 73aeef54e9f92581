# Everything runs in a virtual environment of the checkout's own.
VENV ?= .venv
PYTHON ?= python3
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
DEMO := demo

.PHONY: demo install test test-all reproduce-quick check lint bench clean

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

reproduce-quick: $(INSTALLED)
	$(BIN)/python -m pytest -m slow tests/models/test_learning.py tests/test_quick_runs.py

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
