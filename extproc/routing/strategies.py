"""How a replica is chosen from what is known of each.

The Redis script ``affinity/lua/reserve.lua`` does the same sums in the same order; a property test
holds the two against each other. Integers only: both sides must round alike.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from extproc.routing.model import Candidate, Policy, Reason, Strategy

RANKED = 3
"""How many replicas a decision names: the choice and two to retry on."""


class Choice(NamedTuple):
    """An answer in terms of positions in the candidates.

    Attributes:
        ranked: Positions in order of preference, at most ``RANKED``; empty for nobody.
        reason: Why.
        home: The position that the sticky entry of ``prefix_aware`` names from now on, or None.
    """

    ranked: tuple[int, ...]
    reason: Reason
    home: int | None = None


class Question(NamedTuple):
    """What a strategy is asked.

    Attributes:
        policy: The pool's numbers.
        candidates: In the order in which ties are broken; never empty.
        total_tokens: Tokens of the prompt; None where there is no readable prompt.
        sticky: Position of the replica that the sticky entry names, or None.
        turn: How often this pool's ``round_robin`` has chosen before.
    """

    policy: Policy
    candidates: Sequence[Candidate]
    total_tokens: int | None
    sticky: int | None = None
    turn: int = 0


def choose(question: Question, *, matched_only: bool = False) -> Choice:
    """Choose by the policy's strategy.

    Args:
        question: What is known.
        matched_only: Answer with nobody unless the choice holds some of the prompt.
    """
    choice = _STRATEGIES[question.policy.strategy](question)
    if matched_only and choice.reason not in _HOLDS_SOME:
        return Choice((), Reason.OBSERVING)
    return choice


_HOLDS_SOME = frozenset({Reason.MATCHED, Reason.SPILLED})


def _first(question: Question, cost: Callable[[Candidate], int]) -> tuple[int, ...]:
    costs = [cost(candidate) for candidate in question.candidates]
    return tuple(sorted(range(len(costs)), key=costs.__getitem__)[:RANKED])


def _kv_aware(question: Question) -> Choice:
    """Lowest sum of the wait for queued prefill, own prefill, and the decoding of others."""
    policy, total = question.policy, question.total_tokens or 0
    ranked = _first(
        question,
        lambda each: (
            1000 * each.pending
            + policy.uncached_milli * (total - each.matched)
            + 1000 * policy.decode_tokens * each.in_flight
        ),
    )
    if question.total_tokens is None:
        return Choice(ranked, Reason.NO_PROMPT)
    best = max(each.matched for each in question.candidates)
    if best == 0:
        return Choice(ranked, Reason.COLD)
    matched = question.candidates[ranked[0]].matched
    return Choice(ranked, Reason.MATCHED if matched == best else Reason.SPILLED)


def _prefix_aware(question: Question) -> Choice:
    """The replica where the prompt's start has its home, until that is full.

    Source: the PREFIX_AWARE routing strategy of Amazon SageMaker inference endpoints.
    """
    if question.total_tokens is None:
        return Choice(_first(question, lambda each: each.in_flight), Reason.NO_PROMPT)
    home = 0 if question.sticky is None else question.sticky
    threshold = question.policy.threshold

    def preference(position: int) -> tuple[bool, int, bool]:
        in_flight = question.candidates[position].in_flight
        full = in_flight >= threshold
        return full, in_flight if full else 0, position != home

    ranked = tuple(sorted(range(len(question.candidates)), key=preference)[:RANKED])
    if ranked[0] != home:
        reason = Reason.SPILLED
    else:
        reason = Reason.COLD if question.sticky is None else Reason.MATCHED
    return Choice(ranked, reason, home)


def _least_outstanding(question: Question) -> Choice:
    return Choice(_first(question, lambda each: each.in_flight), Reason.BASELINE)


def _random(question: Question) -> Choice:
    """The candidates come in random order: take the first."""
    return Choice(tuple(range(min(RANKED, len(question.candidates)))), Reason.BASELINE)


def _round_robin(question: Question) -> Choice:
    size = len(question.candidates)
    return Choice(
        tuple((question.turn + step) % size for step in range(min(RANKED, size))), Reason.BASELINE
    )


_STRATEGIES: dict[Strategy, Callable[[Question], Choice]] = {
    Strategy.KV_AWARE: _kv_aware,
    Strategy.PREFIX_AWARE: _prefix_aware,
    Strategy.LEAST_OUTSTANDING_REQUESTS: _least_outstanding,
    Strategy.RANDOM: _random,
    Strategy.ROUND_ROBIN: _round_robin,
}
