# Two commands do all the set-up on a machine with Python 3.11 or later: `make demo` and `make test`.
# Everything lives in .venv inside the checkout; `make clean` takes it away again.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := dev,peers,plot
MAPPED := kernels operators validation datasets benchmarks
SOURCES := pulse $(MAPPED) tests
PYTHON ?=
QUICK ?=
WORKERS ?= 3
# Each worker takes a range of the suite, in order, then from what others have left. One more than cores: Spark tests often wait.
PYTEST := $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal
# What of the suite says most about a cluster: fits, queries with and without exchanges, revisions, jobs with state.
ON_CLUSTER := $(addprefix tests/runtime/,$(addsuffix .py,spark/test_session spark/test_arrow_frames fit/test_spark_driver execution/test_spark_driver incremental/test_version_diff_spark jobs/test_toml))
ONLY ?=
COMPARE ?=
STRICT ?=
DEMO ?= .demo

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))

# Where this is set, every process would compile every module, and every worker rewrite every test, again.
unexport PYTHONDONTWRITEBYTECODE

SUITE_LOG := $(VENV)/suite.log
# What else comes before a part: in `make test` what each part would else make for itself.
FIRST ?=
AT_ONCE := $(MAKE) --no-print-directory --keep-going -j 2 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.DEFAULT_GOAL := help
.PHONY: help install demo test suite check checked lint types tests warm collected nojit cluster fuzz audit bench site wheel dist format clean

help: ## show this list
	@echo "Usage: make <target>"
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/  \1\t\2/p' Makefile | expand -t 12

install: $(STAMP) ## make .venv with Pulse, its dependencies and the development tools (PYTHON=… chooses the Python)

# Anew only when what is to be installed has changed: the sources themselves are linked, not copied.
$(STAMP): setup.cfg pyproject.toml
	@if ! $(BIN)/python -c '$(IS_NEW_ENOUGH)' 2>/dev/null; then \
	  for python in $(or $(PYTHON),python3.13 python3.12 python3.11 python3) ""; do \
	    if [ -n "$$python" ] && $$python -c '$(IS_NEW_ENOUGH)' 2>/dev/null; then break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    echo "make install: Pulse needs Python 3.11 or later; looked for $(or $(PYTHON),python3.13 python3.12 python3.11 python3)." >&2; \
	    echo "Install one, or name it: make install PYTHON=/path/to/python" >&2; \
	    exit 1; \
	  fi; \
	  echo "making $(VENV) with $$($$python --version)"; \
	  rm -rf $(VENV) && $$python -m venv $(VENV) || { rm -rf $(VENV); exit 1; }; \
	fi
	@echo "installing Pulse and its dependencies into $(VENV) (some minutes on a slow line)"
	@$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check --no-input -e '.[$(EXTRAS)]'
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || : # on all cores, as pip does not; a few files are for other Pythons
	@touch $(STAMP)
	@echo "installed: $(BIN)/pulse"

demo: install ## run the main job on sample data; pictures and a page in DEMO=.demo
	$(BIN)/pulse demo --out '$(DEMO)'

# Two at a time, the suite among them, so that cores are busy while Spark, pip or the network is waited for; each output is in one
# piece where make can. The suite's comes last, so that its closing lines are what is seen; any failure is one of all of it.
test: install lint ## lint, types, the whole suite, the kernels with the JIT off, the documentation, the wheel, Spark on a cluster, the audit
	@rm -f $(SUITE_LOG); echo "follow the suite with: tail -F $(SUITE_LOG)"
	+@$(AT_ONCE) suite types cluster dist site nojit audit FIRST="warm collected"; code=$$?; [ ! -f $(SUITE_LOG) ] || cat $(SUITE_LOG); exit $$code

# Not while the wheel is built, which leaves its files in the checkout for a while.
suite: $(FIRST) wheel
	@$(PYTEST) > $(SUITE_LOG) 2>&1

lint: install
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)

# The parts of the suite that say most in the least time: no cluster, no recorded data, no pages, no kills, few examples, little Spark.
CHECKED := $(addprefix tests/,kernels operators core stream plan language validation store oracles test_layering.py test_rooms.py \
  test_session.py test_query_edges.py test_query_composition.py runtime/execution/test_spark_driver.py runtime/execution/test_local_driver.py)

# Of these folders what starts many processes, or compiles for itself.
UNCHECKED := $(addprefix tests/,store/test_kills.py kernels/test_jit.py kernels/fit/test_feasible_set.py)

