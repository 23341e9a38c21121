"""The prefill rate that a router learns from how long requests take."""

import random

import pytest

from extproc.routing import LearnedRate, Policy
from extproc.routing.prefill_rate import TOGETHER, Sample, seconds_per_token


def requests(rate: float, count: int, *, seed: int = 1) -> list[Sample]:
    """Requests that wait, prefill at a rate, and decode; most of their time is not prefill."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        tokens = round(draw.lognormvariate(7, 1.2))
        wait = draw.expovariate(1 / 0.5) if draw.random() < 0.3 else 0.0
        decoding = 0.025 * draw.lognormvariate(4.5, 0.8)
        made.append((tokens, wait + tokens / rate + decoding))
    return made


@pytest.mark.parametrize("rate", [2_000, 8_000])
@pytest.mark.parametrize("wrong", [1 / 3, 3])
def test_a_wrong_guess_is_corrected(rate: int, wrong: float) -> None:
    learned = LearnedRate(round(rate * wrong))
    for tokens, seconds in requests(rate, 3000):
        learned.observe(tokens, seconds)
    assert learned.tokens_per_second == pytest.approx(TOGETHER * rate, rel=0.25)


def test_without_waits_and_decoding_the_slope_is_exact() -> None:
    samples = [(tokens, 0.4 + tokens / 5_000) for tokens in range(0, 20_000, 100)]
    assert seconds_per_token(samples) == pytest.approx(1 / 5_000, rel=0.01)


def test_what_tells_nothing_changes_nothing() -> None:
    alike = LearnedRate(5_000)
    random_times = LearnedRate(5_000)
    draw = random.Random(1)
    for _ in range(2_000):
        alike.observe(200 + draw.randrange(50), draw.random())
        random_times.observe(draw.randrange(5_000), 1.0)
    assert alike.tokens_per_second == 5_000
    assert random_times.tokens_per_second == 5_000
    assert seconds_per_token([]) is None
    assert seconds_per_token([(10, 1.0)]) is None


def test_few_requests_prove_nothing() -> None:
    learned = LearnedRate(20_000)
    for tokens, seconds in requests(2_000, 99):
        learned.observe(tokens, seconds)
    assert learned.tokens_per_second == 20_000


def test_a_policy_is_made_once_for_each_rate() -> None:
    policy = Policy(prefill_rate=20_000, threshold=7)
    learned = LearnedRate(20_000)
    assert learned.applied(policy) == policy
    assert learned.applied(policy) is learned.applied(policy)
    for tokens, seconds in requests(4_000, 1000):
        learned.observe(tokens, seconds)
    assert learned.applied(policy).prefill_rate == learned.tokens_per_second != 20_000
    assert learned.applied(policy).threshold == 7
    other = Policy(threshold=9)
    assert learned.applied(other).threshold == 9
