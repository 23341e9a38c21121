"""How fast a pool's replicas prefill, learned from how long their requests take.

A request takes its wait, its prefill and its decoding; only the prefill grows with the tokens that
were not cached. So the seconds per token are the slope at which the short ones among the requests
with many uncached tokens take as long as the short ones among those with few.
"""

import math
from collections import deque
from dataclasses import replace

from extproc.routing.model import Policy

Sample = tuple[int, float]
"""Uncached tokens, and seconds from the choice to the end."""

_WINDOW = 2000
_FIRST = 100
_EVERY = 250
_AGREEMENT = math.log(1.2)
"""How near the slopes of two halves of the samples must be to be believed."""

_GAIN = 0.2
_SHORT = 0.1
"""The quantile that stands for the short ones."""

_APART = 1500
"""Tokens by which the many must exceed the few in the mean. Else there is no slope to see, or only
that of short prompts, which says little of what a queue takes: they cost more by the token."""

_FLAT, _STEEP = 1 / 500_000, 1 / 500
"""Seconds per token between which the slope is sought."""

_HALVINGS = 12

TOGETHER = 1.3
"""How much faster a queue is prefilled than one request: several fill an engine's iterations better
than one, which shares them with what decodes. Chosen in the simulator, where 1 and 1.7 are worse.
"""


class LearnedRate:
    """An estimate that begins with a guess and follows what is seen.

    Args:
        guess: Tokens per second.
    """

    def __init__(self, guess: int) -> None:
        self.tokens_per_second = guess
        self._log = math.log(guess)
        self._samples: deque[Sample] = deque(maxlen=_WINDOW)
        self._wait = _FIRST
        self._fits = 1  # the guess
        self._policies: tuple[Policy, Policy] | None = None

    def applied(self, policy: Policy) -> Policy:
        """The policy with this rate."""
        if self._policies is None or self._policies[0] is not policy:
            learned = replace(policy, prefill_rate=self.tokens_per_second)
            self._policies = policy, learned
        return self._policies[1]

    def observe(self, uncached_tokens: int, seconds: float) -> None:
        """Take in a request that was served."""
        self._samples.append((uncached_tokens, seconds))
        self._wait -= 1
        if self._wait > 0:
            return
        self._wait = min(_EVERY, max(_FIRST, len(self._samples)) // 2)
        slope = _believable(list(self._samples))
        if slope is None:
            return
        self._fits += 1
        seen = math.log(TOGETHER / slope)
        self._log += max(_GAIN, 1 / self._fits) * (seen - self._log)
        self.tokens_per_second = round(math.exp(self._log))
        self._policies = None


def _believable(samples: list[Sample]) -> float | None:
    """The slope, if every second sample tells about the same as the others."""
    slopes = [seconds_per_token(samples[start::2]) for start in (0, 1)]
    one, other = slopes
    if one is None or other is None or abs(math.log(one / other)) > _AGREEMENT:
        return None
    return math.sqrt(one * other)


def seconds_per_token(samples: list[Sample]) -> float | None:
    """The slope, or None where the samples do not tell."""
    ordered = sorted(samples)
    few, many = ordered[: len(ordered) // 2], ordered[-(len(ordered) // 5) :]
    if not few or _mean_tokens(many) - _mean_tokens(few) < _APART:
        return None

    def too_flat(slope: float) -> bool:
        return _rest(many, slope) > _rest(few, slope)

    flat, steep = _FLAT, _STEEP
    if not too_flat(flat) or too_flat(steep):
        return None
    for _ in range(_HALVINGS):
        middle = math.sqrt(flat * steep)
        if too_flat(middle):
            flat = middle
        else:
            steep = middle
    return math.sqrt(flat * steep)


def _mean_tokens(samples: list[Sample]) -> float:
    return sum(tokens for tokens, _ in samples) / len(samples)


def _rest(samples: list[Sample], slope: float) -> float:
    """What the short ones take beside their prefill."""
    rest = sorted([seconds - slope * tokens for tokens, seconds in samples])
    return rest[int(len(rest) * _SHORT)]
