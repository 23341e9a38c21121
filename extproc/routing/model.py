"""The vocabulary of a routing decision."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple


class Strategy(StrEnum):
    """How a replica is chosen (names as in Amazon SageMaker's ``RoutingStrategy``)."""

    KV_AWARE = "kv_aware"
    PREFIX_AWARE = "prefix_aware"
    LEAST_OUTSTANDING_REQUESTS = "least_outstanding_requests"
    RANDOM = "random"
    ROUND_ROBIN = "round_robin"


SHADOW = "~shadow"
"""Ending of the pool in which shadow mode's choices count as served."""


class Mode(StrEnum):
    """Whether decisions take effect."""

    ENFORCE = "enforce"
    SHADOW = "shadow"


class Protocol(StrEnum):
    """Who answers where there is nobody to choose."""

    ENVOY = "envoy"
    """Envoy, by its own policy."""
    EPP = "epp"
    """The router, with 503 or 429. Source: the endpoint-picker protocol of the Gateway API
    Inference Extension (proposal 004)."""


class Reason(StrEnum):
    """Why a decision came out as it did. A label of the metrics and a field of access logs."""

    MATCHED = "matched"
    """The chosen replica holds at least one checkpoint of the prompt."""
    SPILLED = "spilled"
    """Some replica holds more of the prompt, but was too busy."""
    COLD = "cold"
    """No candidate holds any of the prompt."""
    SESSION = "session"
    """The chosen replica served the request's session last, and that outweighed the prompt."""
    NO_PROMPT = "no_prompt"
    """The request has no readable prompt: routed by load."""
    BASELINE = "baseline"
    """The strategy does not look at prompts."""
    OBSERVING = "observing"
    """The pool is still being learned: the choice was Envoy's."""
    NO_REPLICAS = "no_replicas"
    """The pool has no known replica."""
    NO_SUBSET = "no_subset"
    """The gateway's subset hint names nobody who may be chosen."""
    SHED = "shed"
    """Every candidate has as many requests in flight as the pool allows."""
    FALLBACK = "fallback"
    """Our own fault (an exception, a full table …): the choice was Envoy's."""


@dataclass(frozen=True, slots=True)
class Policy:
    """A pool's strategy and its numbers, all integers so that Lua and Python agree.

    Attributes:
        strategy: How to choose.
        uncached_milli: Cost of one uncached token, in thousandths of a pending token.
        decode_tokens: Cost of one request in flight, in pending tokens.
        prefill_rate: Tokens per second at which a replica's pending tokens drain.
        threshold: ``prefix_aware``: requests in flight at which a replica is full.
        ttl_s: Seconds without use after which affinity ends.
        cache_tokens: Tokens that a replica's cache holds: so many later a prompt counts as
            forgotten. 0 where that is not known.
        session_tokens: Pending tokens by which the replica that served a session last is preferred.
        max_keys: New keys of affinity that may be written in ``ttl_s``; 0 for no limit.
    """

    strategy: Strategy = Strategy.KV_AWARE
    uncached_milli: int = 2500
    decode_tokens: int = 64
    prefill_rate: int = 24_000
    threshold: int = 32
    ttl_s: int = 600
    cache_tokens: int = 0
    session_tokens: int = 1024
    max_keys: int = 1_000_000


class Weighed(NamedTuple):
    """What a decision knew of one candidate.

    Attributes:
        replica: Its canonical address.
        in_flight: Its open requests, as they weighed on it: a replica that warms up counts more.
        pending_tokens: Its tokens to prefill, likewise.
        matched_tokens: Tokens of the prompt that it holds.
        cost: What the strategy compared; lowest wins. Thousandths of a token under ``kv_aware``,
            requests under ``least_outstanding_requests``, a rank under ``prefix_aware``. None where
            nothing was compared.
    """

    replica: str
    in_flight: int
    pending_tokens: int
    matched_tokens: int
    cost: int | None


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of one reservation.

    Attributes:
        ranked: Replicas in order of preference, at most three; empty leaves the choice to Envoy.
        reason: Why.
        matched_tokens: Tokens of the prompt that the first choice holds.
        best_tokens: The most that any candidate holds.
        total_tokens: Tokens of the prompt.
        shared: Whether the state of all routers was used, or only this router's own.
        weighed: Every candidate, in the order of ties, where the reservation asks for it.
    """

    ranked: Sequence[str]
    reason: Reason
    matched_tokens: int = 0
    best_tokens: int = 0
    total_tokens: int = 0
    shared: bool = True
    weighed: Sequence[Weighed] = ()
