"""The affinity store of one process: the shared store's algorithm, kept in dictionaries."""

import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from extproc.affinity.board import Board
from extproc.affinity.ledger import BLOCK, Account
from extproc.affinity.store import ReplicaState, Reservation, StoreStatus, moved
from extproc.limits import Limits
from extproc.routing import (
    FULL,
    Apart,
    Choice,
    Decision,
    Familiarity,
    Policy,
    Question,
    Strategy,
    Weighed,
    apparent,
    choose,
    rendezvous,
)

MICRO = 1_000_000


def unix_micros() -> int:
    """Unix time in microseconds."""
    return time.time_ns() // 1000


Seen = dict[str, int]
"""Replica to the stamp of when it last saw a checkpoint: see ``_stamp``."""

_WRAP = 1 << 32


def _stamp(second: int, taken: int) -> int:
    """The Unix second, and in the low 32 bits the blocks that its replica had taken in."""
    return second << 32 | taken


class _Memory(NamedTuple):
    """How long a replica remembers.

    Attributes:
        second: Now, in Unix seconds.
        ttl: Seconds without use after which a prompt is forgotten.
        capacity: Blocks taken in without its use after which it is; 0 for no such end.
    """

    second: int
    ttl: int
    capacity: int = 0

    def holds(self, account: Account, stamp: int, *, quarters: int = 1) -> bool:
        """Whether a replica still holds what it saw at a stamp.

        With 4 quarters, whether it is less than a quarter forgotten: need not be written again.
        """
        seen = stamp >> 32
        if seen < account.epoch or (self.second - seen) * quarters >= self.ttl:
            return False
        if not self.capacity:
            return True
        return (account.taken - stamp) % _WRAP * quarters < self.capacity


@dataclass(slots=True)
class _Pool:
    board: Board
    accounts: dict[str, Account] = field(default_factory=dict)
    members: set[str] = field(default_factory=set)
    left: int = 0  # the latest epoch of a member that left
    turn: int = 0
    rate: int = 1
    familiarity: Familiarity = field(default_factory=Familiarity)
    written: int = 0
    written_since: int = 0

    def may_add(self, policy: Policy, second: int) -> bool:
        """Whether one more new key may be written: counted from the first one on, for a ttl."""
        if not policy.max_keys:
            return True
        if second - self.written_since >= policy.ttl_s:
            self.written_since, self.written = second, 0
        if self.written >= policy.max_keys:
            return False
        self.written += 1
        return True


@dataclass(slots=True)
class _Held:
    """An open reservation. ``depth`` counts the checkpoints that its replica had before.

    ``new_home`` and ``new_session`` tell whether it wrote those entries for its replica.
    """

    reservation: Reservation
    replica: str
    tokens: int
    end: int
    depth: int
    new_home: bool
    new_session: bool
    decision: Decision


class _Home(NamedTuple):
    """The candidate that an entry names, if any, and whether the entry may be written."""

    position: int | None = None
    writable: bool = False


class _Found(NamedTuple):
    """What is known of the candidates of a reservation, in columns.

    Attributes:
        pool: Their pool.
        now_us: When, in Unix microseconds.
        memory: How long they remember.
        accounts: Their accounts.
        depths: How many checkpoints of the prompt each holds.
        matched: Tokens of the prompt that each holds.
        sticky: Who is named by the sticky entry.
        session: Who is named by the session's entry.
    """

    pool: _Pool
    now_us: int
    memory: _Memory
    accounts: Sequence[Account]
    depths: Sequence[int]
    matched: Sequence[int]
    sticky: _Home
    session: _Home


