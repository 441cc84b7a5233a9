# Everything a fresh machine needs is Python 3.11 or newer and make.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
PIP = $(VENV)/bin/python -m pip install -qq --disable-pip-version-check -c constraints.txt

.PHONY: run test lint bench test-vision clean

run: $(VENV)/.run  ## compress a real model on real data and print where the report is
	$(VENV)/bin/compress run recipes/int8.yaml

test: $(VENV)/.dev  ## lint, types and all tests
	$(MAKE) lint
	$(VENV)/bin/python -m pytest -n 2 tests

lint: $(VENV)/.dev
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

bench: $(VENV)/.dev  ## side-by-side figures, written to benchmarks/results
	for script in benchmarks/*.py; do $(VENV)/bin/python $$script || exit 1; done

# Another environment, because torchvision has no build for the CPU wheel of torch that constraints.txt pins.
test-vision: .venv-vision/.ready
	.venv-vision/bin/python -m pytest -m vision tests

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=/path/to/python")'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV): about 2 GB, a few minutes"
	$(PIP) -e .
	touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing into $(VENV) with what the tests need: about 2 GB, a few minutes"
	$(PIP) -e '.[dev]'
	touch $@ $(VENV)/.run

.venv-vision/.ready: pyproject.toml
	$(PYTHON) -m venv .venv-vision
	.venv-vision/bin/python -m pip install --quiet 'torch==2.14.1' 'torchvision==0.29.1' timm -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) .venv-vision .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist
