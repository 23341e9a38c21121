"""How a replica is chosen from what is known of each.

The Redis script ``affinity/lua/reserve.lua`` does the same sums in the same order; a property test
holds the two against each other. Integers only: both sides must round alike.
"""

from collections.abc import Callable, Sequence
from heapq import nsmallest
from typing import NamedTuple

from extproc.routing.apart import WHOLE, Apart
from extproc.routing.model import Policy, Reason, Strategy

RANKED = 3
"""How many replicas a decision names: the choice and two to retry on."""


class Choice(NamedTuple):
    """An answer in terms of positions in the candidates.

    Attributes:
        ranked: Positions in order of preference, at most ``RANKED``; empty for nobody.
        reason: Why.
        home: The position that the sticky entry of ``prefix_aware`` names from now on, or None.
        costs: What was compared, of each candidate; empty where nothing was.
    """

    ranked: tuple[int, ...]
    reason: Reason
    home: int | None = None
    costs: Sequence[int] = ()


class Question(NamedTuple):
    """What a strategy is asked: the candidates in columns, in the order in which ties are broken.

    Attributes:
        policy: The pool's numbers.
        in_flight: Open requests at each candidate, of all routers; never empty.
        pending: Reserved tokens not yet prefilled at each.
        matched: Tokens of this prompt that each holds.
        total_tokens: Tokens of the prompt; None where there is no readable prompt.
        sticky: Position of the replica that the sticky entry names, or None.
        turn: How often this pool's ``round_robin`` has chosen before.
        apart: What to make up for where the state of other routers is not known; None where it is.
        session: Position of the replica that served the request's session last, or None.
        limit: Requests in flight at which a candidate is chosen no more; 0 for none.
    """

    policy: Policy
    in_flight: Sequence[int]
    pending: Sequence[int]
    matched: Sequence[int]
    total_tokens: int | None
    sticky: int | None = None
    turn: int = 0
    apart: Apart | None = None
    session: int | None = None
    limit: int = 0

    @property
    def room(self) -> Sequence[int]:
        """Positions of the candidates below the limit, in order."""
        if not self.limit:
            return range(len(self.in_flight))
        return [at for at, in_flight in enumerate(self.in_flight) if in_flight < self.limit]


def choose(question: Question, *, matched_only: bool = False) -> Choice:
    """Choose by the policy's strategy.

    Args:
        question: What is known.
        matched_only: Answer with nobody unless the choice holds some of the prompt, or the session.
    """
    if not question.room:
        return Choice((), Reason.SHED)
    choice = _STRATEGIES[question.policy.strategy](question)
    if matched_only and choice.reason not in _HOLDS_SOME:
        return Choice((), Reason.OBSERVING, costs=choice.costs)
    return choice


_HOLDS_SOME = frozenset({Reason.MATCHED, Reason.SPILLED, Reason.SESSION})


def _lowest(question: Question, costs: Sequence[int]) -> tuple[int, ...]:
    return tuple(nsmallest(RANKED, question.room, key=costs.__getitem__))


def _kv_aware(question: Question) -> Choice:
    """Lowest sum of the wait for queued prefill, own prefill, and the decoding of others."""
    policy, total, held = question.policy, question.total_tokens or 0, question.matched
    uncached, load = policy.uncached_milli, question.apart.load if question.apart else WHOLE
    decode = load * policy.decode_tokens
    costs = [
        load * pending + uncached * (total - matched) + decode * in_flight
        for in_flight, pending, matched in zip(
            question.in_flight, question.pending, held, strict=True
        )
    ]
    if question.apart is not None:
        home, pull, _ = question.apart
        costs[home] -= uncached * (total - held[home]) * pull // WHOLE
    if question.session is not None:
        costs[question.session] -= 1000 * policy.session_tokens
    ranked = _lowest(question, costs)
    best = max(held)
    if best and held[ranked[0]] == best:
        reason = Reason.MATCHED
    elif ranked[0] == question.session:
        reason = Reason.SESSION
    elif question.total_tokens is None:
        reason = Reason.NO_PROMPT
    else:
        reason = Reason.SPILLED if best else Reason.COLD
    return Choice(ranked, reason, costs=costs)


def _prefix_aware(question: Question) -> Choice:
    """The replica where the prompt's start has its home, until that is full.

    Source: the PREFIX_AWARE routing strategy of Amazon SageMaker inference endpoints.
    """
    if question.total_tokens is None:
        return _by_requests(question, Reason.NO_PROMPT)
    home = 0 if question.sticky is None else question.sticky
    threshold = question.policy.threshold
    # Below the threshold in order, the home first; then the full ones by their load.
    costs = [
        (2 * (1 + in_flight) if in_flight >= threshold else 0) + (position != home)
        for position, in_flight in enumerate(question.in_flight)
    ]
    ranked = _lowest(question, costs)
    if ranked[0] != home:
        reason = Reason.SPILLED
    else:
        reason = Reason.COLD if question.sticky is None else Reason.MATCHED
    return Choice(ranked, reason, home, costs)


def _least_outstanding(question: Question) -> Choice:
    return _by_requests(question, Reason.BASELINE)


def _by_requests(question: Question, reason: Reason) -> Choice:
    costs = question.in_flight
    return Choice(_lowest(question, costs), reason, costs=costs)


def _random(question: Question) -> Choice:
    """The candidates come in random order: take the first."""
    return Choice(tuple(question.room[:RANKED]), Reason.BASELINE)


def _round_robin(question: Question) -> Choice:
    room, size = question.room, len(question.room)
    ranked = [room[(question.turn + step) % size] for step in range(min(RANKED, size))]
    return Choice(tuple(ranked), Reason.BASELINE)


_STRATEGIES: dict[Strategy, Callable[[Question], Choice]] = {
    Strategy.KV_AWARE: _kv_aware,
    Strategy.PREFIX_AWARE: _prefix_aware,
    Strategy.LEAST_OUTSTANDING_REQUESTS: _least_outstanding,
    Strategy.RANDOM: _random,
    Strategy.ROUND_ROBIN: _round_robin,
}
