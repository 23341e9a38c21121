import json
import statistics

import pytest

from extproc.lab.workload import (
    Conversation,
    Workload,
    at_speed,
    chats,
    infinite_cache,
    infinite_cache_hit_rate,
    shared_prefixes,
    sharegpt_like,
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


def test_chats_have_sharegpts_lengths() -> None:
    workload = sharegpt_like(seed=1, requests=20_000, rate=8)
    assert workload.requests == 20_000
    turns = [len(chat.turns) for chat in workload.conversations]
    assert statistics.fmean(turns) == pytest.approx(5.75, rel=0.06)
    assert sum(number > 1 for number in turns) / len(turns) == pytest.approx(0.73, abs=0.02)
    said = [len(text) / 4 for chat in workload.conversations for text in chat.turns]
    answered = [tokens for chat in workload.conversations for tokens in chat.answers]
    assert statistics.fmean(said) == pytest.approx(161, rel=0.05)
    assert statistics.fmean(answered) == pytest.approx(338, rel=0.05)
    assert workload.conversations[-1].at_s == pytest.approx(20_000 / 8, rel=0.05)


def test_each_answer_has_its_own_length() -> None:
    chat = Conversation(0, "", ["one", "two"], 5, answers=[6, 7])
    bodies = [json.loads(Workload("", "m", [chat]).body(chat, turn, ["x"])) for turn in range(2)]
    assert [body["max_tokens"] for body in bodies] == [6, 7]
    assert [message["role"] for message in bodies[1]["messages"]] == ["user", "assistant", "user"]


def test_a_faster_workload_is_the_same_but_for_the_times() -> None:
    workload = sharegpt_like(seed=1, requests=30, rate=8)
    faster = at_speed(workload, 4)
    assert at_speed(faster, 0.25) == workload
    assert faster.conversations[3].at_s == workload.conversations[3].at_s / 4
    assert infinite_cache_hit_rate(faster) == infinite_cache_hit_rate(workload)


def test_what_an_infinite_cache_holds_request_by_request() -> None:
    chats_ = [Conversation(at_s, "s" * 1016, ["a" * 1017], output_tokens=1) for at_s in (0, 1)]
    # The same prompt again: all whole blocks but what holds the last token.
    assert infinite_cache(Workload("", "m", chats_)) == [(515, 0), (515, 512)]
