"""Policies of other routers, in our own code, from their published descriptions.

They see what those routers see: what they sent where, first tokens and ends of responses, and
where the description says so the engines' metrics or caches.
"""

import math
import random
import statistics
from bisect import bisect_right
from collections.abc import Callable, Container, Sequence

from xxhash import xxh3_64_intdigest

from extproc.lab.simulator.calls import Call, head_key
from extproc.lab.simulator.fleet import Fleet
from extproc.lab.simulator.prefix_index import UNIT, PrefixIndex, units


class Reference:
    """What all of them keep: the requests in flight, and their prefill until the first token.

    Args:
        fleet: The replicas and the clock.
        draw: Breaks ties.
    """

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        self.fleet = fleet
        self.draw = draw
        self.in_flight = [0] * len(fleet.engines)
        self.pending = [0] * len(fleet.engines)
        self.index = PrefixIndex(fleet.cache_tokens)
        self._sent: dict[int, tuple[int, int]] = {}

    def choose(self, call: Call, members: Sequence[int]) -> int:
        """See ``Router.choose``."""
        matched = self.matched(call, members)
        position = self.pick(call, members, matched)
        replica = members[position]
        uncached = call.prompt_tokens - matched[position]
        self._sent[call.number] = replica, uncached
        self.in_flight[replica] += 1
        self.pending[replica] += uncached
        self.sent(call, replica)
        return replica

    def first_token(self, call: Call) -> None:
        """See ``Router.first_token``."""
        replica, uncached = self._sent[call.number]
        self.pending[replica] -= uncached

    def ended(self, call: Call) -> None:
        """See ``Router.ended``."""
        replica, _ = self._sent.pop(call.number)
        self.in_flight[replica] -= 1

    def left(self, replica: int) -> None:
        """See ``Router.left``."""
        self.index.forget(replica)

    def matched(self, call: Call, members: Sequence[int]) -> list[int]:
        """Tokens that each member is thought to hold of a prompt."""
        return self.index.matched(call, members)

    def sent(self, call: Call, replica: int) -> None:
        """A call goes to a replica."""
        self.index.add(call, replica)

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """The position in ``members`` to send a call to."""
        raise NotImplementedError

    def least(self, costs: Sequence[float]) -> int:
        """The position of the least cost, drawn among equals."""
        least = min(costs)
        return self.draw.choice([index for index, cost in enumerate(costs) if cost == least])


class LongestMatch(Reference):
    """Weighted scores of the matched share (3) and of the engines' queues (2).

    Source: the default scorers of the Gateway API Inference Extension and of llm-d.
    """

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        scraped = self.fleet.scraped()
        waiting = [scraped[member].waiting for member in members]
        most, span = max(waiting), max(waiting) - min(waiting)
        return self.least(
            [
                -3 * tokens / call.prompt_tokens - 2 * ((most - queue) / span if span else 1.0)
                for tokens, queue in zip(matched, waiting, strict=True)
            ]
        )


class CacheAware(Reference):
    """The best match from 0.3 of the prompt on, else the smallest tree; shortest queue if uneven.

    Source: SGLang's router, cache-aware policy: threshold 0.3, balance 64 and 1.5.
    """

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        load = [self.in_flight[member] for member in members]
        if max(load) - min(load) > 64 and max(load) > 1.5 * min(load):
            return self.least(load)
        if max(matched) > 0.3 * call.prompt_tokens:
            return self.least([-tokens for tokens in matched])
        return self.least([self.index.size(member) for member in members])


class WithinOneSigma(Reference):
    """The best match among those whose load is at most the mean and one standard deviation.

    Source: AIBrix's prefix-cache routing; uneven by more than 8 requests, load alone decides.
    """

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        load = [self.in_flight[member] for member in members]
        if max(load) - min(load) <= 8:
            limit = statistics.fmean(load) + statistics.pstdev(load)
            order = sorted(range(len(members)), key=lambda each: (-matched[each], load[each]))
            for position in order:
                if matched[position] and load[position] <= limit:
                    return position
        return self.least(load)


class BlockCost(Reference):
    """Prefill blocks to compute, queued ones too, plus blocks that decode.

    Source: the cost function of NVIDIA Dynamo's KV router, overlap credit 1, prefill load scale 1;
    it knows the engines' caches from their events.
    """

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        super().__init__(fleet, draw)
        self._active: list[dict[int, int]] = [{} for _ in fleet.engines]

    def matched(self, call: Call, members: Sequence[int]) -> list[int]:
        """See ``Reference.matched``."""
        return [self.fleet.cached_tokens(member, call) for member in members]

    def sent(self, call: Call, replica: int) -> None:
        """See ``Reference.sent``."""
        active = self._active[replica]
        for value in units(call):
            active[value] = active.get(value, 0) + 1

    def ended(self, call: Call) -> None:
        """See ``Router.ended``."""
        active = self._active[self._sent[call.number][0]]
        for value in units(call):
            if active[value] == 1:
                del active[value]
            else:
                active[value] -= 1
        super().ended(call)

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        ids = units(call)
        costs = []
        for member, tokens in zip(members, matched, strict=True):
            active = self._active[member]
            known = _prefix_in(active, ids)
            prefill = (self.pending[member] + call.prompt_tokens - tokens) / UNIT
            costs.append(prefill + len(active) + len(ids) - known)
        return self.least(costs)


