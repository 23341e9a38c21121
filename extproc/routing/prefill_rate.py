"""How fast a pool's replicas prefill, learned from how long their requests take.

A request takes its wait, its prefill and its decoding; only the prefill grows with the tokens that
were not cached. At the true seconds per token, what the short ones among the requests take besides
is the same for few tokens and for many, and lies close together. How close it lies at each rate is
evidence: of the rate alone, not of the guess to begin with, so that what several routers have seen
adds up.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace

from extproc.routing.model import Policy

Sample = tuple[int, float]
"""Uncached tokens, and seconds from the choice to the end."""

Evidence = Sequence[float]
"""How much more likely the samples are at each of ``RATES``, as logarithms; 0 for the likeliest."""

RATES = tuple(2_000 * 1.25**step for step in range(25))
"""Tokens per second that are weighed against each other, up to 423,000."""

NOTHING: Evidence = (0.0,) * len(RATES)
"""No evidence."""

_LOGS = tuple(math.log(rate) for rate in RATES)
_BATCH = 125
_SHORT = 0.15
"""The quantile that stands for the short ones."""

_FADING = 0.99
"""What a batch leaves of the evidence before it: some hundred batches count."""

_GUESS_WIDTH = 1.1
"""How far from the guess the rate may well be, as a logarithm: by a factor of three."""

_CAUTION = 1.0
"""By how many standard deviations the rate is taken lower than it seems. A queue that is thought
empty too early costs more than one that is thought full too long."""

_LEAST = 9999
_FIELD = re.compile(r"0|-[0-9]{1,4}")

TOGETHER = 1.1
"""How much faster a queue is prefilled than one request: several fill an engine's iterations better
than one, which shares them with what decodes. Chosen in the simulator.
"""


class LearnedRate:
    """An estimate that begins with a guess and follows what is seen.

    Args:
        guess: Tokens per second.
    """

    def __init__(self, guess: int) -> None:
        self.tokens_per_second = guess
        self.evidence: Evidence = NOTHING
        self._guess = guess
        self._others: Evidence = NOTHING
        self._samples: list[Sample] = []
        self._policies: tuple[Policy, Policy] | None = None

    def applied(self, policy: Policy) -> Policy:
        """The policy with this rate."""
        if self._policies is None or self._policies[0] is not policy:
            learned = replace(policy, prefill_rate=self.tokens_per_second)
            self._policies = policy, learned
        return self._policies[1]

    def observe(self, uncached_tokens: int, seconds: float) -> bool:
        """Take in a request that was served.

        Returns:
            Whether that made new evidence.
        """
        self._samples.append((uncached_tokens, seconds))
        if len(self._samples) < _BATCH:
            return False
        found = evidence_of(self._samples)
        self._samples.clear()
        self.evidence = _relative(
            [_FADING * before + now for before, now in zip(self.evidence, found, strict=True)]
        )
        self._weigh()
        return True

    def hear(self, others: Iterable[Evidence]) -> None:
        """Take in all that other routers have seen."""
        known = _relative([sum(column) for column in zip(NOTHING, *others, strict=True)])
        if known != self._others:
            self._others = known
            self._weigh()

    def _weigh(self) -> None:
        weights = _relative(
            [
                own + others - ((log - math.log(self._guess)) / _GUESS_WIDTH) ** 2 / 2
                for log, own, others in zip(_LOGS, self.evidence, self._others, strict=True)
            ]
        )
        chances = [math.exp(weight) for weight in weights]
        mean = _mean(_LOGS, chances)
        spread = math.sqrt(_mean([(log - mean) ** 2 for log in _LOGS], chances))
        self.tokens_per_second = round(TOGETHER * math.exp(mean - _CAUTION * spread))
        self._policies = None


def as_text(evidence: Evidence) -> str:
    """Evidence in tenths, rounded: some hundred characters."""
    return " ".join([str(max(-_LEAST, round(10 * log))) for log in evidence])


def from_text(text: str) -> Evidence | None:
    """What ``as_text`` made; None where another release meant something else."""
    fields = text.split(" ", len(RATES))
    if len(fields) != len(RATES) or not all(_FIELD.fullmatch(field) for field in fields):
        return None
    return _relative([int(field) / 10 for field in fields])


def evidence_of(samples: Sequence[Sample]) -> Evidence:
    """What requests tell of the rate.

    The likelihood of what they take besides their prefill, if that is spread about its short ones
    as an asymmetric Laplace distribution of whatever place and width fit best (the distribution
    behind quantile regression: Koenker and Machado, 1999).
    """
    return _relative([-len(samples) * math.log(_spread(samples, 1 / rate)) for rate in RATES])


def _spread(samples: Sequence[Sample], slope: float) -> float:
    """How far, in the mean, the rests lie from the short ones; seconds."""
    rests = sorted([seconds - slope * tokens for tokens, seconds in samples])
    at = int(len(rests) * _SHORT)
    short = rests[at]
    below = at * short - sum(rests[:at])
    above = sum(rests[at:]) - (len(rests) - at) * short
    return max(1e-9, ((1 - _SHORT) * below + _SHORT * above) / len(rests))


def _relative(logs: Sequence[float]) -> Evidence:
    most = max(logs)
    return tuple([log - most for log in logs])


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return sum(map(float.__mul__, values, weights)) / sum(weights)
