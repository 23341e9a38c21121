"""What this router counts, in plain numbers: the pages and the metrics read them."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TypeVar

from extproc.limits import Limits
from extproc.pool_settings import PoolSettings
from extproc.prompt.model import Unreadable
from extproc.replicas.faults import Fault
from extproc.routing import Decision, Reason
from extproc.server.durations import LONG, SHORT, Buckets, Durations
from extproc.server.trail import Trail

MAX_POOLS = 100
OTHER = "other"
"""Where pools beyond ``Stats.most_pools`` are counted."""

MAX_REPLICAS = 1000

_MAX_ROUTES = 50

_Row = TypeVar("_Row")


class Outcome(StrEnum):
    """Who served a request, seen from the decision."""

    FIRST = "first"
    """Our first choice."""
    RETRIED = "retried"
    """Somebody else, after the first choice was tried."""
    ELSEWHERE = "elsewhere"
    """Somebody else at the first attempt: Envoy passed over our choice."""
    ENVOY = "envoy"
    """Somebody of Envoy's own choice, as we had left it."""
    NOBODY = "nobody"
    """No replica: Envoy answered itself, or does not tell ``upstream.address``."""


@dataclass(slots=True)
class ShadowStats:
    """What ``shadow`` mode compares, over requests that were decided and served.

    Attributes:
        requests: How many.
        agreed: Where Envoy picked what we would have chosen.
        total_tokens: Tokens of their prompts.
        matched_tokens: Tokens that our choices would have held, had they been followed.
        served_tokens: Tokens that the replicas which served did hold.
    """

    requests: int = 0
    agreed: int = 0
    total_tokens: int = 0
    matched_tokens: int = 0
    served_tokens: int = 0

    def compare(self, decision: Decision, served: Decision) -> None:
        """Count one request.

        Args:
            decision: What we would have chosen, by the ledger in which our choices count.
            served: What was done, by the ledger of what really happened.
        """
        self.requests += 1
        self.agreed += decision.ranked[:1] == served.ranked[:1]
        self.total_tokens += served.total_tokens
        self.matched_tokens += decision.matched_tokens
        self.served_tokens += served.matched_tokens


@dataclass(slots=True)
class ReplicaStats:
    """What was predicted of one replica, in estimated tokens.

    Attributes:
        total: Of prompts that it served.
        matched: Of these, predicted to be in its cache.
        passed_over: Choices of it that Envoy did not follow.
    """

    total: int = 0
    matched: int = 0
    passed_over: int = 0