class BoundedHash(Reference):
    """Consistent hashing of the first 100 characters, with bounded loads of 1.25.

    Source: KubeAI's PrefixHash; Mirrokni, Thorup and Zadimoghaddam, "Consistent hashing with
    bounded loads", 2016.
    """

    POINTS = 256

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        super().__init__(fleet, draw)
        self._ring = sorted(
            (xxh3_64_intdigest(f"{name}/{point}".encode()), number)
            for number, name in enumerate(fleet.names)
            for point in range(self.POINTS)
        )

    def matched(self, call: Call, members: Sequence[int]) -> list[int]:
        """See ``Reference.matched``: it does not look."""
        return [0] * len(members)

    def sent(self, call: Call, replica: int) -> None:
        """See ``Reference.sent``: it need not remember."""

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        positions = {member: position for position, member in enumerate(members)}
        open_ = sum(self.in_flight[member] for member in members)
        bound = math.ceil(1.25 * (open_ + 1) / len(members))
        start = bisect_right(self._ring, (xxh3_64_intdigest(head_key(call, 100)), -1))
        for step in range(len(self._ring)):
            _, member = self._ring[(start + step) % len(self._ring)]
            if member in positions and self.in_flight[member] < bound:
                return positions[member]
        return self.least([self.in_flight[member] for member in members])


class Product(Reference):
    """New prefill tokens, queued ones too, times the batch.

    Source: LMetric, "Multiplication may be all you need for LLM request scheduling", 2026.
    """

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        return self.least(
            [
                (self.pending[member] + call.prompt_tokens - tokens) * (self.in_flight[member] + 1)
                for member, tokens in zip(members, matched, strict=True)
            ]
        )


class Oracle(Reference):
    """Sees every cache and queue as it is, and adds up what waiting and computing cost.

    What a replica has queued it will have cached when a call's turn comes. No router can know all
    this: it is the yardstick.
    """

    OWN = 1.5
    DECODE = 256

    def __init__(self, fleet: Fleet, draw: random.Random) -> None:
        super().__init__(fleet, draw)
        self._queued: dict[int, tuple[int, Sequence[int]]] = {}
        self._coming: list[dict[int, int]] = [{} for _ in fleet.engines]

    def matched(self, call: Call, members: Sequence[int]) -> list[int]:
        """See ``Reference.matched``."""
        ids = units(call)
        return [
            max(
                self.fleet.cached_tokens(member, call),
                UNIT * _prefix_in(self._coming[member], ids),
            )
            for member in members
        ]

    def sent(self, call: Call, replica: int) -> None:
        """See ``Reference.sent``."""
        ids = units(call)
        self._queued[call.number] = replica, ids
        coming = self._coming[replica]
        for value in ids:
            coming[value] = coming.get(value, 0) + 1

    def first_token(self, call: Call) -> None:
        """See ``Router.first_token``."""
        super().first_token(call)
        replica, ids = self._queued.pop(call.number)
        coming = self._coming[replica]
        for value in ids:
            if coming[value] == 1:
                del coming[value]
            else:
                coming[value] -= 1

    def pick(self, call: Call, members: Sequence[int], matched: Sequence[int]) -> int:
        """See ``Reference.pick``."""
        return self.least(
            [
                self.pending[member]
                + self.OWN * (call.prompt_tokens - tokens)
                + self.DECODE * self.in_flight[member]
                for member, tokens in zip(members, matched, strict=True)
            ]
        )


def _prefix_in(held: Container[int], ids: Sequence[int]) -> int:
    """How many of the first ids are held."""
    for index, value in enumerate(ids):
        if value not in held:
            return index
    return len(ids)


REFERENCES: dict[str, Callable[[Fleet, random.Random], Reference]] = {
    "longest_match_3_2": LongestMatch,
    "cache_aware": CacheAware,
    "within_one_sigma": WithinOneSigma,
    "block_cost": BlockCost,
    "bounded_hash": BoundedHash,
    "prefill_times_batch": Product,
    "oracle": Oracle,
}
"""References by name, beside the strategies that serve traffic."""

PEERS = {
    "longest_match_3_2": "GIE, llm-d",
    "cache_aware": "SGLang",
    "within_one_sigma": "AIBrix",
    "block_cost": "Dynamo",
    "bounded_hash": "KubeAI",
    "prefill_times_batch": "LMetric",
}
"""Whose policy a reference is."""
