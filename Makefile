# make serve | make test | make setup | make engine | make demo | make lint | make bench | make test-native
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
JOBS ?= $(shell nproc 2>/dev/null || sysctl -n hw.ncpu)
ENGINE_SOURCES := $(shell find engine/native -name '*.cpp' -o -name '*.h' -o -name '*.inl' -o -name CMakeLists.txt)
ARGS ?=

.PHONY: help setup engine demo serve test test-python test-clients test-postgres test-native test-asan test-tsan test-arm lint bench clean

help:  ## this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(VENV)/.runtime: pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' || \
	  { echo "S-MoE needs Python 3.11 to 3.13; '$(PYTHON)' is $$($(PYTHON) --version 2>&1). Name another: make PYTHON=python3.12"; exit 1; }
	@test -x $(BIN)/python || { echo "Making the virtual environment in $(VENV) ..."; $(PYTHON) -m venv $(VENV) || \
	  { echo "Python's venv module is missing: install it (Debian: apt install python3-venv)."; rm -rf $(VENV); exit 1; }; }
	@echo "Installing the server's dependencies (once, about a minute) ..."
	@$(BIN)/python -m smoe_site.dependencies runtime | $(BIN)/pip install --disable-pip-version-check --progress-bar on -r /dev/stdin || \
	  { echo "The package registry could not be reached, or has no fitting version: check the network and pip's settings, then run make again."; exit 1; }
	@touch $@

$(VENV)/.dev: $(VENV)/.runtime pyproject.toml
	@echo "Installing the tests' dependencies (once) ..."
	@$(BIN)/python -m smoe_site.dependencies dev | $(BIN)/pip install --disable-pip-version-check --progress-bar on -r /dev/stdin || \
	  { echo "The package registry could not be reached, or has no fitting version: check the network and pip's settings, then run make again."; exit 1; }
	@touch $@

setup: $(VENV)/.runtime  ## virtual environment and dependencies

build/smoe-engine: $(ENGINE_SOURCES) | $(VENV)/.runtime
	@command -v $${CXX:-c++} >/dev/null || command -v g++ >/dev/null || command -v clang++ >/dev/null || \
	  { echo "No C++ compiler: install g++ or clang++ (Debian: apt install g++; macOS: xcode-select --install)."; exit 1; }
	@echo "Building the engine (about a minute) ..."
	@$(BIN)/cmake -S engine/native -B build/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja > build-configure.log 2>&1 || \
	  { cat build-configure.log; rm -f build-configure.log; echo "The engine could not be configured: see above."; exit 1; }
	@rm -f build-configure.log
	@$(BIN)/cmake --build build/native -j $(JOBS) --target smoe-engine
	@cp build/native/smoe-engine build/smoe-engine.new && mv build/smoe-engine.new build/smoe-engine && touch build/smoe-engine

engine: build/smoe-engine  ## the native engine: build/smoe-engine

demo: $(VENV)/.runtime  ## the demo vault, where the fleet is empty
	@$(BIN)/python manage.py make_demo_vault --if-empty

serve: $(VENV)/.runtime build/smoe-engine  ## everything, then the server: make serve ARGS="--port 9000"
	@exec $(BIN)/python manage.py serve --prepare $(ARGS)

lint: $(VENV)/.dev  ## ruff
	@$(BIN)/ruff check . && $(BIN)/ruff format --check .

# The sanitizers' builds fill what the Python tests, which often wait, leave of the cores.
test:  ## everything
	@$(MAKE) --no-print-directory $(VENV)/.runtime
	@$(MAKE) --no-print-directory -j 2 JOBS=$(JOBS) lint build/smoe-engine
	@mkdir -p build; nice -n 19 $(MAKE) --no-print-directory JOBS=$(JOBS) build/asan/.built build/tsan/.built > build/sanitizers.log 2>&1 & builds=$$!; \
	  trap "kill $$builds 2> /dev/null || true" EXIT; $(MAKE) --no-print-directory test-python; \
	  echo "Waiting for the engine's builds under the sanitizers ..."; wait $$builds || { cat build/sanitizers.log; exit 1; }
	@$(MAKE) --no-print-directory -j 2 test-native test-postgres

test-clients: $(VENV)/.dev build/smoe-engine demo  ## real clients (Claude Code, Codex, ...), installed into .cache/clients, and slow tests
	@$(BIN)/python -m pytest -m "clients or slow" tests/clients tests/quality

# Three workers: two cores, and one more since tests often wait. A file's tests share servers, so they stay with one worker.
test-python: $(VENV)/.dev build/smoe-engine
	@$(BIN)/python -m pytest -n 3 --dist loadfile

test-postgres: $(VENV)/.dev  ## what touches the database, on a PostgreSQL of its own where there is one
	@$(BIN)/python tests/with_postgres.py $(BIN)/python -m pytest tests/fleet/test_{access,admin,catalog,checks,commands,discovery,fleet_of_300,keys,outages,tokenizers}.py

# Native programs and the fuzz targets under the sanitizers.
NATIVE := $(BIN)/cmake -S engine/native -G Ninja -DCMAKE_MAKE_PROGRAM=$(CURDIR)/$(BIN)/ninja -DSMOE_TESTS=ON

build/asan/.built: $(ENGINE_SOURCES) | $(VENV)/.runtime
	@$(NATIVE) -B build/asan "-DSMOE_SANITIZE=address;undefined" > /dev/null && $(BIN)/cmake --build build/asan -j $(JOBS) && touch $@

build/tsan/.built: $(ENGINE_SOURCES) | $(VENV)/.runtime
	@$(NATIVE) -B build/tsan -DSMOE_SANITIZE=thread > /dev/null && $(BIN)/cmake --build build/tsan -j $(JOBS) && touch $@

test-asan: build/asan/.built
	@$(BIN)/ctest --test-dir build/asan -j $(JOBS) --output-on-failure

test-tsan: build/tsan/.built
	@$(BIN)/ctest --test-dir build/tsan -j $(JOBS) --output-on-failure

# Debian: apt install g++-aarch64-linux-gnu qemu-user
test-arm: $(VENV)/.runtime  ## the engine's own tests with the NEON kernels, cross-compiled and emulated
	@$(NATIVE) -B build/arm -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
	  -DCMAKE_EXE_LINKER_FLAGS=-static "-DCMAKE_CROSSCOMPILING_EMULATOR=qemu-aarch64;-cpu;max" > /dev/null
	@$(BIN)/cmake --build build/arm -j $(JOBS)
	@$(BIN)/ctest --test-dir build/arm -j $(JOBS) --output-on-failure

test-native: test-asan test-tsan  ## the engine's own tests under ASan, UBSan and TSan

bench: $(VENV)/.dev build/smoe-engine  ## what README's figures come from
	@$(BIN)/python -m bench $(ARGS)

clean:  ## remove what was built (not vaults, not the database)
	@rm -rf build $(VENV)
