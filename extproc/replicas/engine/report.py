"""What a router found out about a replica's engine, as it stands on the pool's notice board."""

import json
from dataclasses import asdict, dataclass, fields
from typing import Any

_HIGHEST = 10**15
_MOST_NAMES = 64
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Report:
    """One replica's engine, in few numbers. 0 and None stand for what it does not tell.

    Attributes:
        engine: Which engine; empty where it could not be asked.
        error: Why it could not; empty where it was.
        running: Requests in its batch.
        waiting: Requests that it has queued.
        kv_permille: Thousandths of its KV cache that running requests hold.
        foreign_running: Of ``running``, those that did not come through the routers.
        foreign_waiting: Of ``waiting``, the same.
        request_tokens: Uncached prompt tokens of a request, in the mean.
        capacity_tokens: Tokens that its KV cache has room for.
        memory_tokens: Uncached prompt tokens that it takes in before it forgets the first of them;
            less than its capacity, since what it generates takes room, too.
        drain_rate: Tokens per second that it was seen to prefill while requests waited.
        least_rate: Tokens per second that it prefills at least.
        queried_tokens: Prompt tokens that it looked up in its prefix cache, since its start.
        hit_tokens: Those of them that it found there.
        adapters: LoRA adapters that it has loaded; None where it does not tell.
        events: KV cache events that were taken in.
        evicted_tokens: Tokens that it is known to have forgotten, by these events.
    """

    engine: str = ""
    error: str = ""
    running: int = 0
    waiting: int = 0
    kv_permille: int = 0
    foreign_running: int = 0
    foreign_waiting: int = 0
    request_tokens: int = 0
    capacity_tokens: int = 0
    memory_tokens: int = 0
    drain_rate: int = 0
    least_rate: int = 0
    queried_tokens: int = 0
    hit_tokens: int = 0
    adapters: tuple[str, ...] | None = None
    events: int = 0
    evicted_tokens: int = 0

    def text(self) -> str:
        """As it stands on the board: JSON of what is not the default."""
        return json.dumps(
            {name: value for name, value in asdict(self).items() if value != _DEFAULTS[name]},
            separators=(",", ":"),
        )


_DEFAULTS: dict[str, Any] = {each.name: each.default for each in fields(Report)}


def report_of(text: str) -> Report:
    """Read a text from the board. What another release wrote differently counts as not told."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError):
        return Report()
    if not isinstance(values, dict):
        return Report()
    return Report(
        **{
            name: kept
            for name, value in values.items()
            if name in _DEFAULTS and (kept := _kept(_DEFAULTS[name], value)) is not None
        }
    )


def _kept(default: Any, value: Any) -> Any:
    if isinstance(default, str):
        return value[:_LONGEST_NAME] if isinstance(value, str) else None
    if isinstance(default, int):
        whole = isinstance(value, int) and not isinstance(value, bool)
        return value if whole and 0 <= value <= _HIGHEST else None
    if not isinstance(value, list):
        return None
    names = [each for each in value[:_MOST_NAMES] if isinstance(each, str)]
    return tuple(name for name in names if len(name) <= _LONGEST_NAME)
