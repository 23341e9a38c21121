"""Why a decision came out as it did, in one line: the value of the header ``x-prefix-explain``."""

from collections.abc import Sequence

from extproc.routing import Decision, Strategy, Weighed

MOST = 16
"""Candidates that are told, so that the header stays below 2 kB."""


def cost_of(cost: int | None, strategy: Strategy) -> float | None:
    """A cost in the strategy's own unit: tokens, requests or a rank."""
    if cost is None or strategy is not Strategy.KV_AWARE:
        return cost
    return cost / 1000


def ordered(decision: Decision) -> Sequence[Weighed]:
    """All candidates: the ranked ones as they are ranked, then the others by cost."""
    ranks = {replica: rank for rank, replica in enumerate(decision.ranked)}
    last = len(ranks)
    return sorted(
        decision.weighed, key=lambda each: (ranks.get(each.replica, last), each.cost or 0)
    )


def explain(decision: Decision, strategy: Strategy) -> str:
    """A decision as a list of structured fields (RFC 9651), at most ``MOST`` candidates long.

    First the reason, with what holds for the prompt; then the candidates, the chosen one first:
    ``matched;strategy=kv_aware;tokens=2100, "10.0.0.2:8000";matched=2048;pending=0;in_flight=1;
    cost=194.000``. It names members of the pool, and nothing of the prompt but its size.
    """
    head = [decision.reason.value, f"strategy={strategy.value}", f"tokens={decision.total_tokens}"]
    if not decision.shared:
        head.append("alone")
    candidates = ordered(decision)
    if len(candidates) > MOST:
        head.append(f"candidates={len(candidates)}")
    items = [_item(each, strategy) for each in candidates[:MOST]]
    return ", ".join([";".join(head), *items])


def _item(weighed: Weighed, strategy: Strategy) -> str:
    parts = [
        f'"{weighed.replica}"',
        f"matched={weighed.matched_tokens}",
        f"pending={weighed.pending_tokens}",
        f"in_flight={weighed.in_flight}",
    ]
    cost = cost_of(weighed.cost, strategy)
    if cost is not None:
        parts.append(f"cost={cost:.3f}" if strategy is Strategy.KV_AWARE else f"cost={cost}")
    return ";".join(parts)
