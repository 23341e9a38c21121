import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.replica.latency import DEFAULT_PROFILE, PROFILES, Chunk, Curve, Profile

H100 = PROFILES["llama-3.1-70b/8xh100"]
A100 = PROFILES["llama-3.1-70b/8xa100"]


def test_a_curve_goes_through_its_points_and_on() -> None:
    curve = Curve((10, 1.0), (20, 3.0), (30, 4.0))
    assert [curve.at(x) for x in (0, 10, 15, 20, 25, 30, 50)] == [1, 1, 2, 3, 3.5, 4, 6]


@pytest.mark.parametrize(
    ("profile", "new", "context", "milliseconds"),
    [
        (H100, 1024, 0, 46.242),
        (H100, 8192, 0, 344.263),
        (H100, 1024, 6144, 48.079),
        (H100, 512, 8192, 27.356),
        (H100, 1024, 16384, 53.087),
        (H100, 2048, 30720, 116.084),
        (A100, 8192, 0, 831.750),
        (A100, 1024, 6144, 137.907),
        (A100, 2048, 30720, 339.062),
    ],
)
def test_estimates_of_prefills_are_met(
    profile: Profile, new: int, context: int, milliseconds: float
) -> None:
    got = profile.prefill_s([Chunk(new, context)])
    assert got * 1000 == pytest.approx(milliseconds, rel=1e-3)


@pytest.mark.parametrize(
    ("sequences", "context", "milliseconds"),
    [(1, 1024, 10.122), (32, 4096, 12.664), (256, 16384, 71.645)],
)
def test_estimates_of_decodes_are_met(sequences: int, context: int, milliseconds: float) -> None:
    run = H100.decode_run(sequences, sequences * context)
    assert run.first_s * 1000 == pytest.approx(milliseconds, rel=1e-3)


def test_a_run_of_decodes_takes_what_its_iterations_take() -> None:
    run = H100.decode_run(10, 10 * 2000)
    assert run.iterations == 4096 - 2000 + 1
    for iteration in (0, 7, run.iterations - 1):
        alone = H100.decode_run(10, 10 * (2000 + iteration)).first_s
        assert run.first_s + iteration * run.growth_s == pytest.approx(alone)


def test_a_mixed_step_reads_the_weights_once() -> None:
    mixed = H100.step_s([Chunk(100, 0)], 3, 3000)
    apart = H100.step_s([Chunk(100, 0)]) + H100.step_s([], 3, 3000)
    assert mixed == pytest.approx(apart - H100.weights_s)


@pytest.mark.parametrize("profile", [H100, A100])
def test_a_long_prompt_in_chunks_costs_what_it_costs_whole(profile: Profile) -> None:
    chunks = [profile.prefill_s([Chunk(8192, start)]) for start in range(0, 32768, 8192)]
    assert sum(chunks) == pytest.approx(profile.prefill_s([Chunk(32768, 0)]), rel=0.01)


def test_many_short_prompts_cost_less_attention_than_one_long() -> None:
    short = H100.prefill_s([Chunk(128, 0)] * 64)
    assert 0.95 < short / H100.prefill_s([Chunk(8192, 0)]) < 1


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 5000), st.integers(0, 60_000)), max_size=4),
    st.integers(0, 300),
    st.integers(0, 20_000),
)
def test_more_work_takes_longer(
    chunks: list[tuple[int, int]], sequences: int, context: int
) -> None:
    before = [Chunk(*chunk) for chunk in chunks]
    step = H100.step_s(before, sequences, sequences * context)
    assert H100.step_s([*before, Chunk(512, 0)], sequences, sequences * context) > step
    assert H100.step_s(before, sequences + 300, (sequences + 300) * context) > step


def test_profiles_are_found_by_their_names() -> None:
    assert all(profile.name == name for name, profile in PROFILES.items())
    assert DEFAULT_PROFILE in PROFILES
