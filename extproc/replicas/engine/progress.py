"""What becomes plain from several looks at an engine, one after the other. Pure."""

from typing import NamedTuple

from extproc.replicas.engine.report import Report
from extproc.replicas.engine.state import EngineState

_HALF_LIFE_S = 120.0
"""In so much time half of what was measured is forgotten."""

_LONGEST_GAP_S = 60.0
"""Between looks that are further apart nothing is measured."""

_ENOUGH_TOKENS = 10_000
_ENOUGH_S = 2.0
_FALLING = ("prompt_tokens", "queried_tokens", "hit_tokens", "generated_tokens", "requests")
_MOST_PERMILLE = 1000


class Total(NamedTuple):
    """Tokens and what they took, with the past fading."""

    tokens: float = 0.0
    amount: float = 0.0

    def plus(self, tokens: float, amount: float, fade: float) -> "Total":
        """The sum with something new; neither part may be negative."""
        return Total(self.tokens * fade + max(0.0, tokens), self.amount * fade + max(0.0, amount))

    @property
    def each(self) -> float:
        """Tokens for each of the amount."""
        return self.tokens / self.amount if self.amount else 0.0


class Progress:
    """Follows one replica's engine."""

    def __init__(self) -> None:
        self.state: EngineState | None = None
        self._at_s = 0.0
        self._by_request = Total()
        self._by_prefill = Total()
        self._by_queue = Total()

    def restarted(self, state: EngineState) -> bool:
        """Whether an engine that does not tell when it started has started again."""
        before = self.state
        if before is None or before.engine != state.engine:
            return False
        return any(
            was is not None and now is not None and now < was
            for was, now in ((getattr(before, name), getattr(state, name)) for name in _FALLING)
        )

    def look(self, state: EngineState, at_s: float) -> None:
        """Take in a look.

        Args:
            state: What the engine told.
            at_s: When, on any clock.
        """
        before, elapsed = self.state, at_s - self._at_s
        if before is not None and 0 < elapsed <= _LONGEST_GAP_S and not self.restarted(state):
            self._measure(before, state, elapsed)
        self.state, self._at_s = state, at_s

    def _measure(self, before: EngineState, state: EngineState, elapsed: float) -> None:
        fade = 0.5 ** (elapsed / _HALF_LIFE_S)
        computed = _gain(before.computed_tokens, state.computed_tokens)
        self._by_request = self._by_request.plus(
            computed, _gain(before.requests, state.requests), fade
        )
        # Requests that are prefilled together count the same seconds, each for itself: so this
        # tells the least that the engine does.
        busy = min(_gain(before.prefill_s, state.prefill_s), elapsed)
        self._by_prefill = self._by_prefill.plus(computed if busy else 0.0, busy, fade)
        queued = bool(before.waiting and state.waiting)
        entered = _entered(before, state)
        self._by_queue = self._by_queue.plus(
            entered if queued else 0.0, elapsed if queued else 0.0, fade
        )

    def report(self, ours: int | None) -> Report:
        """What there is to tell of the last look.

        Args:
            ours: Requests that the routers have open there; None where that is not known.
        """
        state = self.state
        if state is None:
            return Report()
        foreign_running, foreign_waiting = foreign(state, ours)
        capacity = state.capacity_tokens or 0
        return Report(
            engine=state.engine,
            running=state.running or 0,
            waiting=state.waiting or 0,
            kv_permille=min(_MOST_PERMILLE, round(1000 * (state.kv_usage or 0.0))),
            foreign_running=foreign_running,
            foreign_waiting=foreign_waiting,
            request_tokens=self._request_tokens(state),
            capacity_tokens=capacity,
            memory_tokens=round(capacity * _prompt_share(state)),
            drain_rate=_rate(self._by_queue),
            least_rate=_rate(self._by_prefill),
            queried_tokens=int(state.queried_tokens or 0),
            hit_tokens=int(state.hit_tokens or 0),
            adapters=state.adapters,
        )

    def _request_tokens(self, state: EngineState) -> int:
        if self._by_request.amount >= 1:
            return round(self._by_request.each)
        if state.computed_tokens and state.requests:
            return round(state.computed_tokens / state.requests)
        return 0


def foreign(state: EngineState, ours: int | None) -> tuple[int, int]:
    """Running and waiting requests that did not come through the routers.

    An engine takes requests in order of their arrival, so the others' share of those that wait is
    taken to be their share of all.

    Args:
        state: What the engine told.
        ours: Requests that the routers have open there, at least; None where that is not known:
            then none count as others'.
    """
    running, waiting = state.running or 0, state.waiting or 0
    others = running + waiting - (running + waiting if ours is None else ours)
    if others <= 0:
        return 0, 0
    queued = others * waiting // (running + waiting)
    return others - queued, queued


def _gain(before: float | None, now: float | None) -> float:
    return 0.0 if before is None or now is None else max(0.0, now - before)


def _entered(before: EngineState, state: EngineState) -> float:
    """Prompt tokens computed between two looks; of those that are counted as they are computed."""
    prompt = _gain(before.prompt_tokens, state.prompt_tokens)
    looked_up = _gain(before.queried_tokens, state.queried_tokens)
    hits = _gain(before.hit_tokens, state.hit_tokens)
    return prompt * (1 - min(1.0, hits / looked_up)) if looked_up else prompt


def _rate(total: Total) -> int:
    known = total.tokens >= _ENOUGH_TOKENS and total.amount >= _ENOUGH_S
    return round(total.each) if known else 0


def _prompt_share(state: EngineState) -> float:
    """The share of prompts in what the engine puts into its cache."""
    computed, generated = state.computed_tokens or 0.0, state.generated_tokens or 0.0
    return computed / (computed + generated) if computed else 1.0
