# Everything a person or a build does with this project. `make` alone lists it.
# Another Python: make setup PYTHON=python3.12. Another virtual environment: make test VENV=/tmp/venv.

PYTHON ?= python3
VENV ?= .venv

BIN := $(VENV)/bin
STAMP := $(VENV)/.penstock-setup

# Finds Java, or installs it, or stops with what to do; what follows in the same line runs with it.
WITH_JAVA = JAVA_HOME="$$($(BIN)/python -m penstock.spark.java --install)" && export JAVA_HOME &&

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-long lint format bench lock s3-server clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' Makefile

$(STAMP): requirements.lock pyproject.toml
	@sh scripts/venv.sh $(PYTHON) $(VENV)
	$(BIN)/python -m pip --disable-pip-version-check install -r requirements.lock
	$(BIN)/python -m pip --disable-pip-version-check install --quiet --no-deps --editable .
	@touch $@

setup: $(STAMP) ## create the virtual environment from requirements.lock, and see that Java is there
	@$(WITH_JAVA) echo "Ready: $(VENV), Java in $$JAVA_HOME"

demo: $(STAMP) ## run the main job on generated streams
	@$(WITH_JAVA) $(BIN)/python -m penstock.demo

test: lint ## check style and types, then run the tests
	$(WITH_JAVA) $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: lint ## the same with the long tests
	$(WITH_JAVA) PENSTOCK_TESTS=long $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "long or not long"

lint: $(STAMP) ## check style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: $(STAMP) ## put the code into its style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP) ## measure the window join, as JSON
	@$(WITH_JAVA) $(BIN)/python -m benchmarks.join --json

lock: ## write requirements.lock anew from pyproject.toml
	@sh scripts/lock.sh $(PYTHON)

s3-server: ## build versitygw, a server that speaks S3 for tests on loopback (needs Go)
	go install github.com/versity/versitygw/cmd/versitygw@v1.8.0

clean: ## remove caches and build output; the virtual environment stays
	rm -rf build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis spark-warehouse metastore_db
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