class MemoryStore:
    """Affinity in this process alone.

    Args:
        entries: Most checkpoints to remember (about 400 bytes each); the least recently written
            are forgotten first.
        routers: How many routers send requests to the replicas of a pool, this one counted.
        clock: Unix time in microseconds.
    """

    def __init__(
        self,
        *,
        entries: int = 250_000,
        routers: Callable[[str], int] = lambda _pool: 1,
        clock: Callable[[], int] = unix_micros,
    ) -> None:
        self._routers = routers
        self._limit = entries
        self._clock = clock
        self._pools: dict[str, _Pool] = {}
        # Plain dictionaries of integers: the garbage collector does not walk them.
        self._seen: OrderedDict[bytes, Seen] = OrderedDict()
        self._homes: OrderedDict[bytes, Seen] = OrderedDict()  # of one replica each
        self._longest_ttl = 0
        self._limits = Limits()
        self._held: dict[str, _Held] = {}

    async def start(self) -> None:
        """Nothing to start."""

    async def close(self) -> None:
        """Nothing to close."""

    async def reserve(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.reserve``; never raises."""
        return self.reserve_now(reservation)

    def reserve_now(self, reservation: Reservation) -> Decision:
        """``reserve`` without a coroutine: nothing here waits."""
        held = self._held.get(reservation.id)
        if held is not None:
            return held.decision
        if not reservation.candidates:
            raise ValueError("a reservation needs at least one candidate")
        self._longest_ttl = max(self._longest_ttl, reservation.policy.ttl_s)
        found, choice, decision = self._decide(reservation)
        if decision.ranked:
            self._book(reservation, found, choice, decision)
            self._forget(found.memory.second)
        return decision

    async def weigh(self, reservation: Reservation) -> Decision:
        """See ``AffinityStore.weigh``; never raises."""
        return self._decide(replace(reservation, explain=True))[2]

    def _decide(self, reservation: Reservation) -> tuple[_Found, Choice, Decision]:
        pool = self._pool(reservation.pool, reservation.policy)
        found = self._match(reservation, pool, self._clock())
        question = self._question(reservation, found)
        choice = choose(question, matched_only=reservation.matched_only)
        decision = _decision(reservation, choice, found.matched)
        if reservation.explain:
            decision = replace(decision, weighed=_weighed(reservation, question, choice))
        return found, choice, decision

    def _match(self, reservation: Reservation, pool: _Pool, now_us: int) -> _Found:
        policy, print_ = reservation.policy, reservation.fingerprint
        memory = _Memory(now_us // MICRO, policy.ttl_s, policy.cache_tokens // BLOCK)
        accounts = self._accounts(pool, reservation.candidates, now_us)
        depths = self._depths(reservation, accounts, memory)
        tokens = (0, *print_.tokens) if print_ else (0,)
        sticky = self._home(print_.sticky if print_ else b"", reservation, pool, memory)
        session = self._home(reservation.session, reservation, pool, memory)
        matched = [tokens[depth] for depth in depths]
        return _Found(pool, now_us, memory, accounts, depths, matched, sticky, session)

    def _question(self, reservation: Reservation, found: _Found) -> Question:
        policy, print_ = reservation.policy, reservation.fingerprint
        now_us, rate = found.now_us, policy.prefill_rate
        in_flight = [each.in_flight for each in found.accounts]
        pending = [each.pending and each.pending_at(now_us, rate) for each in found.accounts]
        if reservation.standings:
            standings = [reservation.standings.get(each, FULL) for each in reservation.candidates]
            in_flight, pending = apparent(standings, in_flight, pending)
        return Question(
            policy,
            in_flight,
            pending,
            found.matched,
            print_.total_tokens if print_ else None,
            found.sticky.position,
            found.pool.turn,
            self._apart(reservation, found),
            found.session.position,
            reservation.max_in_flight,
        )

    def _apart(self, reservation: Reservation, found: _Found) -> Apart | None:
        routers, print_ = self._routers(reservation.pool), reservation.fingerprint
        if routers == 1 or print_ is None:
            return None
        home = _home_of(reservation, print_.sticky)
        return Apart.of(home, found.pool.familiarity.share, routers)

    def _book(
        self, reservation: Reservation, found: _Found, choice: Choice, decision: Decision
    ) -> None:
        policy, print_ = reservation.policy, reservation.fingerprint
        if policy.strategy is Strategy.ROUND_ROBIN:
            found.pool.turn += 1
        first = choice.ranked[0]
        replica, account, depth = decision.ranked[0], found.accounts[first], found.depths[first]
        sticky, session = self._writable(reservation, found, choice)
        if reservation.hold:
            account.drain(found.now_us, policy.prefill_rate)
            uncached = decision.total_tokens - decision.matched_tokens
            end = account.take(uncached)
            new_home = sticky and found.sticky == _NOBODY
            new_session = session and found.session.position != first
            self._held[reservation.id] = _Held(
                reservation, replica, uncached, end, depth, new_home, new_session, decision
            )
        if print_:
            found.pool.familiarity.take_in(decision.best_tokens, decision.total_tokens)
            self._record(reservation, replica, found, first)
            if sticky and choice.home is not None:
                home = reservation.candidates[choice.home]
                epoch = found.accounts[choice.home].epoch
                self._keep_home(print_.sticky, home, epoch, found.memory)
        if session:
            self._keep_home(reservation.session, replica, account.epoch, found.memory)

    def _writable(
        self, reservation: Reservation, found: _Found, choice: Choice
    ) -> tuple[bool, bool]:
        """Whether the sticky entry and the session's entry are written."""
        sticky = choice.home is not None and found.sticky.writable
        if sticky and found.sticky.position is None:
            sticky = self._may_add(reservation, found)
        session = found.session.writable
        if session and found.session.position is None:
            session = self._may_add(reservation, found)
        return sticky, session

    def _may_add(self, reservation: Reservation, found: _Found) -> bool:
        granted = found.pool.may_add(reservation.policy, found.memory.second)
        if not granted:
            self._limits.hit("x-prefix-max-keys", "new prompts are routed, not remembered")
        return granted

    def served(self, reservation_id: str, replica: str, *, ok: bool) -> None:
        """See ``AffinityStore.served``."""
        held = self._held.get(reservation_id)
        if held is None:
            return
        if replica and replica != held.replica:
            self._withdraw(held)
            self.release(reservation_id)
            self.reserve_now(moved(held.reservation, replica))
            held = self._held[reservation_id]
        if not ok:
            self._withdraw(held)

    def release(self, reservation_id: str) -> None:
        """See ``AffinityStore.release``."""
        held = self._held.pop(reservation_id, None)
        if held is None:
            return
        pool = self._pools[held.reservation.pool]
        account = pool.accounts[held.replica]
        account.drain(self._clock(), held.reservation.policy.prefill_rate)
        account.give_back(held.tokens, held.end)
        self._dismiss(pool, held.replica)

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        """See ``AffinityStore.join``."""
        state = self._pool(pool)
        for replica in replicas:
            self._account(state, replica, self._clock())

    def leave(self, pool: str, replica: str) -> None:
        """See ``AffinityStore.leave``."""
        state = self._pool(pool)
        if replica in state.members:
            state.members.discard(replica)
            state.left = max(state.left, state.accounts[replica].epoch)
        self._dismiss(state, replica)

    def members(self, pool: str) -> Sequence[str]:
        """See ``AffinityStore.members``."""
        return sorted(self._pool(pool).members)

    def restarted(self, pool: str, replica: str, incarnation: str) -> None:
        """See ``AffinityStore.restarted``."""
        now_us = self._clock()
        account = self._account(self._pool(pool), replica, now_us)
        if account.incarnation and account.incarnation != incarnation:
            account.epoch = max(account.epoch, now_us // MICRO) + 1
        account.incarnation = incarnation

    def post(self, pool: str, topic: str, text: str, *, ttl_s: int) -> None:
        """See ``AffinityStore.post``."""
        self._pool(pool).board.post(topic, text, ttl_s)

    def board(self, pool: str) -> Mapping[str, str]:
        """See ``AffinityStore.board``."""
        return self._pool(pool).board.read()

    def elected(self, pool: str, job: str) -> bool:
        """See ``AffinityStore.elected``: there is no other router that this one knows of."""
        return True

    async def snapshot(self, pool: str) -> Mapping[str, ReplicaState]:
        """See ``AffinityStore.snapshot``; never raises."""
        state, now_us = self._pool(pool), self._clock()
        return {
            replica: ReplicaState(
                account.in_flight,
                account.pending_at(now_us, state.rate),
                account.epoch,
                account.incarnation,
            )
            for replica, account in sorted(state.accounts.items())
            if replica in state.members
        }

    def status(self) -> StoreStatus:
        """See ``AffinityStore.status``."""
        return StoreStatus(
            "memory",
            detail="this router's memory",
            entries=len(self._seen),
            unwritten=self._limits.reached.total(),
        )

    def _pool(self, name: str, policy: Policy | None = None) -> _Pool:
        pool = self._pools.get(name)
        if pool is None:
            pool = self._pools[name] = _Pool(Board(lambda: self._clock() / MICRO))
        if policy is not None:
            pool.rate = policy.prefill_rate
        return pool

    def _accounts(self, pool: _Pool, replicas: Sequence[str], now_us: int) -> list[Account]:
        """The accounts of members, and of those who become members by this."""
        if not pool.members.issuperset(replicas):
            for replica in replicas:
                self._account(pool, replica, now_us)
        return list(map(pool.accounts.__getitem__, replicas))

    def _account(self, pool: _Pool, replica: str, now_us: int) -> Account:
        account = pool.accounts.get(replica)
        if account is None:
            account = pool.accounts[replica] = Account(clock_us=now_us)
        if replica not in pool.members:
            pool.members.add(replica)
            account.epoch = max(pool.left, now_us // MICRO) + 1
            account.incarnation = ""
        return account

    @staticmethod
    def _dismiss(pool: _Pool, replica: str) -> None:
        """Close the account of a former member once its last request has ended."""
        account = pool.accounts.get(replica)
        if account is not None and replica not in pool.members and not account.in_flight:
            del pool.accounts[replica]

    def _depths(
        self, reservation: Reservation, accounts: Sequence[Account], memory: _Memory
    ) -> list[int]:
        """How many checkpoints each candidate holds: the number of its deepest live one."""
        print_ = reservation.fingerprint
        depths = [0] * len(accounts)
        if print_ is None:
            return depths
        positions = {replica: at for at, replica in enumerate(reservation.candidates)}
        for depth in range(len(print_.hashes), 0, -1):
            entry = self._seen.get(print_.hashes[depth - 1])
            if entry is None:
                continue
            # Often all replicas saw it, and all but a few are found deeper down.
            for replica in list(positions) if len(positions) < len(entry) else entry:
                at = positions.get(replica)
                stamp = entry.get(replica)
                if at is None or stamp is None:
                    continue
                if memory.holds(accounts[at], stamp):
                    depths[at] = depth
                    del positions[replica]
            if not positions:
                break
        return depths

    def _home(self, key: bytes, reservation: Reservation, pool: _Pool, memory: _Memory) -> _Home:
        """Who is named by the entry of a prompt's start or of a session; no key has no entry.

        A live entry for a member that is no candidate this time stays as it is: candidates limit
        a choice, they do not delete state.
        """
        if not key:
            return _Home()
        entry = self._homes.get(key)
        if entry is None:
            return _NOBODY
        [(replica, stamp)] = entry.items()
        account = pool.accounts.get(replica)
        if (
            account is None
            or replica not in pool.members
            or not memory._replace(capacity=0).holds(account, stamp)
        ):
            return _NOBODY
        if replica not in reservation.candidates:
            return _Home()
        return _Home(reservation.candidates.index(replica), writable=True)

    def _record(self, reservation: Reservation, replica: str, found: _Found, position: int) -> None:
        """Write what is new or a quarter forgotten.

        From the deepest up: what is before a fresh checkpoint is not much older than it.
        """
        assert reservation.fingerprint is not None
        checkpoints, memory = reservation.fingerprint.hashes, found.memory
        account, depth = found.accounts[position], found.depths[position]
        stamp = _stamp(max(memory.second, account.epoch), account.taken)
        oldest = memory.second - memory.ttl
        for at in range(len(checkpoints), 0, -1):
            checkpoint = checkpoints[at - 1]
            seen = self._seen.get(checkpoint)
            if seen is None:
                if self._may_add(reservation, found):
                    self._seen[checkpoint] = {replica: stamp}
                continue
            last = seen.get(replica)
            if at <= depth and last is not None and memory.holds(account, last, quarters=4):
                break
            kept = {each: old for each, old in seen.items() if old >> 32 > oldest}
            if not kept and not self._may_add(reservation, found):
                continue
            kept[replica] = stamp
            self._seen[checkpoint] = kept
            self._seen.move_to_end(checkpoint)

    def _keep_home(self, key: bytes, home: str, epoch: int, memory: _Memory) -> None:
        second, ttl = memory.second, memory.ttl
        last = self._homes.get(key, {}).get(home)
        if last is None or last >> 32 < epoch or (second - (last >> 32)) * 4 >= ttl:
            self._homes[key] = {home: _stamp(max(second, epoch), 0)}
            self._homes.move_to_end(key)

    def _withdraw(self, held: _Held) -> None:
        """Take back the affinity that a reservation added."""
        print_, session = held.reservation.fingerprint, held.reservation.session
        if held.new_session and held.replica in self._homes.get(session, {}):
            del self._homes[session]
        if print_ is None:
            return
        for checkpoint in print_.hashes[held.depth :]:
            seen = self._seen.get(checkpoint)
            if seen is not None:
                seen.pop(held.replica, None)
                if not seen:
                    del self._seen[checkpoint]
        if held.new_home and held.replica in self._homes.get(print_.sticky, {}):
            del self._homes[print_.sticky]

    def _forget(self, second: int) -> None:
        """Drop what is expired, oldest first, and what is over the limit."""
        for table in (self._seen, self._homes):
            while table:
                oldest, seen = next(iter(table.items()))
                live = second - (max(seen.values()) >> 32) < self._longest_ttl
                if live and len(table) <= self._limit:
                    break
                del table[oldest]


_NOBODY = _Home(writable=True)


def _decision(reservation: Reservation, choice: Choice, matched: Sequence[int]) -> Decision:
    print_ = reservation.fingerprint
    return Decision(
        tuple([reservation.candidates[position] for position in choice.ranked]),
        choice.reason,
        matched[choice.ranked[0]] if choice.ranked else 0,
        max(matched),
        print_.total_tokens if print_ else 0,
    )


def _home_of(reservation: Reservation, start: bytes) -> int:
    """Position of the candidate that every router takes for the home of a prompt's start."""
    candidates = reservation.candidates
    return candidates.index(rendezvous(start, candidates)[0])


def _weighed(reservation: Reservation, question: Question, choice: Choice) -> tuple[Weighed, ...]:
    costs: Sequence[int | None] = choice.costs or [None] * len(question.matched)
    columns = (question.in_flight, question.pending, question.matched, costs)
    return tuple(map(Weighed, reservation.candidates, *columns))
