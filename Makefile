# Two commands set everything up on a fresh machine with Python and make: `make demo`, `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin

.PHONY: demo test check coverage dist docs slow bench results clean

demo: $(VENV)/installed
	$(BIN)/imae demo --out demo

test: $(VENV)/installed check
	$(BIN)/python -m pytest -n 2 -q

check: $(VENV)/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# Branch coverage of the packages that a wrong result would come from; at least 95% of each.
coverage: $(VENV)/installed
	for part in losses noise records data; do \
		$(BIN)/python -m pytest -q tests/$$part src/imae/$$part --cov=imae.$$part --cov-branch \
			--cov-report=term-missing:skip-covered --cov-fail-under=95 || exit 1; \
	done

slow: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev,services,integrations,release,notebooks]'
	$(BIN)/python -m pytest -q -m slow
	$(BIN)/python -m pytest -q --hypothesis-profile=thorough tests/losses/test_functional.py tests/noise

# Wheel and source distribution, checked.
dist: $(VENV)/installed
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[release]'
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist

docs: $(VENV)/installed
	$(BIN)/mkdocs build --strict

bench: $(VENV)/installed
	$(BIN)/python benchmarks/losses.py
	$(BIN)/python benchmarks/data.py
	$(BIN)/python benchmarks/train.py
	$(BIN)/python benchmarks/growth.py

# The tables and figures under results/, again, from the run records there.
results: $(VENV)/installed
	for claim in results/*/reproduce.json; do \
		$(BIN)/imae reproduce --rebuild --out $$(dirname $$claim) || exit 1; \
	done

# The constraints hold torch at a build that needs no accelerator packages and pin what was tested.
$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) dist site demo .mypy_cache .pytest_cache .ruff_cache
