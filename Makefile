# Everything that is done to this repository. It needs Python 3.11 or newer and make, and Go for the control plane of the
# cluster tests, the benchmark and `make demo REAL=1`; each target sets up the rest for itself.

PYTHON ?= python3
VENV ?= .venv
# For the example trainings alone.
EXAMPLES_VENV ?= .venv-examples
# For the documentation alone.
DOCS_VENV ?= .venv-docs
# Options for pytest, as in: make unit ARGS="-k ledger"; -n0 runs in one process and shows what is printed
ARGS ?=
# How many trials `make seeds` and `make soak` run, and how many walks `make walks`. Empty: each target's own number.
SEEDS ?=
# For tests.stages: the one test of a suite to run, and the name of its report. Empty: the whole suite, and its own name.
TESTS ?=
REPORT ?=
# Modelled nodes of `make cluster`; 0: none, pods stay Pending.
NODES ?= 8
# Real nodes of `make cluster` instead, with kubelet and containerd; root only. Empty: modelled ones.
REAL_NODES ?=
export PYTHON VENV TESTS
# The tests start some 200 Python processes. Where this is set, as in images of Python, each of them compiles the whole
# package again, and each worker of pytest rewrites the assertions of all tests again: a third of `make unit`.
unexport PYTHONDONTWRITEBYTECODE

BIN := $(VENV)/bin
# The stamp says that an installation was finished; the other file is there while one is going on. It lies outside, because
# making the environment anew empties it.
STAMP := $(VENV)/.installed
UNFINISHED := build/venv-unfinished
EXAMPLES_STAMP := $(EXAMPLES_VENV)/.installed
DOCS_STAMP := $(DOCS_VENV)/.installed
PIP := $(BIN)/python -m pip --disable-pip-version-check

# pytest on the folder of a suite, or on one test of it. Quoted by the shell: names of tests hold brackets and spaces.
suite = $(BIN)/python -m pytest "$${TESTS:-tests/$(1)}" --junitxml=build/$(or $(REPORT),$@).xml
# Which tests of its suite a target runs; pyproject.toml says what the markers mean. Empty: all of them.
part_of_simulation-central := -m "not long"
part_of_simulation-rest := -m long
part_of_test-cluster-central := -m central
part_of_test-cluster-1.37 := -m central
part_of_real-nodes-central := -m "not torch"

.DEFAULT_GOAL := help
.PHONY: help demo cluster chaos test test-ci test-all unit lint docs simulation simulation-central simulation-rest seeds \
  seeds-central soak examples contract walks prometheus test-image test-cluster test-cluster-central \
  test-cluster-conflicts test-cluster-1.37 real-nodes real-nodes-central cluster-build bench venv manifests pictures image agent-image lock clean \
  debian-packages check-go

help:  ## list the targets
	@awk '/^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z0-9.-]+:.*## / {split($$0, part, ":.*## "); \
	  printf "  %-24s %s\n", part[1], part[2]}' $(firstword $(MAKEFILE_LIST))

##@ Try it

# Anything but empty: `make demo` on the real control plane, which needs Go.
REAL ?=

demo: $(STAMP) $(if $(REAL),check-go)  ## four incidents of a 1,024-GPU job, in one process; REAL=1: one, on a real control plane
	@$(BIN)/python -m $(if $(REAL),tests.cluster.demo,recovery.sim.demo)

cluster: $(STAMP) check-go $(if $(REAL_NODES),debian-packages)  ## a cluster to try things on until Ctrl-C, with NODES=8 modelled nodes of 8 GPUs; REAL_NODES=3: with kubelets
	@$(BIN)/python -m tests.cluster.$(if $(REAL_NODES),real_nodes --nodes $(REAL_NODES),controlplane --nodes $(NODES))

##@ Check everything

test: venv  ## on every machine, in minutes: lint, documentation, unit tests, the central part of the simulation
	@$(BIN)/python -m tests.stages lint+docs unit seeds-central simulation-central

