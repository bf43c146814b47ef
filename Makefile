# Everything runs in one virtual environment, .venv, made and refreshed as the targets need it. What is installed
# there is remembered by the stamps .venv/.with-EXTRA, which age with pyproject.toml and setup.py.
#   ARGS='...'     is passed on: make pretrain ARGS='--size mini', make test ARGS='-k attention'
#   PYTHON=...     which Python makes .venv; by default the first of python3, python3.11 ... that is at least 3.11
#   MINUTES=...    what `make pretrain` may take, without the installation

VENV := .venv
BIN := $(VENV)/bin
MINUTES := 8
ARGS :=
PIP := $(BIN)/python -m pip install --no-input --disable-pip-version-check -qq
NOTEBOOKS = $(wildcard notebooks/*.ipynb)
VERSION = import sys; print("%d.%d" % sys.version_info[:2])
PYTEST = $(BIN)/python -m pytest
# The whole fast suite; `make test-all` adds what is marked slow.
TESTS = tests --ignore tests/oracle $(if $(NOTEBOOKS),--nbmake $(NOTEBOOKS))

.DEFAULT_GOAL := help
.PHONY: help pretrain test test-all test-oracle gradcheck lint bench notebooks clean
.NOTPARALLEL:

help: ## this list
	@echo "make TARGET [ARGS='...'] [PYTHON=python3.12]"
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  \1|\2/p' $(MAKEFILE_LIST) | awk -F'|' '{ printf "%-14s %s\n", $$1, $$2 }'

pretrain: $(VENV)/.with-plots ## train a small BERT for MINUTES on the books in the package, into runs/
	$(BIN)/minibert pretrain --minutes $(MINUTES) $(ARGS)

test: $(VENV)/.with-test ## the tests and the notebooks, without what is slow
	$(PYTEST) -m "not slow" $(TESTS) $(ARGS)

test-all: test-oracle ## every test, slow ones too, on every Python from 3.11 on that is found
	@own=$$($(BIN)/python -c '$(VERSION)') && for python in $$(.ci/pythons); do \
	  version=$$($$python -c '$(VERSION)'); venv=$(VENV)/$$version; [ $$version != $$own ] || venv=$(VENV); \
	  echo "minibert: all tests on Python $$version"; \
	  $(MAKE) --no-print-directory every-test VENV=$$venv PYTHON=$$python || exit 1; \
	done

.PHONY: every-test
every-test: $(VENV)/.with-test
	$(PYTEST) $(TESTS) $(ARGS)

test-oracle: $(VENV)/.with-test $(VENV)/.with-oracle ## against PyTorch, Hugging Face, SciPy, scikit-learn and JAX
	$(PYTEST) tests/oracle $(ARGS)

gradcheck: $(VENV)/.with-plots ## every gradient against the complex step: the proof sheet
	$(BIN)/minibert gradcheck $(ARGS)

lint: $(VENV)/.with-lint ## ruff over the Python
	$(BIN)/ruff check . $(ARGS)

bench: $(VENV)/.with-plots ## the measurements of benchmarks/
	@set -- benchmarks/*.py; [ -e "$$1" ] || { echo "minibert: benchmarks/ is empty so far"; exit 0; }; \
	for script; do echo "minibert: $$script"; $(BIN)/python "$$script" $(ARGS) || exit 1; done

notebooks: $(VENV)/.with-notebooks ## run the notebooks anew, outputs and all, from their sources notebooks/*.py
	@for source in notebooks/*.py; do echo "minibert: running $$source"; \
	  $(BIN)/jupytext --quiet --to ipynb --execute "$$source" || exit 1; done

clean: ## remove the virtual environment and whatever was built; run folders stay
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .hypothesis .ruff_cache
	find . -name __pycache__ -not -path './runs/*' -prune -exec rm -rf {} +

# A virtual environment whose Python has gone away is of no use to anyone.
ifeq ($(wildcard $(BIN)/python),)
$(shell rm -rf $(VENV)/.made $(VENV)/.with-*)
endif

$(VENV)/.made:
	@python=$$(PYTHON='$(PYTHON)' .ci/pythons | head -n 1) && [ "$$python" ] && \
	echo "minibert: making $(VENV) with $$python" && "$$python" -m venv --clear $(VENV) && touch $@

# torch goes first and alone, so that nothing else decides which build of it comes.
$(VENV)/.with-oracle: TORCH_FIRST = $(PIP) torch==2.13.0 &&
$(VENV)/.with-%: pyproject.toml setup.py | $(VENV)/.made
	@echo "minibert: installing minibert[$*] into $(VENV); a minute or a few the first time" && \
	$(TORCH_FIRST) $(PIP) --editable '.[$*]' && touch $@
