import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES, Chunk

H100 = PROFILES["llama-3.1-70b/8xh100"]
A100 = PROFILES["llama-3.1-70b/8xa100"]


def test_a_prefill_of_8000_tokens() -> None:
    # 6 + 0.0405 * 8000 + 1.9e-7 * 8000^2
    assert H100.step_s([Chunk(8000, 0)], []) == pytest.approx(0.34216)
    # 30 + 0.094 * 8000 + 8.7e-7 * 8000^2
    assert A100.step_s([Chunk(8000, 0)], []) == pytest.approx(0.83768)


def test_a_decode_step_of_two_sequences() -> None:
    expected_ms = 10 + 2 * 0.033 + 1.2e-5 * (1000 + 3000)
    assert H100.step_s([], [1000, 3000]) == pytest.approx(expected_ms / 1000)


def test_a_mixed_step_pays_the_larger_base_once() -> None:
    mixed = H100.step_s([Chunk(100, 0)], [1000])
    apart = H100.step_s([Chunk(100, 0)], []) + H100.step_s([], [1000])
    assert mixed == pytest.approx(apart - 0.006)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 50_000), st.integers(1, 50_000))
def test_chunks_cost_what_the_whole_costs_but_for_the_base(first: int, second: int) -> None:
    whole = H100.step_s([Chunk(first + second, 0)], [])
    parts = H100.step_s([Chunk(first, 0)], []) + H100.step_s([Chunk(second, first)], [])
    assert parts == pytest.approx(whole + 0.006)


def test_profiles_are_found_by_their_names() -> None:
    assert all(profile.name == name for name, profile in PROFILES.items())
    assert DEFAULT_PROFILE in PROFILES
