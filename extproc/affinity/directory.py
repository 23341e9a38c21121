"""What a router knows of a pool in the shared store: who is in it, and under which index."""

import asyncio
import struct
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from extproc.affinity.board import Board
from extproc.affinity.keys import PoolKeys
from extproc.affinity.link import Link
from extproc.affinity.store import ReplicaState, Reservation
from extproc.routing import Decision, Policy

_HEADER = 16
_RECORD = struct.Struct("<I6s7s6sIBI")
"""A replica's record as ``lua/prelude.lua`` lays it out: in flight, pending, clock, drained,
epoch, member."""


@dataclass(slots=True)
class Held:
    """An open reservation of this router."""

    reservation: Reservation
    decision: Decision
    since: float

    @property
    def replica(self) -> str:
        """Who serves it."""
        return self.decision.ranked[0]

    def tokens_left(self, now: float, rate: int) -> int:
        """Tokens that are probably not prefilled yet."""
        tokens = self.decision.total_tokens - self.decision.matched_tokens
        return max(0, tokens - int((now - self.since) * rate))


class PoolDirectory:
    """One pool's replicas, their indexes, and what this router holds there.

    Args:
        pool: The pool's name.
        router: This process's name.
        policy: The pool's numbers, as last seen.

    Attributes:
        generation: Under which the indexes hold; empty while they are not known.
        index: Replica to its index, two bytes big endian.
        members: As last heard, sorted.
        routers: The live routers, as last heard, sorted; empty before that.
        board: The pool's notice board.
        held: This router's open reservations by id.
        joined_at: Monotonic time of the last ``join``.
        used_at: Monotonic time of the last reservation.
        dirty: Whether the store may disagree with what this router holds.
        released: Ids released while a list of what is held is under way, else None.
    """

    def __init__(self, pool: str, router: str, policy: Policy) -> None:
        self.keys = PoolKeys(pool)
        self.policy = policy
        self.generation = b""
        self.index: dict[str, bytes] = {}
        self.members: tuple[str, ...] = ()
        self.routers: tuple[str, ...] = ()
        self.board = Board()
        self.held: dict[str, Held] = {}
        self.joined_at = 0.0
        self.used_at = 0.0
        self.dirty = True
        self.released: list[str] | None = None
        self._names: dict[int, str] = {}
        self._router = router
        self._joining = asyncio.Lock()

    def names(self, indexes: Iterable[int]) -> tuple[str, ...]:
        """The replicas behind indexes, without those that are not known any more."""
        return tuple(self._names[index] for index in indexes if index in self._names)

    def forget_indexes(self) -> None:
        """Learn them anew before the next use: their generation is over."""
        self.generation = b""
        self.dirty = True

    async def join(self, link: Link, replicas: Iterable[str]) -> None:
        """Make replicas members and learn their indexes, and show this router to the pool.

        Raises:
            StoreError: The store did not answer.
        """
        async with self._joining:
            wanted = list(replicas)
            if self.generation and all(each in self.index for each in wanted):
                return  # another request asked meanwhile
            wanted = list(dict.fromkeys([*wanted, *self.index]))
            keys = self.keys
            generation, *indexes = await link.run(
                "join",
                [keys.state, keys.members, keys.uses, keys.routers, keys.incarnations],
                [self._router, *wanted],
            )
            self.index = {
                name: index.to_bytes(2, "big") for name, index in zip(wanted, indexes, strict=True)
            }
            self._names = dict(zip(indexes, wanted, strict=True))
            self.generation = generation
            self.members = tuple(sorted({*self.members, *wanted}))
            self.joined_at = time.monotonic()

    async def rejoin(self, link: Link, replicas: Iterable[str]) -> None:
        """``join`` with all known replicas, whatever is believed of their indexes."""
        self.forget_indexes()
        await self.join(link, replicas)

    def heard(self, members: Iterable[str]) -> None:
        """Take in who is a member now."""
        self.members = tuple(sorted(members))
        for each in set(self.index) - set(self.members):
            del self.index[each]

    def leave(self, replica: str) -> None:
        """Forget a member at once."""
        self.members = tuple(each for each in self.members if each != replica)
        self.index.pop(replica, None)


def decode(
    state: bytes,
    members: Mapping[bytes, bytes],
    incarnations: Mapping[bytes, bytes],
    now_us: int,
    rate: int,
) -> dict[str, ReplicaState]:
    """Read a pool's state string.

    Args:
        state: Header and records.
        members: Replica to index, former members with open requests included.
        incarnations: Replica to incarnation.
        now_us: The store's time.
        rate: Tokens per second at which pending tokens drain.
    """
    found = {}
    for name, index in sorted(members.items()):
        start = _HEADER + _RECORD.size * int(index)
        record = state[start : start + _RECORD.size].ljust(_RECORD.size, b"\0")
        in_flight, pending, clock, _, epoch, member, _ = _RECORD.unpack(record)
        if not member:
            continue
        queue = int.from_bytes(pending, "little")
        elapsed = max(0, now_us - int.from_bytes(clock, "little"))
        found[name.decode()] = ReplicaState(
            in_flight,
            queue - min(queue, elapsed * rate // 1_000_000),
            epoch,
            incarnations.get(name, b"").decode(errors="replace"),
        )
    return found
