from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.lab.replica.cache import BlockCache
from extproc.lab.replica.engine import Engine
from extproc.lab.replica.latency import PROFILES, Chunk
from extproc.lab.replica.request import Output, Request

H100 = PROFILES["llama-3.1-70b/8xh100"]


def make_engine(capacity: int = 100_000, max_sequences: int = 0, batch_tokens: int = 0) -> Engine:
    return Engine(
        H100, BlockCache(capacity), max_sequences=max_sequences, batch_tokens=batch_tokens
    )


def hashes(chain: int, tokens: int) -> list[int]:
    return [chain * 10_000 + index for index in range(tokens // 16)]


def drain(engine: Engine) -> tuple[float, list[tuple[float, Output]]]:
    now = 0.0
    outputs = []
    while step := engine.step(now):
        assert step.started == now
        now += step.duration_s
        outputs += [(now, output) for output in step.outputs]
    return now, outputs


def test_nothing_to_do() -> None:
    assert make_engine().step(0.0) is None


def test_one_request_prefills_then_decodes() -> None:
    engine = make_engine()
    engine.add(Request("a", prompt_tokens=1000, output_tokens=3))
    _, outputs = drain(engine)
    assert [(output.index, output.finished) for _, output in outputs] == [
        (0, False),
        (1, False),
        (2, True),
    ]
    first, second, third = (at for at, _ in outputs)
    assert first == pytest.approx(0.0453, abs=0.0001)
    assert second - first == pytest.approx(0.0101, abs=0.0001)
    assert third > second
    assert engine.counters.prompt_tokens == 1000
    assert engine.counters.generation_tokens == 3
    assert engine.cache.held_blocks == 0


def test_a_second_equal_prompt_hits_all_but_its_last_block() -> None:
    engine = make_engine()
    for name in ("a", "b"):
        engine.add(Request(name, 1024, 1, hashes(1, 1024)))
        _, outputs = drain(engine)
    # The last token is always computed, and with it its block.
    assert outputs[0][1].cached_tokens == 1008
    assert engine.counters.prefix_queries == 2048
    assert engine.counters.prefix_hits == 1008


def test_equal_prompts_that_start_in_one_step_are_computed_once() -> None:
    engine = make_engine()
    for name in ("a", "b", "c"):
        engine.add(Request(name, 1024, 1, hashes(1, 1024)))
    end, outputs = drain(engine)
    assert [output.cached_tokens for _, output in outputs] == [0, 1008, 1008]
    assert end == pytest.approx(H100.prefill_s([Chunk(1024, 0), *[Chunk(16, 1008)] * 2]))
    assert engine.cache.held_blocks == 0


def test_the_profile_sets_the_limits_unless_told() -> None:
    engine = make_engine()
    engine.add(Request("a", 20_000, 1))
    engine.add(Request("b", 16, 1))
    engine.step(0.0)
    assert (engine.running, engine.waiting) == (1, 1)
    with pytest.raises(ValueError, match="4 sequences cannot decode in steps of 3 tokens"):
        make_engine(max_sequences=4, batch_tokens=3)


def test_the_answer_is_cached_for_the_next_turn() -> None:
    engine = make_engine()
    chain = hashes(1, 4096)
    engine.add(Request("a", 1000, 100, chain[: 1100 // 16]))
    drain(engine)
    engine.add(Request("b", 1200, 1, chain[: 1200 // 16]))
    _, outputs = drain(engine)
    assert outputs[0][1].cached_tokens == 1088  # 68 whole blocks of the 1099 tokens computed


def test_a_long_prompt_is_prefilled_in_chunks() -> None:
    engine = make_engine(batch_tokens=512)
    engine.add(Request("a", 1200, 1))
    steps = []
    while step := engine.step(0.0):
        steps.append(len(step.outputs))
    assert steps == [0, 0, 1]


def test_decodes_go_on_while_a_long_prompt_prefills() -> None:
    engine = make_engine(batch_tokens=512)
    engine.add(Request("a", 16, 5))
    engine.step(0.0)
    engine.add(Request("b", 1200, 1))
    step = engine.step(0.0)
    assert step is not None
    assert [output.id for output in step.outputs] == ["a"]


def test_requests_wait_for_a_place_in_order() -> None:
    engine = make_engine(max_sequences=1)
    for name in ("a", "b", "c"):
        engine.add(Request(name, 16, 2))
    engine.step(0.0)
    assert (engine.running, engine.waiting) == (1, 2)
    _, outputs = drain(engine)
    assert [output.id for _, output in outputs if output.finished] == ["a", "b", "c"]


def test_a_full_cache_makes_the_youngest_start_over() -> None:
    engine = make_engine(capacity=10 * 16)
    engine.add(Request("a", 64, 60))
    engine.add(Request("b", 64, 60))
    _, outputs = drain(engine)
    assert engine.counters.preemptions == 1
    assert [output.id for _, output in outputs if output.finished] == ["a", "b"]
    assert [output.index for _, output in outputs if output.id == "b"] == list(range(60))


def test_an_aborted_request_gives_its_blocks_back() -> None:
    engine = make_engine()
    engine.add(Request("a", 1000, 10, hashes(1, 1000)))
    engine.add(Request("b", 1000, 10))
    engine.step(0.0)
    assert engine.abort("a")
    assert not engine.abort("a")
    assert engine.running == 1
    assert engine.cache.held_blocks == 63
    assert engine.cache.lookup(hashes(1, 1000)) == 62


@pytest.mark.parametrize(("prompt", "output"), [(0, 1), (1, 0), (150, 11)])
def test_requests_that_could_never_run_are_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match="token"):
        make_engine(capacity=160).add(Request("a", prompt, output))


Shape = tuple[int, int, int]  # chain, prompt tokens, output tokens


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 120), st.integers(1, 30)),
        min_size=1,
        max_size=12,
    ),
    st.integers(1, 4),
    st.integers(4, 64),
)
def test_every_request_is_answered_within_budget_and_capacity(
    shapes: Sequence[Shape], max_sequences: int, batch_tokens: int
) -> None:
    engine = make_engine(160, max_sequences, batch_tokens)
    fill(engine, shapes)
    tokens = dict.fromkeys(map(str, range(len(shapes))), 0)
    while step := engine.step(0.0):
        assert engine.cache.held_blocks <= 10
        assert engine.running <= max_sequences
        assert len(step.outputs) <= max_sequences
        # A step cannot take longer than a prefill of the whole budget behind the longest context.
        assert step.duration_s < (11 + 0.1 * batch_tokens) / 1000
        for token in step.outputs:
            assert token.index == tokens[token.id]
            assert 0 <= token.cached_tokens < shapes[int(token.id)][1]
            tokens[token.id] += 1
    assert list(tokens.values()) == [output for _, _, output in shapes]
    assert engine.cache.held_blocks == 0
    assert engine.counters.prefix_queries == sum(prompt for _, prompt, _ in shapes)
    assert engine.counters.generation_tokens == sum(output for _, _, output in shapes)


def fill(engine: Engine, shapes: Sequence[Shape]) -> None:
    for number, (chain, prompt, output) in enumerate(shapes):
        engine.add(Request(str(number), prompt, output, hashes(chain, prompt + output)))


Ends = dict[tuple[str, int], tuple[float, Output]]


def arrive(engine: Engine, times: list[float], now: float) -> None:
    """Add what arrives up to ``now``, and take it from ``times``."""
    while times and times[0] <= now:
        engine.add(Request(f"late{len(times)}", 40, 9, hashes(9, 49)))
        times.pop(0)


def run_in_steps(engine: Engine, times: list[float]) -> Ends:
    ends: Ends = {}
    now = 0.0
    while (step := engine.step(now)) or times:
        now = now + step.duration_s if step else times[0]
        for output in step.outputs if step else ():
            if output.index == 0 or output.finished:
                ends[output.id, output.index] = (now, output)
        arrive(engine, times, now)
    return ends


def run_in_leaps(engine: Engine, times: list[float]) -> Ends:
    ends: Ends = {}
    now = 0.0
    while (end := engine.begin(now)) or times:
        if end is None:
            now = times[0]
            arrive(engine, times, now)
            continue
        while times and times[0] <= end:
            end = engine.interrupt(times[0])
            arrive(engine, times, times[0])
        now = end
        ends |= {(output.id, output.index): (now, output) for output in engine.finish()}
    return ends


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 120), st.integers(1, 30)),
        min_size=1,
        max_size=8,
    ),
    st.lists(st.floats(0.001, 0.3), max_size=4),
    st.sampled_from([160, 400, 4000]),
)
def test_leaps_give_what_single_steps_give(
    shapes: Sequence[Shape], arrivals: Sequence[float], capacity: int
) -> None:
    """First and last tokens come at the same times, also when requests arrive meanwhile."""
    stepping, leaping = make_engine(capacity, 4, 64), make_engine(capacity, 4, 64)
    fill(stepping, shapes)
    fill(leaping, shapes)
    expected = run_in_steps(stepping, sorted(arrivals))
    got = run_in_leaps(leaping, sorted(arrivals))
    assert got.keys() == expected.keys()
    for key, (at, output) in expected.items():
        assert got[key][0] == pytest.approx(at)
        assert got[key][1] == output
    assert leaping.counters == stepping.counters
    assert leaping.cache.held_blocks == 0
