"""Rounds of one case and way, pooled into one row."""

import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from extproc.lab.overhead.cases import Case
from extproc.lab.overhead.measure import Sample
from extproc.lab.overhead.stack import ALONE, FLOOR

_MILLI, _MICRO = 1e3, 1e6


class Spread(NamedTuple):
    """A figure over all rounds.

    Attributes:
        median: Of the rounds.
        low: The least.
        high: The most.
    """

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of at least one value."""
        ordered = sorted(values)
        return cls(statistics.median(ordered), ordered[0], ordered[-1])


@dataclass(frozen=True, slots=True)
class OverheadRow:
    """What one way costs in one case.

    Attributes:
        case: What was sent.
        way: The name of the way.
        rounds: How often.
        requests: In each round.
        p50_ms: Median time of an answer.
        added_p50_ms: What the way adds to the median of Envoy alone in the same round.
        added_p90_ms: The same of the time within which 90 % were answered.
        added_p99_ms: The same of 99 %.
        router_us: Processor time per request of who decides.
        to_floor: The same, as a multiple of the floor's in the same round.
        envoy_us: Processor time per request of Envoy.
        store_us: Processor time per request of the store's process.
        requests_per_s: Answered, all parts and the client on this machine.
        requests_per_core: That one processor would decide on if it did nothing else; 0 where
            nobody decides.
        memory_mb: Resident memory of who decides, in 1,000,000 bytes.
    """

    case: Case
    way: str
    rounds: int
    requests: int
    p50_ms: Spread
    added_p50_ms: Spread
    added_p90_ms: Spread
    added_p99_ms: Spread
    router_us: Spread
    to_floor: Spread
    envoy_us: Spread
    store_us: Spread
    requests_per_s: Spread
    requests_per_core: float
    memory_mb: Spread

    def as_json(self) -> dict[str, Any]:
        """Flat: each spread as its median, and with ``_low`` and ``_high`` behind its name."""
        flat: dict[str, Any] = {"strategy": self.way, **asdict(self.case)}
        for name in ("rounds", "requests", "requests_per_core"):
            flat[name] = getattr(self, name)
        for name in self.__slots__:
            value = getattr(self, name)
            if isinstance(value, Spread):
                flat |= {name: value.median, f"{name}_low": value.low, f"{name}_high": value.high}
        return flat


def pool(samples: Sequence[Sample]) -> list[OverheadRow]:
    """One row for each case and way, in the order of the samples' first round.

    Args:
        samples: Of whole rounds: every case through every way, Envoy alone and the floor among
            them.
    """
    rounds: dict[Case, dict[str, list[Sample]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        rounds[sample.case][sample.way].append(sample)
    names = [ALONE, FLOOR]
    names += [name for name in dict.fromkeys(s.way for s in samples) if name not in names]
    return [
        _row(ways[name], ways[ALONE], ways[FLOOR]) for ways in rounds.values() for name in names
    ]


def _row(own: Sequence[Sample], alone: Sequence[Sample], floor: Sequence[Sample]) -> OverheadRow:
    def per_request(field: str) -> list[float]:
        return [getattr(sample, field) / sample.requests * _MICRO for sample in own]

    def added(field: str) -> Spread:
        pairs = zip(own, alone, strict=True)
        return Spread.of((getattr(a, field) - getattr(b, field)) * _MILLI for a, b in pairs)

    router = per_request("router_s")
    return OverheadRow(
        case=own[0].case,
        way=own[0].way,
        rounds=len(own),
        requests=own[0].requests,
        p50_ms=Spread.of(sample.p50_s * _MILLI for sample in own),
        added_p50_ms=added("p50_s"),
        added_p90_ms=added("p90_s"),
        added_p99_ms=added("p99_s"),
        router_us=Spread.of(router),
        to_floor=Spread.of(
            a.router_s / b.router_s for a, b in zip(own, floor, strict=True) if b.router_s
        ),
        envoy_us=Spread.of(per_request("envoy_s")),
        store_us=Spread.of(per_request("store_s")),
        requests_per_s=Spread.of(sample.requests / sample.wall_s for sample in own),
        requests_per_core=_MICRO / statistics.median(router) if any(router) else 0.0,
        memory_mb=Spread.of(sample.memory_bytes / 1e6 for sample in own),
    )
