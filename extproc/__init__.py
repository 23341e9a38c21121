"""Prefix-aware routing of LLM requests for Envoy, as an external-processing (ext_proc) server."""

__version__ = "0.1.0"
