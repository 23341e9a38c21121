"""Which replicas of a pool are fit for requests, learned from how they answer.

A replica that fails several times in a row is ejected for a while; each further ejection lasts
twice as long, and time in health takes that back. Who comes, or comes back, carries little at first
and more as it warms up. What one router finds out it puts on the pool's notice board, so that the
others know: a notice is there for as long as the ejection lasts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from time import monotonic
from typing import NamedTuple, Protocol

from extproc.replicas.faults import Fault
from extproc.routing import FULL, Standing

TOPIC = "ejected/"
"""What the topics of our notices begin with; the replica's address follows."""

_FULL = FULL.weight_milli
_COLDEST_MILLI = 100
"""The weight with which warming up begins, and that of a failing replica that is still needed."""

_LONGEST_DOUBLINGS = 5
_NEVER = float("-inf")
_LOOK_EVERY_S = 1.0


class HealthPolicy(NamedTuple):
    """A pool's numbers.

    Attributes:
        eject_after: Failures in a row that eject a replica; 0 for never.
        eject_s: Seconds that the first ejection lasts; each further one twice as long, up to
            32 times. So long in health takes one doubling back, too.
        slow_start_s: Seconds over which a replica warms up; 0 for at once.
        hang_after_s: Seconds without any answer, while others answer, after which a replica that
            has a request counts as hanging; 0 for never.
    """

    eject_after: int = 3
    eject_s: int = 10
    slow_start_s: int = 30
    hang_after_s: int = 60


class Noticeboard(Protocol):
    """The part of an affinity store that routers tell each other by."""

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """Put up a notice, or take it down with an empty text."""

    def board(self, pool: str) -> Mapping[str, str]:
        """Topic to text; the same mapping again while nothing changes."""


class Fitness(StrEnum):
    """What a replica is fit for."""

    HEALTHY = "healthy"
    WARMING = "warming"
    """Carries little yet: it is new, or was ejected until a moment ago."""
    EJECTED = "ejected"
    NEEDED = "needed"
    """It would be ejected, but that would leave less than half of the pool."""


class Ejection(NamedTuple):
    """Why a replica is ejected, and for which time in a row."""

    fault: Fault
    strikes: int


class Fit(NamedTuple):
    """Who may be chosen, and how they stand where they do not stand full."""

    addresses: tuple[str, ...]
    standings: Mapping[str, Standing]


class ReplicaHealth(NamedTuple):
    """One replica's health, for people to read."""

    fitness: Fitness
    weight_milli: int
    ejection: Ejection | None


class _Waiting(NamedTuple):
    address: str
    since_s: float


