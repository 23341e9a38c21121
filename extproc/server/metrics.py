"""Prometheus metrics: most are read from the router's counts when they are scraped."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from types import MappingProxyType

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from extproc import __version__
from extproc.affinity.store import ReplicaState, StoreStatus
from extproc.replicas.health import Fitness, ReplicaHealth
from extproc.replicas.watch import SourceStatus, State
from extproc.server.durations import SHORT, Durations
from extproc.server.engine_metrics import EngineMetrics, PoolEngines
from extproc.server.families import counter, durations, gauge
from extproc.server.stats import PoolStats, Stats

PoolStates = Mapping[str, Mapping[str, ReplicaState]]
PoolHealth = Mapping[str, Mapping[str, ReplicaHealth]]


class Metrics:
    """All metrics of one process, in a registry of its own.

    Args:
        stats: The router's counts.
        status: The store's counters and health.
        sources: Pool to the state of its discovery source.
    """

    def __init__(
        self,
        stats: Stats,
        status: Callable[[], StoreStatus],
        sources: Callable[[], Mapping[str, SourceStatus]] = dict,
    ) -> None:
        self.registry = CollectorRegistry()
        self.decision_seconds = Durations(
            "prefix_extproc_decision_seconds",
            "Time from the last byte that a decision needed to the decision.",
            SHORT,
        )
        self._replicas = _Replicas(stats)
        self._engines = EngineMetrics(stats)
        for collector in (
            self.decision_seconds,
            stats.store_seconds,
            _Router(stats),
            _Store(status),
            _Sources(sources, stats),
            self._replicas,
            self._engines,
        ):
            self.registry.register(collector)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)

    def render(
        self,
        pools: PoolStates,
        health: PoolHealth = MappingProxyType({}),
        engines: PoolEngines = MappingProxyType({}),
    ) -> bytes:
        """The text format of Prometheus.

        Args:
            pools: Pool to replica to state, for the series of replicas.
            health: Pool to replica to health.
            engines: Pool to replica to what its engine tells.
        """
        self._replicas.pools = pools
        self._replicas.health = health
        self._engines.reports = engines
        return generate_latest(self.registry)


_BY_POOL: tuple[tuple[str, str, Callable[[PoolStats], float]], ...] = (
    ("prompt_tokens", "Estimated tokens of prompts.", lambda pool: pool.total_tokens),
    (
        "matched_tokens",
        "Tokens of prompts that the chosen replica held already.",
        lambda pool: pool.matched_tokens,
    ),
    (
        "best_tokens",
        "Tokens of prompts that some replica held already.",
        lambda pool: pool.best_tokens,
    ),
    (
        "unshared_decisions",
        "Decisions without the other routers' state.",
        lambda pool: pool.unshared,
    ),
    (
        "shadow_requests",
        "Requests that shadow mode compared.",
        lambda pool: pool.shadow.requests,
    ),
    (
        "shadow_agreed",
        "Requests that Envoy sent where we would have.",
        lambda pool: pool.shadow.agreed,
    ),
    (
        "shadow_prompt_tokens",
        "Tokens of prompts that shadow mode compared.",
        lambda pool: pool.shadow.total_tokens,
    ),
    (
        "shadow_matched_tokens",
        "Tokens that the choices of shadow mode would have found held.",
        lambda pool: pool.shadow.matched_tokens,
    ),
    (
        "shadow_served_tokens",
        "Tokens that the replicas of Envoy's choice did hold.",
        lambda pool: pool.shadow.served_tokens,
    ),
)


class _Router(Collector):
    """The counts of one router."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats, pools = self._stats, self._stats.pools
        yield gauge("info", "Version.", ["version"], [((__version__,), 1)])
        yield gauge("open_streams", "Requests open at this router.", [], [((), stats.open)])
        yield counter("streams", "Requests taken.", [], [((), stats.streams)])
        yield counter("refused", "Requests over `max_streams`.", [], [((), stats.refused)])
        yield counter(
            "decisions",
            "Decisions by reason.",
            ["pool", "reason"],
            [((name, key), n) for name, pool in pools.items() for key, n in pool.reasons.items()],
        )
        yield counter(
            "responses",
            "Responses by who served.",
            ["pool", "outcome"],
            [((name, key), n) for name, pool in pools.items() for key, n in pool.outcomes.items()],
        )
        yield counter(
            "rejected",
            "Requests that were refused, by reason.",
            ["pool", "reason"],
            [((name, key), n) for name, pool in pools.items() for key, n in pool.rejected.items()],
        )
        yield counter(
            "ejections",
            "Ejections of replicas that this router decided on, by fault.",
            ["pool", "fault"],
            [((name, key), n) for name, pool in pools.items() for key, n in pool.ejections.items()],
        )
        yield counter(
            "unreadable",
            "Requests without a (whole) readable prompt, by what was the matter.",
            ["pool", "problem"],
            [((name, key), n) for name, pool in pools.items() for key, n in pool.problems.items()],
        )
        for name, text, read in _BY_POOL:
            rows = [((pool,), read(counts)) for pool, counts in pools.items()]
            yield counter(name, text, ["pool"], rows)
        yield durations(
            "response_start_seconds",
            "Time from the decision to the start of a good response.",
            [(name, pool.start_seconds) for name, pool in pools.items()],
        )
        yield durations(
            "response_seconds",
            "Time from the decision to the end of a good response.",
            [(name, pool.response_seconds) for name, pool in pools.items()],
        )
        yield gauge(
            "prefill_rate",
            "Tokens per second at which replicas prefill, as learned.",
            ["pool"],
            [((name,), pool.prefill_rate) for name, pool in pools.items()],
        )
        for name, text, label, counts in (
            ("setting_errors", "Requests with a bad pool setting.", "key", stats.setting_errors),
            (
                "limit_reached",
                "How often a limit held something back, by its setting.",
                "setting",
                stats.limits.reached,
            ),
            ("violations", "Messages against the protocol.", "what", stats.violations),
            ("errors", "Faults of this server.", "type", stats.errors),
            (
                "decision_log_lines",
                "Lines of the decision log, by what became of them.",
                "result",
                stats.log_lines,
            ),
        ):
            yield counter(name, text, [label], [((key,), n) for key, n in counts.items()])


