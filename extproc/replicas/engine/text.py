"""Reading an engine's ``/metrics``. Pure."""

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from extproc.replicas.engine.names import (
    ENGINES,
    STARTED,
    VLLM,
    VLLM_ADAPTERS,
    VLLM_CACHE,
    Names,
)
from extproc.replicas.engine.state import EngineError, EngineState

MOST_BYTES = 4 * 1024 * 1024
"""A longer page is not read: those of engines have 50 to 200 kB."""

_MOST_LINES = 10_000
_MOST_ADAPTERS = 1000
_HIGHEST = 1e15  # doubles are exact below

_KNOWN = {STARTED, VLLM_CACHE, VLLM_ADAPTERS} | {
    name for engine in ENGINES for names in engine.fields.values() for name in names
}
_LINE = re.compile(rf"^(?:{'|'.join(map(re.escape, sorted(_KNOWN)))})(?=[ \t{{]).*$", re.MULTILINE)
_WHOLE = {"running", "waiting", "capacity_tokens"}

Samples = Mapping[str, Sequence[Sample]]


def read_metrics(page: bytes) -> EngineState:
    """What an engine's metrics page tells.

    Only the few lines that matter are parsed: the rest of a page takes a hundred times as long.

    Args:
        page: In Prometheus' text format, at most ``MOST_BYTES``.

    Raises:
        EngineError: It is no page of an engine that is known.
    """
    samples = _samples(page)
    for names in ENGINES:
        values = {field: _value(field, names, samples) for field in names.fields}
        if any(value is not None for value in values.values()):
            break
    else:
        raise EngineError("no metrics of vLLM, SGLang or TGI: is this the engine's /metrics?")
    started = _first(samples.get(STARTED, ()))
    state = EngineState(names.engine, started_at=started, **values)  # type: ignore[arg-type]  # by field
    if names is VLLM:
        state = state._replace(
            capacity_tokens=_vllm_capacity(samples), adapters=_vllm_adapters(samples)
        )
    if state.computed_tokens is None:
        state = state._replace(computed_tokens=_computed(state))
    return state


def _samples(page: bytes) -> Samples:
    if len(page) > MOST_BYTES:
        raise EngineError(f"the metrics page has more than {MOST_BYTES} bytes")
    lines = _LINE.findall(page.decode("utf-8", "replace").replace("\r", ""))
    if len(lines) > _MOST_LINES:
        raise EngineError(f"the metrics page has more than {_MOST_LINES} lines of known names")
    found: dict[str, list[Sample]] = defaultdict(list)
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                found[sample.name].append(sample)
    except Exception as error:  # noqa: BLE001  # the parser has many ways to fail, none documented
        raise EngineError(
            f"the metrics page is not in Prometheus' text format ({type(error).__name__})"
        ) from None
    return found


def _sound(sample: Sample) -> bool:
    return math.isfinite(sample.value) and 0 <= sample.value <= _HIGHEST


def _first(samples: Iterable[Sample]) -> float | None:
    return next((sample.value for sample in samples if _sound(sample)), None)


def _value(field: str, names: Names, samples: Samples) -> float | int | None:
    for name in names.fields[field]:
        found = [
            sample.value
            for sample in samples.get(name, ())
            if _sound(sample) and names.counts(sample.labels)
        ]
        if found:
            total = math.fsum(found)
            if field == "kv_usage":
                return min(1.0, total / len(found))
            return int(total) if field in _WHOLE else total
    return None


def _vllm_capacity(samples: Samples) -> int | None:
    """Tokens of all engines that the server runs."""
    total = 0
    for sample in samples.get(VLLM_CACHE, ()):
        blocks, size = (sample.labels.get(key, "") for key in ("num_gpu_blocks", "block_size"))
        if blocks.isdecimal() and size.isdecimal() and len(blocks) < 10 and len(size) < 10:
            total += int(blocks) * int(size)
    return total or None


def _vllm_adapters(samples: Samples) -> tuple[str, ...] | None:
    """The adapters that ran last, as many as there are places for them.

    The metric names those that have requests now, and its value is when: its older series tell
    which ran before, and an adapter stays loaded until another needs its place.
    """
    series = [sample for sample in samples.get(VLLM_ADAPTERS, ()) if _sound(sample)]
    if not series:
        return None
    found: dict[str, None] = {}
    places = 1
    for sample in sorted(series, key=lambda sample: -sample.value):
        labels = sample.labels
        most = labels.get("max_lora", "")
        if most.isdecimal() and len(most) < 5:
            places = max(places, int(most))
        for key in ("running_lora_adapters", "waiting_lora_adapters"):
            found |= dict.fromkeys(filter(None, map(str.strip, labels.get(key, "").split(","))))
    return tuple(found)[: min(places, _MOST_ADAPTERS)]


def _computed(state: EngineState) -> float | None:
    """Prompt tokens that were not found in the cache, where the engine does not count them."""
    prompt, queried, hits = state.prompt_tokens, state.queried_tokens, state.hit_tokens
    if prompt is None or not queried or hits is None:
        return None
    return prompt * (1 - min(1.0, hits / queried))
