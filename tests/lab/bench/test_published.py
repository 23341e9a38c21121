from dataclasses import replace

import pytest

from extproc.lab.bench.published import CHATS, PUBLISHED, SATURATION, Verdict, deviation, judge
from extproc.lab.bench.rows import BenchRow
from tests.lab.bench.samples import BASE, GOOD


def only(row: BenchRow, base: BenchRow, target: str) -> Verdict:
    (verdict,) = [each for each in judge(row, base) if each.target.startswith(target)]
    return verdict


def test_a_good_row_reaches_all_targets() -> None:
    verdicts = judge(GOOD, BASE)
    assert [verdict.met for verdict in verdicts] == [True] * 5
    assert {verdict.strategy for verdict in verdicts} == {"kv_aware"}
    assert not any(verdict.limit for verdict in verdicts)


@pytest.mark.parametrize(
    ("change", "target"),
    [
        ({"hit_rate": 0.819, "infinite_hit_rate": 0.825}, "hits >= 82%"),
        ({"hit_rate": 0.82, "infinite_hit_rate": 0.84}, "hits within"),
        ({"ttft_p50_s": 0.1}, "P50"),
        ({"ttft_p90_s": 0.64}, "P90"),
        ({"share_max": 0.2611}, "every share"),
        ({"share_min": 0.2389}, "every share"),
    ],
)
def test_each_target_can_be_missed_alone(change: dict[str, float], target: str) -> None:
    missed = [each for each in judge(replace(GOOD, **change), BASE) if not each.met]  # type: ignore[arg-type]  # fields by name
    assert [each.target.startswith(target) for each in missed] == [True]
    assert not missed[0].limit


def test_what_no_router_could_reach_is_told() -> None:
    row = replace(GOOD, infinite_hit_rate=0.7, hit_rate=0.7, floor_p90_s=0.8, ttft_p90_s=0.85)
    hits, speed = only(row, BASE, "hits >="), only(row, BASE, "P90")
    assert not hits.met
    assert "70.0%" in hits.limit
    assert not speed.met
    assert "-20%" in speed.limit


def test_throughput_is_judged_at_saturation_alone() -> None:
    base, row = replace(BASE, experiment=SATURATION), replace(GOOD, experiment=SATURATION)
    assert [verdict.met for verdict in judge(row, base)] == [True]
    assert not judge(replace(row, requests_per_s=11.5), base)[0].met


def test_chats_have_targets_of_their_own() -> None:
    base, row = replace(BASE, experiment=CHATS), replace(GOOD, experiment=CHATS)
    assert [verdict.target for verdict in judge(row, base)] == [
        "hits >= 80%",
        "P50 TTFT -16%",
        "P90 TTFT -37%",
    ]


def test_shares_of_few_requests_say_so() -> None:
    few = only(replace(GOOD, requests=300), BASE, "every share")
    assert few.met
    assert few.note.startswith("300 requests placed by lot stray 2.5:")  # sqrt(3/16 / 300)
    assert not only(replace(GOOD, requests=10_000), BASE, "every share").note


def test_the_farthest_share_counts_on_either_side() -> None:
    assert deviation(replace(BASE, share_min=0.2, share_max=0.26)) == pytest.approx(0.05)
    assert deviation(replace(BASE, share_min=0.24, share_max=0.3)) == pytest.approx(0.05)


def test_published_figures_name_fields_of_rows() -> None:
    fields = BASE.as_json().keys() | {"shares"}
    for figures in PUBLISHED.values():
        assert figures.keys() <= fields