@dataclass(slots=True)
class PoolStats:
    """Counts of one pool since start.

    Attributes:
        reasons: Decisions by reason.
        problems: Requests without a (whole) readable prompt, by what was the matter.
        outcomes: Served requests by who served.
        rejected: Requests that were refused, by reason.
        ejections: Ejections of replicas that this router decided on, by fault.
        total_tokens: Tokens of the prompts that were decided on.
        matched_tokens: Tokens that the chosen replicas held.
        best_tokens: The most that any candidate held.
        prefill_rate: Tokens per second at which the replicas prefill, as far as learned; 0 before
            the first decision.
        unshared: Decisions made without the other routers' state.
        shadow: What ``shadow`` mode compared.
        start_seconds: Time from decisions to the start of good responses.
        response_seconds: Time from decisions to the end of good responses.
        settings: The settings of the last request.
        routes: The settings of each route's last request, of the first routes that came.
        source: Where the last request's candidates came from.
        replicas: By address, at most ``MAX_REPLICAS``.
    """

    reasons: Counter[Reason] = field(default_factory=Counter)
    problems: Counter[Unreadable] = field(default_factory=Counter)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    ejections: Counter[Fault] = field(default_factory=Counter)
    rejected: Counter[Reason] = field(default_factory=Counter)
    total_tokens: int = 0
    matched_tokens: int = 0
    best_tokens: int = 0
    prefill_rate: int = 0
    unshared: int = 0
    shadow: ShadowStats = field(default_factory=ShadowStats)
    start_seconds: Buckets = field(default_factory=lambda: Buckets(LONG))
    response_seconds: Buckets = field(default_factory=lambda: Buckets(LONG))
    settings: PoolSettings = field(default_factory=PoolSettings)
    routes: dict[str, PoolSettings] = field(default_factory=dict)
    source: str = ""
    replicas: dict[str, ReplicaStats] = field(default_factory=dict)

    def replica(self, address: str) -> ReplicaStats:
        """The counts of a replica; those of too many go nowhere."""
        found = self.replicas.get(address)
        if found is None:
            found = ReplicaStats()
            if len(self.replicas) < MAX_REPLICAS:
                self.replicas[address] = found
        return found

    def served(self, address: str, decision: Decision) -> None:
        """Count a prompt that a replica took in, by what was known of that replica."""
        replica = self.replica(address)
        replica.total += decision.total_tokens
        replica.matched += decision.matched_tokens

    def asked(self, route: str, settings: PoolSettings) -> None:
        """Note the settings that a request of a route came with."""
        self.settings = settings
        if route in self.routes or len(self.routes) < _MAX_ROUTES:
            self.routes[route] = settings

    def decided(self, decision: Decision) -> None:
        """Count a decision."""
        self.reasons[decision.reason] += 1
        self.total_tokens += decision.total_tokens
        self.matched_tokens += decision.matched_tokens
        self.best_tokens += decision.best_tokens
        self.unshared += not decision.shared

    def refused(self, decision: Decision) -> None:
        """Count a decision by which a request was refused: its prompt is nobody's."""
        self.reasons[decision.reason] += 1
        self.rejected[decision.reason] += 1
        self.unshared += not decision.shared


def _store_seconds() -> Durations:
    text = "Time that a decision waited for the store, or for this process's memory in its stead."
    return Durations("prefix_extproc_store_seconds", text, SHORT)


@dataclass(slots=True)
class Stats:
    """Everything that a router counts.

    Attributes:
        pools: By pool name, at most ``most_pools`` and ``OTHER``.
        most_pools: Pools that are counted apart.
        most_replicas: Replicas that get series of their own, over all pools.
        setting_errors: Requests that brought a bad setting, by metadata key; unknown keys as one.
        violations: Messages that the protocol does not allow, by what was wrong.
        errors: Faults of our own, by exception type.
        open: Streams open now.
        streams: Streams since start, but for those refused.
        refused: Streams refused because too many were open.
        limits: Limits that were reached.
        log_lines: Lines of the decision log, by what became of them.
        store_seconds: How long decisions waited for the store.
        trail: The last decisions.
    """

    pools: dict[str, PoolStats] = field(default_factory=dict)
    most_pools: int = MAX_POOLS
    most_replicas: int = MAX_REPLICAS
    setting_errors: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    open: int = 0
    streams: int = 0
    refused: int = 0
    limits: Limits = field(default_factory=Limits)
    log_lines: Counter[str] = field(default_factory=Counter)
    store_seconds: Durations = field(default_factory=_store_seconds)
    trail: Trail = field(default_factory=Trail)

    def pool(self, name: str) -> PoolStats:
        """The counts of a pool; from one more than ``most_pools`` on all share one."""
        stats = self.pools.get(name)
        if stats is None:
            if len(self.pools) >= self.most_pools:
                name = OTHER
                self.limits.hit("--metric-pools", f"further pools are counted as {OTHER}")
            stats = self.pools.setdefault(name, PoolStats())
        return stats

    def first_replicas(self, rows: Iterable[_Row]) -> list[_Row]:
        """As many rows, one a replica, as may become series."""
        found = list(islice(rows, self.most_replicas + 1))
        if len(found) > self.most_replicas:
            self.limits.hit("--metric-replicas", "further replicas have no metrics of their own")
        return found[: self.most_replicas]
