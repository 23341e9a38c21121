"""Under which names engines tell what, in Prometheus' text format.

Sources: vLLM's ``vllm/v1/metrics/loggers.py`` (0.6 to 0.32: names changed more than once), SGLang's
``sglang/srt/metrics/collector.py``, and the page "Metrics" of text-generation-inference.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

Labels = Mapping[str, str]


class Names(NamedTuple):
    """One engine's names. Of several for a thing, the first that is there counts.

    Attributes:
        engine: The engine.
        fields: Field of ``EngineState`` to the samples that tell it; added up over their labels.
        counts: Whether a sample with these labels counts.
    """

    engine: str
    fields: Mapping[str, tuple[str, ...]]
    counts: Callable[[Labels], bool] = lambda _: True


def _first_rank(labels: Labels) -> bool:
    """Not what the ranks of one engine tell again, nor a part of it by priority."""
    return not labels.get("priority") and all(
        labels.get(rank, "0") == "0" for rank in ("tp_rank", "pp_rank", "moe_ep_rank")
    )


VLLM = Names(
    "vllm",
    {
        "running": ("vllm:num_requests_running",),
        "waiting": ("vllm:num_requests_waiting",),
        "kv_usage": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "queried_tokens": (
            "vllm:prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries_total",
        ),
        "hit_tokens": ("vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        "computed_tokens": ("vllm:request_prefill_kv_computed_tokens_sum",),
        "generated_tokens": ("vllm:generation_tokens_total",),
        "requests": ("vllm:request_prefill_time_seconds_count",),
        "prefill_s": ("vllm:request_prefill_time_seconds_sum",),
    },
)
VLLM_CACHE = "vllm:cache_config_info"
VLLM_ADAPTERS = "vllm:lora_requests_info"

SGLANG = Names(
    "sglang",
    {
        "running": ("sglang:num_running_reqs",),
        "waiting": ("sglang:num_queue_reqs",),
        "kv_usage": ("sglang:token_usage",),
        "capacity_tokens": ("sglang:max_total_num_tokens",),
        "prompt_tokens": ("sglang:prompt_tokens_total",),
        "queried_tokens": ("sglang:prompt_tokens_total",),
        "hit_tokens": ("sglang:cached_tokens_total",),
        "generated_tokens": ("sglang:generation_tokens_total",),
        "requests": ("sglang:num_requests_total", "sglang:time_to_first_token_seconds_count"),
    },
    _first_rank,
)

TGI = Names(
    "tgi",
    {
        "running": ("tgi_batch_current_size",),
        "waiting": ("tgi_queue_size",),
        "prompt_tokens": ("tgi_request_input_length_sum",),
        "queried_tokens": ("tgi_request_input_length_sum",),
        "hit_tokens": ("tgi_request_skipped_tokens_sum",),
        "generated_tokens": ("tgi_request_generated_tokens_sum",),
        "requests": ("tgi_request_input_length_count",),
        "prefill_s": ("tgi_batch_inference_duration_sum",),
    },
    lambda labels: labels.get("method", "prefill") == "prefill",
)

ENGINES = (VLLM, SGLANG, TGI)
STARTED = "process_start_time_seconds"
