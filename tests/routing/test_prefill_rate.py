"""The prefill rate that a router learns from how long requests take."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.routing import LearnedRate, Policy, as_text, from_text
from extproc.routing.prefill_rate import NOTHING, RATES, TOGETHER, Sample, evidence_of


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


def after(guess: float, samples: list[Sample]) -> LearnedRate:
    learned = LearnedRate(round(guess))
    for tokens, seconds in samples:
        learned.observe(tokens, seconds)
    return learned


@pytest.mark.parametrize("rate", [4_000, 8_000, 20_000])
@pytest.mark.parametrize("wrong", [1 / 3, 1, 3])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_wrong_guess_is_corrected(rate: int, wrong: float, seed: int) -> None:
    learned = after(rate * wrong, requests(rate, 3000, seed=seed))
    assert learned.tokens_per_second == pytest.approx(TOGETHER * rate, rel=0.3)


def test_without_waits_and_decoding_the_rate_is_exact() -> None:
    rate = RATES[5]
    evidence = evidence_of([(tokens, 0.4 + tokens / rate) for tokens in range(0, 20_000, 100)])
    assert evidence[5] == 0
    assert max(each for at, each in enumerate(evidence) if at != 5) < -100


def test_what_tells_nothing_leaves_the_guess_in_doubt() -> None:
    alike = after(5_000, [(200, random.Random(1).random())] * 2000)
    assert set(alike.evidence) == {0.0}
    assert 5_000 / 4 < alike.tokens_per_second < 5_000


def test_few_requests_prove_nothing() -> None:
    assert after(20_000, requests(2_000, 124)).tokens_per_second == 20_000


def test_a_faster_engine_is_noticed() -> None:
    learned = after(4_000, requests(4_000, 3000))
    for tokens, seconds in requests(40_000, 12_000, seed=2):
        learned.observe(tokens, seconds)
    assert learned.tokens_per_second > 25_000


def test_what_several_have_seen_adds_up() -> None:
    parts = [requests(8_000, 125, seed=seed) for seed in range(8)]
    alone = after(24_000, [sample for part in parts for sample in part])
    several = [after(24_000, part) for part in parts]
    first = several[0]
    first.hear([other.evidence for other in several[1:]])
    assert first.tokens_per_second == pytest.approx(alone.tokens_per_second, rel=0.05)
    newcomer = LearnedRate(24_000)
    newcomer.hear([other.evidence for other in several])
    assert newcomer.tokens_per_second == first.tokens_per_second
    newcomer.hear([])
    assert newcomer.tokens_per_second < 24_000, "nothing known: careful"


@given(st.lists(st.tuples(st.integers(0, 10**7), st.floats(0, 1e6)), min_size=1, max_size=200))
def test_any_samples_give_a_rate_and_a_text(samples: list[Sample]) -> None:
    evidence = evidence_of(samples)
    text = as_text(evidence)
    back = from_text(text)
    assert back is not None
    assert max(back) == 0
    assert back == pytest.approx([max(-999.9, each) for each in evidence], abs=0.051)
    learned = after(24_000, samples * (1 + 125 // len(samples)))
    assert RATES[0] / 2 < learned.tokens_per_second < RATES[-1] * 2


@pytest.mark.parametrize(
    "text", ["", "0", "0 " * 25, "x", " ".join(["1"] * 25), " ".join(["-1e9"] * 25), "0 " * 10**6]
)
def test_what_another_release_wrote_counts_as_nothing(text: str) -> None:
    assert from_text(text) is None


def test_nothing_is_nothing_in_text_too() -> None:
    assert from_text(as_text(NOTHING)) == NOTHING


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