test-ci: $(STAMP)  ## what CI runs after that: the central part of what needs real components, and the rest of the simulation; Linux, root, Go
	@$(BIN)/python -m tests.stages --rerun ~simulation-rest ~seeds cluster-build \
	  test-cluster-central+real-nodes-central,contract,prometheus,walks,test-image

test-all: venv  ## everything, stage by stage, also after a red one; Linux, root, Go, 5.4 GB for torch, hours
	@$(BIN)/python -m tests.stages --keep-going lint docs unit simulation seeds examples cluster-build test-cluster \
	  real-nodes contract prometheus walks test-image test-cluster-conflicts test-cluster-1.37

##@ Check a change

unit: $(STAMP)  ## the unit tests, in a minute or two
	$(BIN)/python -m pytest tests/unit tests/agent tests/contract --world=simulated -n auto --timeout=60 --junitxml=build/unit.xml $(ARGS)

lint: $(STAMP)  ## ruff, mypy --strict, the boundaries between packages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(STAMP) $(DOCS_STAMP)  ## the documentation as a site, in build/site; a broken link, or a command that fails, fails it
	@NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict
	$(call suite,documentation) -n auto --timeout=300 $(ARGS)

# `make test-ci` runs `simulation-rest` at the lowest priority beside all else, so that one test may take many minutes.
simulation simulation-central simulation-rest: $(STAMP)
	$(call suite,simulation) --ignore=tests/simulation/test_seeds.py $(part_of_$@) -n auto --dist worksteal --timeout=5400 $(ARGS)

simulation:  ## the controller in a modelled cluster: incidents stopped at every write, canaries, storms, walks, seven days of a fleet
simulation-central:  ## the part of it in `make test`
simulation-rest:  ## the other part

# In one process of pytest: it starts a process for each core itself, and xdist would start as many once more. CI runs
# `seeds` at the lowest priority beside all else, where a slow machine leaves it little for most of an hour: CI's own
# limit applies.
seeds-central: SEEDS := 40
seeds seeds-central: $(STAMP)
	@rm -f build/seeds.txt
	SEEDS=$(or $(SEEDS),1000) $(BIN)/python -m pytest tests/simulation/test_seeds.py --timeout=5400 --junitxml=build/$@.xml $(ARGS)
	@cat build/seeds.txt

seeds:  ## the same cluster: 1,000 trials under faults that a seed draws; SEEDS=100: fewer
seeds-central:  ## the first 40 of them, as in `make test`

soak: $(STAMP)  ## the same seeds and many more, hours: FIRST=30000 SEEDS=20000; ARGS=walks: random walks of the decision
	@$(BIN)/python -m tests.soak $(ARGS)

examples: $(STAMP) $(EXAMPLES_STAMP)  ## the example trainings: killed, run again, the same losses; installs torch (5.4 GB)
	EXAMPLES_VENV=$(EXAMPLES_VENV) $(call suite,examples) --timeout=600 $(ARGS)

contract: $(STAMP) check-go  ## what the modelled cluster promises (make unit), asked of the real control plane
	$(call suite,contract) --world=real --timeout=600 $(ARGS)

walks: $(STAMP) check-go  ## random walks of small jobs, in the modelled cluster and on the real control plane; SEEDS=200: more
	$(call suite,walks) $(if $(SEEDS),--walks=$(SEEDS)) --timeout=0 $(ARGS)

prometheus: $(STAMP) check-go  ## rules, alerts and monitors on real Prometheus, and the controller scraped by it
	$(call suite,prometheus) --timeout=600 $(ARGS)

test-image: $(STAMP) debian-packages  ## the image: built twice, equal, and its commands as the cluster runs them; root, Debian
	$(call suite,image) --timeout=900 $(ARGS)

