"""What the real stack and the simulator are compared on is the same."""

import pytest

from extproc.lab import workload
from extproc.lab.bench.agreement import Agreement, as_calls
from extproc.lab.simulator import trial


@pytest.mark.parametrize(
    "work",
    [
        workload.shared_prefixes(seed=1, groups=4, requests=20, rate=5, prefix_tokens=200),
        workload.sharegpt_like(seed=2, requests=30, rate=5),
    ],
    ids=["shared prefixes", "chats"],
)
def test_both_send_the_same_prompts(work: workload.Workload) -> None:
    sent = as_calls(work)
    assert sent.requests == work.requests
    assert trial.infinite_cache_hit_rate(sent) == pytest.approx(
        workload.infinite_cache_hit_rate(work), abs=0.001
    )
    queries = [lookup.tokens for lookup in workload.infinite_cache(work)]
    calls = []
    for call in as_calls(work).calls:
        calls.append(call.prompt_tokens)
        while call.then is not None:
            call = call.then[1]  # noqa: PLW2901  # along the conversation
            calls.append(call.prompt_tokens)
    assert sorted(calls) == sorted(queries)


def test_conversations_begin_and_pause_as_the_client_does() -> None:
    work = workload.chats(seed=1, conversations=3, turns=2, rate=2, think_s=0.7, output_tokens=9)
    first = list(as_calls(work).calls)
    assert [call.at_s for call in first] == [chat.at_s for chat in work.conversations]
    for call in first:
        assert call.then is not None
        pause, turn = call.then
        assert pause == 0.7
        assert turn.output_tokens == 9
        assert turn.prompt_tokens > call.prompt_tokens


@pytest.mark.parametrize(
    ("hits", "p50", "holds"),
    [(0.80, 0.100, True), (0.821, 0.100, False), (0.80, 0.111, False), (0.781, 0.091, True)],
)
def test_agreement(hits: float, p50: float, holds: bool) -> None:
    assert Agreement("chats", "kv_aware", hits, 0.80, p50, 0.100).holds is holds
