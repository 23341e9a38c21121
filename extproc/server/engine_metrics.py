"""The metrics by which predictions are held against what the engines counted."""

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extproc.replicas.engine.report import Report
from extproc.server.families import counter, gauge
from extproc.server.stats import ReplicaStats, Stats

PoolEngines = Mapping[str, Mapping[str, Report]]

_LABELS = ("pool", "replica")

_PREDICTED: tuple[tuple[str, str, Callable[[ReplicaStats], float]], ...] = (
    ("prompt_tokens", "Estimated tokens of prompts that a replica served.", lambda it: it.total),
    (
        "matched_tokens",
        "Of these, tokens that the replica was predicted to hold.",
        lambda it: it.matched,
    ),
    ("passed_over", "Choices of a replica that Envoy did not follow.", lambda it: it.passed_over),
)

_GAUGES: tuple[tuple[str, str, Callable[[Report], float]], ...] = (
    ("running", "Requests in the batch of a replica's engine.", lambda it: it.running),
    ("waiting", "Requests that a replica's engine has queued.", lambda it: it.waiting),
    (
        "foreign",
        "Requests at a replica's engine that did not come through the routers.",
        lambda it: it.foreign_running + it.foreign_waiting,
    ),
    (
        "kv_usage",
        "Share of a replica's KV cache that running requests hold.",
        lambda it: it.kv_permille / 1000,
    ),
    (
        "capacity_tokens",
        "Tokens that a replica's KV cache has room for.",
        lambda it: it.capacity_tokens,
    ),
)

_COUNTERS: tuple[tuple[str, str, Callable[[Report], float]], ...] = (
    (
        "queried_tokens",
        "Tokens that a replica's engine looked up in its prefix cache.",
        lambda it: it.queried_tokens,
    ),
    ("hit_tokens", "Of these, tokens that it found.", lambda it: it.hit_tokens),
)


class EngineMetrics(Collector):
    """What was predicted for each replica, and what its engine tells.

    Args:
        stats: The router's counts.

    Attributes:
        reports: Pool to replica to what its engine told last.
    """

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.reports: PoolEngines = MappingProxyType({})

    def collect(self) -> Iterator[Metric]:
        """All families."""
        counts = self._stats.first_replicas(
            ((pool, replica), found)
            for pool, stats in self._stats.pools.items()
            for replica, found in stats.replicas.items()
        )
        for name, text, read in _PREDICTED:
            rows = [(key, read(found)) for key, found in counts]
            yield counter(f"replica_{name}", text, _LABELS, rows)
        told = self._stats.first_replicas(
            ((pool, replica), report)
            for pool, reports in self.reports.items()
            for replica, report in reports.items()
        )
        up = [(key, float(not report.error)) for key, report in told]
        yield gauge("engine_up", "Whether a replica's engine could be asked.", _LABELS, up)
        well = [(key, report) for key, report in told if not report.error]
        for name, text, tell in _GAUGES:
            yield gauge(f"engine_{name}", text, _LABELS, [(key, tell(it)) for key, it in well])
        for name, text, tell in _COUNTERS:
            yield counter(f"engine_{name}", text, _LABELS, [(key, tell(it)) for key, it in well])