# Two control planes side by side: the tests mostly wait, for grace periods, leases and kubelets.
test-cluster test-cluster-central test-cluster-conflicts test-cluster-1.37: $(STAMP) check-go
	$(call suite,cluster) $(part_of_$@) -n 2 --dist loadfile --timeout=1200 $(ARGS)

test-cluster-conflicts: export CONFLICTS := yes
test-cluster-conflicts:  ## all of them, and each write that tests a version meets an object that has just changed
# Its build too has this Kubernetes: minutes the first time, which no other stage has made.
test-cluster-1.37: export RECOVERY_CLUSTER_KUBERNETES := 1.37
test-cluster-1.37: cluster-build  ## what CI runs of them, with a control plane of Kubernetes 1.37
test-cluster:  ## the tests that need a real control plane
test-cluster-central:  ## the part of them that CI runs

# In a network of their own, so that everything is built and fetched first.
real-nodes: $(EXAMPLES_STAMP)
real-nodes real-nodes-central: $(STAMP) check-go debian-packages
	EXAMPLES_VENV=$(EXAMPLES_VENV) $(call suite,real_nodes) $(part_of_$@) --timeout=600 $(ARGS)

real-nodes:  ## real kubelets and containers on three nodes: what breaks them, the controller in its image; root only
real-nodes-central:  ## those that need no torch

chaos: $(STAMP) check-go debian-packages $(EXAMPLES_STAMP)  ## the experiments of examples/chaos on modelled and on real nodes, with equal verdicts; root only
	@rm -f build/chaos.jsonl
	$(call suite,cluster/test_chaos.py) --timeout=600 $(ARGS)
	EXAMPLES_VENV=$(EXAMPLES_VENV) $(BIN)/python -m pytest tests/real_nodes/test_chaos.py \
	  --junitxml=build/chaos-real-nodes.xml --timeout=600 $(ARGS)
	@$(BIN)/python -m tests.cluster.chaos_table

cluster-build: $(STAMP) check-go  ## build the control plane's programs (minutes, once for each version)
	@$(BIN)/python -m tests.cluster.controlplane.build

# What `make bench` measures: all, or parts of it; these need no Go.
bench_without_go := simulation decisions scale scrapes attacks capacity gpu-hours rendezvous reports
bench: $(STAMP) $(if $(filter $(bench_without_go),$(ARGS)),,check-go)  ## ratios measured in one run; ARGS=simulation: of the simulation alone, without Go
	@EXAMPLES_VENV=$(EXAMPLES_VENV) $(BIN)/python -m tests.bench $(ARGS)

##@ Generate

# With what the documentation is built with, so that `make test` needs no network after it.
venv: $(STAMP) $(DOCS_STAMP)  ## the virtual environments of the program and of its documentation, from the hashed locks

manifests: $(STAMP)  ## generate CRDs, the reference, metrics page, recording rules, alerts and dashboards
	@$(BIN)/python -m recovery.crds
	@$(BIN)/python -m recovery.dashboards

pictures: $(STAMP) check-go  ## draw the dashboards and photograph reports into docs/images; needs Chromium
	@$(BIN)/python -m tests.prometheus.pictures

image: $(STAMP) debian-packages  ## the controller's image without a registry, into build/image/trainjob-recovery.tar; root, Debian
	@$(BIN)/python -m tests.image.build

agent-image: $(STAMP)  ## the agent's image, for an image volume, into build/image/trainjob-recovery-agent.tar
	@$(BIN)/python -m tests.image.agent

