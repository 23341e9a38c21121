"""The interface of an affinity store, and the values that cross it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extproc.prompt.model import Fingerprint
from extproc.routing.model import Decision, Policy
from extproc.routing.standing import Standings


class StoreError(Exception):
    """The store could not answer in time or at all. The message names no credentials."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """A request that wants a replica.

    Attributes:
        id: Unique over all routers; reserving the same id again changes nothing and answers with
            the replica that it has.
        pool: The pool's name.
        candidates: Canonical addresses that may be chosen, in the order in which ties are broken.
        policy: How to choose.
        fingerprint: The prompt's checkpoints, or None where there is no readable prompt.
        matched_only: Choose (and hold) only a replica that holds some of the prompt; else answer
            with nobody.
        hold: Whether the choice counts as in flight until ``release``; without it only the
            affinity is recorded.
        standings: How candidates stand beyond what the store knows of them.
        session: 16 bytes for the request's session, under which the store keeps who served it last;
            empty for none.
        max_in_flight: Requests in flight at which a candidate is not chosen; 0 for no limit. Where
            all are there, the answer is nobody.
        explain: Whether the decision tells what was known of every candidate.
    """

    id: str
    pool: str
    candidates: Sequence[str]
    policy: Policy
    fingerprint: Fingerprint | None = None
    matched_only: bool = False
    hold: bool = True
    standings: Standings = field(default_factory=dict)
    session: bytes = b""
    max_in_flight: int = 0
    explain: bool = False


def moved(reservation: Reservation, replica: str) -> Reservation:
    """The same reservation, bound to the replica that really served, however full that is."""
    return Reservation(
        reservation.id,
        reservation.pool,
        (replica,),
        reservation.policy,
        reservation.fingerprint,
        hold=reservation.hold,
        session=reservation.session,
    )


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """How one replica of a pool fares, over all routers that share the store.

    Attributes:
        in_flight: Open requests.
        pending_tokens: Reserved tokens that are not drained yet.
        epoch: Unix seconds before which its affinity is void; 0 where it never restarted.
        incarnation: What it was last told to run as; empty where unknown.
    """

    in_flight: int = 0
    pending_tokens: int = 0
    epoch: int = 0
    incarnation: str = ""


@dataclass(slots=True)
class StoreStatus:
    """Counters and state for metrics and health pages, all since start.

    Attributes:
        kind: ``memory`` or ``redis``.
        shared: Whether decisions are made from the state of all routers now.
        detail: One line for a human, without credentials.
        failures: Failed calls by kind (``timeout``, ``connection``, ``error``).
        fallbacks: Decisions made from this router's own memory because the store failed.
        replayed: Affinities written again after an outage.
        reclaimed: Reservations of dead routers taken back.
        breaker: ``closed``, ``open`` or ``half_open``.
        entries: Checkpoints held in this router's memory.
        unwritten: Keys that were not written because of ``Policy.max_keys``.
    """

    kind: str
    shared: bool = True
    detail: str = ""
    failures: dict[str, int] = field(default_factory=dict)
    fallbacks: int = 0
    replayed: int = 0
    reclaimed: int = 0
    breaker: str = "closed"
    entries: int = 0
    unwritten: int = 0


class AffinityStore(Protocol):
    """Which replica has seen which checkpoint, how busy each is, and who is in a pool.

    ``served`` and ``release`` never block and never fail: they are remembered, sent at once in the
    background, and repaired by the store if they are lost. Only ``reserve`` is on a request's path.
    """

    async def start(self) -> None:
        """Begin background work. A store that cannot be reached is no error."""

    async def close(self) -> None:
        """Send what is still to be sent, within a second, and let go of everything."""

    async def reserve(self, reservation: Reservation) -> Decision:
        """Match, choose and record in one step.

        Raises:
            StoreError: Only from stores without a fallback of their own.
        """

    async def weigh(self, reservation: Reservation) -> Decision:
        """What ``reserve`` would answer now, explained; nothing is booked or remembered.

        As before any decision, candidates become members.

        Raises:
            StoreError: As ``reserve``.
        """

    def served(self, reservation_id: str, replica: str, *, ok: bool) -> None:
        """Tell who really served; unknown ids are ignored.

        Args:
            reservation_id: The id of a held reservation.
            replica: Who served, canonical; empty where nobody did.
            ok: Whether the replica took the prompt in; if not, what this reservation added to
                its affinity is withdrawn.
        """

    def release(self, reservation_id: str) -> None:
        """End a reservation. Idempotent; unknown ids are ignored."""

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        """Add members that were seen serving, for all routers."""

    def leave(self, pool: str, replica: str) -> None:
        """Remove a member, for all routers. Its affinity is void if it ever comes back."""

    def members(self, pool: str) -> Sequence[str]:
        """The pool's members as last heard (at most a few seconds old); sorted."""

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """Void a replica's older affinity if ``incarnation`` differs from the last one told."""

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """Put a short text on a pool's notice board, for all routers.

        Args:
            pool: The pool's name.
            topic: What it is about; a new text takes the former one's place.
            text: What it says; an empty one takes the former down.
            ttl_s: Seconds for which it holds, by the store's clock.
        """

    def board(self, pool: str) -> Mapping[str, str]:
        """Topic to text: the other routers' at most a few seconds old, this router's own at once.

        Cheap enough for every request; the same mapping again while nothing changes.
        """

    def elected(self, pool: str, job: str) -> bool:
        """Whether this router is the one, of all that live, to do a job for the pool.

        For a moment after routers come or go it may be two or none.
        """

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """All members of a pool and how they fare.

        Raises:
            StoreError: If the store cannot be reached.
        """

    def status(self) -> StoreStatus:
        """Counters and health, cheap enough for every scrape."""
