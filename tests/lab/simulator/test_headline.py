"""What a simulation says to people who do not route."""

from dataclasses import replace

import pytest

from extproc.lab.simulator.headline import duration, headline
from tests.lab.simulator.samples import BASE

OURS = replace(
    BASE, strategy="kv_aware", hit_rate=0.8, ttft_mean_s=0.25, ttft_p50_s=0.2, ttft_p90_s=0.5
)
LEAST = replace(BASE, strategy="least_outstanding_requests", hit_rate=0.45, ttft_mean_s=0.5)


def test_a_gain() -> None:
    found = headline([BASE, LEAST, OURS])
    assert found.sentence == (
        "Prefix-aware routing (kv_aware) shortens the mean wait for the first token by 50% "
        "against routing to the least busy and by 75% against random routing. The replicas find "
        "80% of all prompt tokens in their caches instead of 45% and 40%."
    )
    least, random = found.comparisons
    assert (least.baseline, random.baseline) == ("least_outstanding_requests", "random")
    assert [(each.before, each.after, each.change) for each in random.changes] == [
        ("1.00 s", "250 ms", "\N{MINUS SIGN}75%"),
        ("500 ms", "200 ms", "\N{MINUS SIGN}60%"),
        ("2.00 s", "500 ms", "\N{MINUS SIGN}75%"),
        ("40.0%", "80.0%", "+40.0 points"),
    ]
    assert all(each.better for each in random.changes)


def test_a_loss_is_told_as_one() -> None:
    worse = replace(OURS, ttft_mean_s=0.75, hit_rate=0.3)
    found = headline([worse, BASE, LEAST])
    assert (
        "lengthens the mean wait for the first token by 50% against routing to the least busy, "
        "and shortens the mean wait for the first token by 25% against random"
    ) in found.sentence
    assert [each.better for each in found.comparisons[0].changes] == [False, True, True, False]


@pytest.mark.parametrize(("mean", "spread"), [(1.01, 0.0), (0.99, 0.0), (0.7, 0.31), (1.3, 0.31)])
def test_what_may_be_chance_is_no_difference(mean: float, spread: float) -> None:
    alike = replace(OURS, ttft_mean_s=mean, ttft_mean_spread_s=spread)
    sentence = headline([alike, BASE]).sentence
    assert "(kv_aware) makes no clear difference against random routing." in sentence


def test_the_same_hits() -> None:
    sentence = headline([replace(OURS, hit_rate=0.404), BASE]).sentence
    assert sentence.endswith("find 40% of all prompt tokens in their caches either way.")


def test_prefix_aware_stands_in() -> None:
    assert "(prefix_aware)" in headline([replace(OURS, strategy="prefix_aware"), BASE]).sentence


@pytest.mark.parametrize(
    ("strategy", "missing"), [("kv_aware", "random"), ("oracle", "kv_aware or prefix_aware")]
)
def test_nothing_to_compare_with(strategy: str, missing: str) -> None:
    found = headline([replace(OURS, strategy=strategy)])
    assert found.sentence.startswith(
        f"{strategy} has the shortest mean time to first token: 250 ms"
    )
    assert missing in found.sentence
    assert found.comparisons == ()


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.00234, "2.34 ms"),
        (0.025, "25.0 ms"),
        (0.9996, "1.00 s"),
        (12.34, "12.3 s"),
        (250, "250 s"),
    ],
)
def test_durations_have_three_digits(seconds: float, words: str) -> None:
    assert duration(seconds) == words