lock: $(STAMP)  ## resolve pyproject.toml into the locks; UPGRADE=1 takes the newest of everything
	@$(PIP) install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --quiet --no-header --no-emit-index-url --generate-hashes --python-version 3.11 \
	  $(if $(UPGRADE),--upgrade) --extra controller --extra dev --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --quiet --no-header --no-emit-index-url --generate-hashes --python-version 3.11 \
	  $(if $(UPGRADE),--upgrade) --extra controller --output-file requirements-runtime.lock
	@# What the image is built with: the build backend, at the versions that requirements.lock has.
	$(BIN)/python -c 'import tomllib; build = tomllib.load(open("pyproject.toml", "rb"))["build-system"]; \
	  print(*build["requires"], sep="\n")' | \
	  $(BIN)/uv pip compile - --quiet --no-header --no-emit-index-url --generate-hashes --python-version 3.11 \
	  $(if $(UPGRADE),--upgrade) --constraint requirements.lock --output-file requirements-build.lock
	@# The extra alone, without what ours depends on: the scripts import nothing of ours.
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*project["optional-dependencies"]["examples"], sep="\n")' | \
	  $(BIN)/uv pip compile - --universal --quiet --no-header --no-emit-index-url --generate-hashes --python-version 3.11 \
	  $(if $(UPGRADE),--upgrade) --output-file requirements-examples.lock
	$(BIN)/python -c 'import tomllib; project = tomllib.load(open("pyproject.toml", "rb"))["project"]; \
	  print(*project["optional-dependencies"]["docs"], sep="\n")' | \
	  $(BIN)/uv pip compile - --quiet --no-header --no-emit-index-url --generate-hashes --python-version 3.11 \
	  $(if $(UPGRADE),--upgrade) --output-file requirements-docs.lock

clean:  ## remove what was made here; the control plane's programs stay in their cache
	rm -rf $(VENV) $(EXAMPLES_VENV) $(DOCS_VENV) build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the targets above need.

$(STAMP): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "Python 3.11 or newer is needed, but $(PYTHON) is $$($(PYTHON) --version 2>/dev/null || echo not there);" \
	    "name another one: make PYTHON=python3.11 ..." >&2; exit 1; }
	@echo "installing requirements.lock into $(VENV)"
	@# Whatever an interrupted installation left may look complete to pip: begin anew.
	@clear=; if [ -e $(UNFINISHED) ] || ! $(BIN)/python -c 'import pip' 2>/dev/null; then clear=yes; fi; \
	  mkdir -p build && touch $(UNFINISHED) && { [ -z "$$clear" ] || $(PYTHON) -m venv --clear $(VENV); }
	@$(PIP) install --quiet --require-hashes -r requirements.lock
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@rm -f $(UNFINISHED)
	@touch $@

# Of its own, so that the other stays small: torch for Linux comes with CUDA, which its import needs without a GPU too.
# 5.4 GB on disk; one to five minutes, by the network and the disk.
$(EXAMPLES_STAMP): requirements-examples.lock | $(STAMP)
	@echo "installing requirements-examples.lock into $(EXAMPLES_VENV): 5.4 GB"
	@$(PYTHON) -m venv --clear $(EXAMPLES_VENV)
	@$(EXAMPLES_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes \
	  -r requirements-examples.lock
	@touch $@

$(DOCS_STAMP): requirements-docs.lock
	@echo "installing requirements-docs.lock into $(DOCS_VENV)"
	@$(PYTHON) -m venv --clear $(DOCS_VENV)
	@$(DOCS_VENV)/bin/python -m pip --disable-pip-version-check install --quiet --require-hashes -r requirements-docs.lock
	@touch $@

check-go:
	@# Go 1.21 and later fetch the toolchain that the modules ask for; older ones only say that the version is invalid.
	@if [ -z "$$RECOVERY_CLUSTER_BIN" ] && command -v go >/dev/null 2>&1; then \
	  minor=$$(go env GOVERSION | sed -n 's/^.*go1\.\([0-9]*\).*/\1/p'); \
	  [ "$${minor:-0}" -ge 21 ] || { \
	    echo "Go 1.26 is needed (1.21 or newer fetches it), but this is $$(go version); update it, or set" \
	      "RECOVERY_CLUSTER_BIN to a folder of ready-made binaries" >&2; exit 1; }; fi

# What nodes and the image are made with. Elsewhere, or without root, the tests say what is missing.
debian-packages: $(STAMP)
	@$(BIN)/python -m tests.debian_packages