class _Store(Collector):
    """The health of the store."""

    def __init__(self, status: Callable[[], StoreStatus]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        status = self._status()
        for name, text, number in (
            ("shared", "Whether all routers' state is used now.", float(status.shared)),
            (
                "breaker_open",
                "Whether calls to the store are held back.",
                float(status.breaker != "closed"),
            ),
            ("entries", "Checkpoints in this process's memory.", status.entries),
        ):
            yield gauge(f"store_{name}", text, ["kind"], [((status.kind,), number)])
        for name, text, number in (
            ("fallbacks", "Decisions from memory because the store failed.", status.fallbacks),
            ("replayed", "Affinities written again after an outage.", status.replayed),
            ("reclaimed", "Reservations of dead routers taken back.", status.reclaimed),
            ("unwritten", "Keys over `x-prefix-max-keys`.", status.unwritten),
        ):
            yield counter(f"store_{name}", text, ["kind"], [((status.kind,), number)])
        yield counter(
            "store_failures",
            "Failed calls to the store.",
            ["kind", "failure"],
            [((status.kind, failure), n) for failure, n in status.failures.items()],
        )


class _Sources(Collector):
    """How the discovery sources are doing."""

    def __init__(self, sources: Callable[[], Mapping[str, SourceStatus]], stats: Stats) -> None:
        self._sources = sources
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        found = [
            ((pool, status.kind), status)
            for pool, status in islice(self._sources().items(), self._stats.most_pools)
        ]
        labels = ["pool", "source"]
        yield gauge(
            "discovery_up",
            "Whether a discovery source answers.",
            labels,
            [(key, float(status.state is State.OK)) for key, status in found],
        )
        yield gauge(
            "discovery_age_seconds",
            "Time since a discovery source's last answer.",
            labels,
            [(key, status.age_s) for key, status in found if status.age_s is not None],
        )
        yield gauge(
            "discovery_replicas",
            "Replicas that a discovery source told last.",
            labels,
            [(key, len(status.endpoints)) for key, status in found],
        )
        yield counter(
            "discovery_failures",
            "Outages of a discovery source.",
            labels,
            [(key, status.failures) for key, status in found],
        )


class _Replicas(Collector):
    """The replicas as the store last had them."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.pools: PoolStates = {}
        self.health: PoolHealth = {}

    def collect(self) -> Iterator[Metric]:
        rows = self._stats.first_replicas(
            ((pool, replica), state)
            for pool, replicas in self.pools.items()
            for replica, state in replicas.items()
        )
        labels = ["pool", "replica"]
        yield gauge(
            "replica_in_flight",
            "Requests open at a replica, over all routers.",
            labels,
            [(key, state.in_flight) for key, state in rows],
        )
        yield gauge(
            "replica_pending_tokens",
            "Reserved tokens that a replica has not prefilled yet.",
            labels,
            [(key, state.pending_tokens) for key, state in rows],
        )
        states = self._stats.first_replicas(
            ((pool, replica), state)
            for pool, replicas in self.health.items()
            for replica, state in replicas.items()
        )
        yield gauge(
            "replica_weight",
            "Share of a full load that a replica is given: 0 while it is ejected.",
            labels,
            [
                (key, 0.0 if state.fitness is Fitness.EJECTED else state.weight_milli / 1000)
                for key, state in states
            ],
        )
