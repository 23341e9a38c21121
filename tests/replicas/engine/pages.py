"""Metrics pages as engines write them."""

from typing import Any


def vllm(**values: Any) -> bytes:
    """A page of vLLM.

    Args:
        values: Of metrics, by what follows ``vllm:``; ``started`` is the start of the process,
            ``blocks`` the size of the cache, ``adapters`` those that run.
    """
    started, blocks = values.pop("started", 1000.0), values.pop("blocks", 1000)
    adapters = values.pop("adapters", None)
    labels = 'engine="0",model_name="m"'
    lines = [
        "# HELP vllm:num_requests_running Number of requests in model execution batches.",
        "# TYPE vllm:num_requests_running gauge",
        *(f"vllm:{name}{{{labels}}} {float(value)}" for name, value in values.items()),
        f'vllm:cache_config_info{{block_size="16",engine="0",num_gpu_blocks="{blocks}"}} 1.0',
        f"process_start_time_seconds {started}",
        "python_info 1.0",
    ]
    if adapters is not None:
        names = f'running_lora_adapters="{adapters}",waiting_lora_adapters=""'
        lines.append(f'vllm:lora_requests_info{{max_lora="4",{names}}} 1.7e+09')
    return "\n".join([*lines, ""]).encode()
