"""What a model server tells of itself."""

from typing import NamedTuple


class EngineError(Exception):
    """An engine's word cannot be had or understood. The message says what to do."""


class EngineState(NamedTuple):
    """One look at a model server; None for what it does not tell.

    Counters run since the engine's start. Tokens are the engine's own.

    Attributes:
        engine: ``vllm``, ``sglang``, ``tgi``, or ``orca`` for the report in a response's headers.
        running: Requests in the engine's batch.
        waiting: Requests that it has queued.
        kv_usage: Share of its KV cache that running requests hold, 0 to 1.
        capacity_tokens: Tokens that its KV cache has room for.
        started_at: When its process started, in Unix seconds.
        prompt_tokens: Prompt tokens of all requests, cached or not.
        queried_tokens: Tokens looked up in its prefix cache, in a unit of its own.
        hit_tokens: Those of them that were found, in the same unit.
        computed_tokens: Prompt tokens that it had to compute.
        generated_tokens: Tokens that it generated.
        requests: Requests that it has prefilled.
        prefill_s: Seconds that it took for their prefills.
        adapters: LoRA adapters that it has loaded.
    """

    engine: str
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    capacity_tokens: int | None = None
    started_at: float | None = None
    prompt_tokens: float | None = None
    queried_tokens: float | None = None
    hit_tokens: float | None = None
    computed_tokens: float | None = None
    generated_tokens: float | None = None
    requests: float | None = None
    prefill_s: float | None = None
    adapters: tuple[str, ...] | None = None