class _Record:
    """What is known of one replica."""

    __slots__ = (
        "answered_s",
        "ejected_s",
        "failures",
        "recovered_s",
        "seen_s",
        "strikes",
        "waiting",
    )

    def __init__(self) -> None:
        self.seen_s = _NEVER
        self.answered_s = _NEVER
        self.ejected_s = _NEVER
        self.recovered_s = _NEVER
        self.failures = 0
        self.strikes = 0
        self.waiting: dict[str, float] = {}  # request to since when, oldest first

    def strikes_left(self, now_s: float, forgive_s: float) -> int:
        """Ejections in a row, less those that time in health made good."""
        if not self.strikes:
            return 0
        return max(0, self.strikes - int((now_s - self.recovered_s) // forgive_s))


class Health:
    """The health of one pool's replicas.

    Args:
        pool: The pool's name.
        board: Where routers tell each other.
        ejected: Told each ejection that this router decides on.
        clock: Seconds, from any start.
    """

    def __init__(
        self,
        pool: str,
        board: Noticeboard,
        *,
        ejected: Callable[[str, Ejection], None] = lambda _address, _ejection: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self.policy = HealthPolicy()
        self._pool = pool
        self._board = board
        self._on_ejected = ejected
        self._clock = clock
        self._records: dict[str, _Record] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._warming: dict[str, float] = {}  # since when
        self._ejections: dict[str, Ejection] = {}
        self._notices: Mapping[str, str] = {}
        self._addresses: tuple[str, ...] = ()
        self._next_look_s = 0.0
        self._young_until_s = _NEVER

    def fit(self, addresses: tuple[str, ...]) -> Fit:
        """Who of the candidates may be chosen. Never empties the list.

        Args:
            addresses: The candidates, without repeats.
        """
        now_s = self._clock()
        if now_s >= self._next_look_s or self._are_new(addresses):
            self._look(addresses, now_s)
        self._hear(now_s)
        if not self._ejections and not self._warming:
            return Fit(addresses, {})
        out, needed = self._split(addresses)
        standings = {}
        for address in addresses:
            weight = _COLDEST_MILLI if address in needed else self._weight(address, now_s)
            if weight < _FULL:
                standings[address] = Standing(weight)
        return Fit(tuple([each for each in addresses if each not in out]), standings)

    def candidates(self) -> list[str]:
        """All who were candidates lately."""
        return list(self._records)

    def asked(self, request: str, address: str) -> None:
        """Take in that a request goes to a replica."""
        now_s = self._clock()
        self._waiting[request] = _Waiting(address, now_s)
        self._record(address).waiting[request] = now_s

    def ended(self, request: str) -> None:
        """Take in that nobody waits for a request's response any more. Idempotent."""
        waiting = self._waiting.pop(request, None)
        if waiting is not None:
            self._record(waiting.address).waiting.pop(request, None)

    def answered(self, address: str, since_s: float) -> None:
        """Take in an answer that is no failure.

        Args:
            address: Who answered.
            since_s: When it was asked, by the clock.
        """
        record = self._record(address)
        record.answered_s = self._clock()
        record.failures = 0
        ejection = self._ejections.get(address)
        if ejection is None:
            return
        # What was asked before the ejection tells nothing of after it, but that it does not hang.
        if ejection.fault is Fault.HANG or since_s > record.ejected_s:
            self._recover(address)

    def failed(self, address: str, fault: Fault) -> None:
        """Take in a failure."""
        record = self._record(address)
        record.answered_s = self._clock()
        record.failures += 1
        limit = self.policy.eject_after
        on_probation = address in self._warming and record.strikes > 0
        if limit and (record.failures >= limit or on_probation) and address not in self._ejections:
            self._eject(address, fault)

    def checked(self, address: str, *, passed: bool, ttl_s: int) -> None:
        """Take in what came of active checks.

        Args:
            address: Who was checked.
            passed: Whether it is well now; else it is not, and stays out for ``ttl_s``.
            ttl_s: Seconds until the next check has told.
        """
        ejection = self._ejections.get(address)
        if not passed:
            self._eject(address, Fault.CHECK, least_s=ttl_s)
        elif ejection is not None and ejection.fault in _CURED_BY_CHECKS:
            self._recover(address)

    def states(self, addresses: Iterable[str]) -> dict[str, ReplicaHealth]:
        """The health of replicas, for people to read."""
        now_s = self._clock()
        self._hear(now_s)
        everyone = tuple(addresses)
        out, needed = self._split(everyone)
        found = {}
        for address in everyone:
            weight = self._weight(address, now_s)
            if address in out:
                fitness = Fitness.EJECTED
            elif address in needed:
                fitness, weight = Fitness.NEEDED, _COLDEST_MILLI
            else:
                fitness = Fitness.HEALTHY if weight == _FULL else Fitness.WARMING
            found[address] = ReplicaHealth(fitness, weight, self._ejections.get(address))
        return found

    def _record(self, address: str) -> _Record:
        record = self._records.get(address)
        if record is None:
            record = self._records[address] = _Record()
        return record

    def _are_new(self, addresses: tuple[str, ...]) -> bool:
        if addresses == self._addresses:
            return False
        self._addresses = addresses
        return not self._records.keys() >= set(addresses)

    def _split(self, addresses: Sequence[str]) -> tuple[set[str], set[str]]:
        """The ejected, at most half, and those that would be if they were not needed.

        All routers keep the same ones: those with the fewest ejections in a row.
        """
        bad = [each for each in addresses if each in self._ejections]
        bad.sort(key=lambda address: (-self._ejections[address].strikes, address))
        most = len(addresses) // 2
        return set(bad[:most]), set(bad[most:])

    def _weight(self, address: str, now_s: float) -> int:
        since_s = self._warming.get(address)
        if since_s is None:
            return _FULL
        whole = self.policy.slow_start_s
        share = (now_s - since_s) / whole if whole else 1.0
        if share >= 1:
            del self._warming[address]
            return _FULL
        return max(_COLDEST_MILLI, int(_FULL * share))

    def _look(self, addresses: tuple[str, ...], now_s: float) -> None:
        """See who is new, and who hangs."""
        self._next_look_s = now_s + _LOOK_EVERY_S
        # Where nobody was seen lately the pool is new to this router, or was idle: all are alike.
        lately_s = now_s - max(self.policy.slow_start_s, 2 * _LOOK_EVERY_S)
        new = []
        for address in addresses:
            record = self._record(address)
            if record.seen_s < lately_s:
                new.append(address)
            record.seen_s = now_s
        if len(new) == len(addresses):
            self._young_until_s = now_s + self.policy.slow_start_s
        # Who is found one by one after that, as by observation, is no colder than the first.
        elif now_s >= self._young_until_s and self.policy.slow_start_s:
            for address in new:
                self._warming[address] = now_s
        self._forget(now_s, lately_s)
        if self.policy.hang_after_s:
            self._find_hanging(addresses, now_s - self.policy.hang_after_s)

    def _forget(self, now_s: float, lately_s: float) -> None:
        """Drop what is known of replicas that are no candidates any more."""
        for address, record in list(self._records.items()):
            if record.seen_s >= lately_s or record.waiting or address in self._ejections:
                continue
            if not record.strikes_left(now_s, self.policy.eject_s):
                del self._records[address]
                self._warming.pop(address, None)

    def _find_hanging(self, addresses: tuple[str, ...], before_s: float) -> None:
        answering = any(self._record(each).answered_s > before_s for each in addresses)
        if not answering:
            return
        for address in addresses:
            record = self._record(address)
            oldest_s = next(iter(record.waiting.values()), float("inf"))
            silent = oldest_s <= before_s and record.answered_s <= before_s
            if silent and address not in self._ejections:
                self._eject(address, Fault.HANG)

    def _eject(self, address: str, fault: Fault, *, least_s: int = 0) -> None:
        record, policy = self._record(address), self.policy
        now_s = self._clock()
        is_new = address not in self._ejections
        if is_new:
            record.strikes = record.strikes_left(now_s, policy.eject_s) + 1
        record.failures = 0
        ejection = Ejection(fault, record.strikes)
        lasts_s = policy.eject_s * 2 ** min(record.strikes - 1, _LONGEST_DOUBLINGS)
        text = f"{ejection.strikes} {fault}"
        self._board.post(self._pool, TOPIC + address, text, ttl_s=max(lasts_s, least_s))
        if is_new:
            self._on_ejected(address, ejection)
        self._hear(now_s)

    def _recover(self, address: str) -> None:
        self._board.post(self._pool, TOPIC + address, "", ttl_s=self.policy.eject_s)
        self._hear(self._clock())

    def _hear(self, now_s: float) -> None:
        """Take in what the notice board says."""
        notices = self._board.board(self._pool)
        if notices is self._notices:
            return
        self._notices = notices
        before, self._ejections = self._ejections, dict(_ejections(notices))
        for address in before.keys() - self._ejections.keys():
            self._record(address).recovered_s = now_s
            self._warming[address] = now_s
        for address, ejection in self._ejections.items():
            record = self._record(address)
            if address not in before:
                record.ejected_s = now_s
                self._warming.pop(address, None)
            record.strikes = ejection.strikes


_FAULTS = {fault.value: fault for fault in Fault}

_CURED_BY_CHECKS = {Fault.CHECK, Fault.REFUSED, Fault.RESET, Fault.RETRIED}
"""Faults that a passed check shows to be over; whoever answers checks may still fail requests."""


def _ejections(notices: Mapping[str, str]) -> Iterable[tuple[str, Ejection]]:
    for topic, text in notices.items():
        if not topic.startswith(TOPIC):
            continue
        strikes, _, fault = text.partition(" ")
        if strikes.isdecimal() and fault in _FAULTS:
            yield topic.removeprefix(TOPIC), Ejection(_FAULTS[fault], int(strikes))