check: install lint ## lint, types and the quick part of the suite, for use while editing
	+@$(AT_ONCE) checked types

checked: install
	HYPOTHESIS_PROFILE=quick $(PYTEST) -q $(CHECKED) $(addprefix --ignore=,$(UNCHECKED))

# mypy does not follow setup.cfg's package_dir, so it is shown the package as the wheel would hold it.
types: install
	@rm -rf $(VENV)/typing && mkdir -p $(VENV)/typing/pulse
	@ln -s $(CURDIR)/pulse/* $(addprefix $(CURDIR)/,$(MAPPED)) $(VENV)/typing/pulse/
	cd $(VENV)/typing && ../bin/mypy --config-file ../../setup.cfg --cache-dir ../../.mypy_cache -p pulse

tests: warm
	$(PYTEST)

# Once for all processes, which else compiled the same kernels each for itself.
warm: install
	$(BIN)/python -m tests.warming $(WORKERS)

# Once for all workers, which else rewrote the assertions of the same tests each for itself; and what does not import is seen soon.
collected: install
	$(BIN)/python -m pytest --collect-only -qq > $(VENV)/collected.log || { tail -n 100 $(VENV)/collected.log; exit 1; }

nojit: install $(FIRST)
	NUMBA_DISABLE_JIT=1 HYPOTHESIS_PROFILE=nojit $(PYTEST) -p no:cacheprovider tests/kernels

# Programs first, each an application of its own; then what shares one, and last the tests that kill its workers.
cluster: install $(FIRST) ## the demo and the Spark part of the suite on a standalone cluster on loopback, whose workers lack Pulse and are killed
	$(BIN)/python -m tests.cluster.standalone -- sh -ec ' \
	  $(BIN)/python -m pytest -p no:cacheprovider tests/cluster/test_programs.py; \
	  $(BIN)/python -m pytest -p no:cacheprovider $(ON_CLUSTER) tests/cluster/test_shipped.py tests/cluster/test_kills.py'

# New examples every time, two thousand a test; the suite itself runs the same few.
fuzz: install ## look for input that crashes or hangs a reader or the query language (some 20 minutes; HYPOTHESIS_PROFILE=fuzz)
	HYPOTHESIS_PROFILE=fuzz $(PYTEST) tests/fuzz tests/language/test_fuzz.py

# It asks a service on the Internet about every package. Where that cannot be reached it says so, and fails only if STRICT.
audit: install ## hold what is installed against known vulnerabilities (STRICT=1: fail where nothing could be learned)
	$(BIN)/python -m tests.audit $(if $(STRICT),--strict)

bench: install ## run the benchmarks and write a report (QUICK=1: small sizes; ONLY=fig5; COMPARE=run.json: fail where slower)
	$(if $(QUICK),PULSE_BENCH_QUICK=1 )$(if $(QUICK)$(ONLY),,PULSE_BENCH_COMPILE=1 )$(BIN)/python -m pytest benchmarks --benchmark-only \
	  -o python_files='bench_*.py' -o python_functions='bench_* test_*' \
	  $(if $(ONLY),-k '$(ONLY)') $(if $(COMPARE),--pulse-compare '$(COMPARE)')

# Warnings are errors: a link to a page, heading or name that is not there, a notebook that fails.
site: install $(FIRST) ## build the documentation into docs/_build/html; fails at a broken link or a failing notebook
	SPARK_CONF_DIR=$(CURDIR)/tests/spark $(BIN)/python -m sphinx -W --keep-going -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

# The wheel is built from the sdist, so that each holds what it needs.
wheel: install
	rm -rf dist build
	$(BIN)/python -m build --no-isolation --outdir dist . > $(VENV)/build.log 2>&1 || { cat $(VENV)/build.log; exit 1; }
	rm -rf build

# The environment it is tried in has nothing else.
dist: wheel $(FIRST) ## build sdist and wheel into dist/, install the wheel in an empty environment and run the demo there
	rm -rf $(VENV)/empty
	$(BIN)/python -m venv $(VENV)/empty
	$(VENV)/empty/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --no-input dist/*.whl
	cd $(VENV)/empty && bin/pulse --version && bin/pulse demo --rows 200k --out demo
	rm -rf $(VENV)/empty

format: install ## format the sources and mend what the linter can
	$(BIN)/ruff check --fix $(SOURCES)
	$(BIN)/ruff format $(SOURCES)

clean: ## remove .venv and everything generated
	rm -rf $(VENV) .demo build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .benchmarks
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
