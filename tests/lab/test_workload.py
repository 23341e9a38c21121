import json

import pytest

from extproc.lab.workload import (
    Conversation,
    Workload,
    chats,
    infinite_cache_hit_rate,
    shared_prefixes,
)


def test_the_same_seed_gives_the_same_workload() -> None:
    def make(seed: int) -> Workload:
        return shared_prefixes(seed=seed, groups=3, requests=20, rate=5, prefix_tokens=50)

    assert make(1) == make(1)
    assert make(1) != make(2)


def test_shared_prefixes_have_the_lengths_asked_for() -> None:
    workload = shared_prefixes(
        seed=1, groups=4, requests=30, rate=5, prefix_tokens=50, tail_tokens=7, output_tokens=9
    )
    assert workload.requests == 30
    assert len({chat.system for chat in workload.conversations}) == 4
    assert len({chat.turns[0] for chat in workload.conversations}) == 30
    assert {len(chat.system) for chat in workload.conversations} == {200}
    assert {len(chat.turns[0]) for chat in workload.conversations} == {28}
    times = [chat.at_s for chat in workload.conversations]
    assert times == sorted(times)
    body = json.loads(workload.body(workload.conversations[0], 0, []))
    assert body["max_tokens"] == 9
    assert body["stream"] is True


def test_a_later_turn_repeats_all_that_was_said() -> None:
    workload = chats(seed=1, conversations=2, turns=3, rate=1)
    chat = workload.conversations[0]
    messages = json.loads(workload.body(chat, 2, ["one", "two"]))["messages"]
    assert [message["role"] for message in messages] == [
        "system",
        *("user", "assistant") * 2,
        "user",
    ]
    assert messages[4]["content"] == "two"
    assert messages[5]["content"] == chat.turns[2]


def test_the_hit_rate_of_an_infinite_cache_is_exact() -> None:
    # "<system>" + 1016 + "\n<user>" + 1017 + "\n<assistant>" is 2060 bytes: 515 tokens. The
    # first 1031 bytes are shared: 16 whole blocks, 256 tokens.
    def chat(at_s: float, mark: str) -> Conversation:
        return Conversation(at_s, "s" * 1016, [mark * 1017], output_tokens=1)

    workload = Workload("", "m", [chat(0, "a"), chat(1, "b"), chat(2, "c"), chat(3, "d")])
    assert infinite_cache_hit_rate(workload) == pytest.approx(3 * 256 / (4 * 515))


def test_turns_find_the_answers_before_them() -> None:
    workload = chats(
        seed=1, conversations=1, turns=2, rate=1, system_tokens=64, turn_tokens=64, output_tokens=64
    )
    # Of the second prompt all is known but the second question, its frame and the last block.
    first = 8 + 256 + 7 + 256 + 12
    second = first + 256 + 7 + 256 + 12 + 1
    known = (first + 256) // 64 * 16
    assert infinite_cache_hit_rate(workload) == pytest.approx(
        known / (-(-first // 4) + -(-second // 4)), rel=0.02
    )


def test_nothing_shared_is_never_found() -> None:
    workload = shared_prefixes(seed=1, groups=20, requests=20, rate=5, prefix_tokens=50)
    assert infinite_cache_hit_rate(workload) == 0
