import json
from pathlib import Path
from typing import Any

import pytest

from extproc.lab.simulator.calls import Call
from extproc.lab.simulator.traces import ANSWER_TOKENS, TraceError, read_trace


def write(path: Path, *lines: Any) -> Path:
    file = path / "trace.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return file


def mooncake(at_ms: int, tokens: int, *ids: int) -> dict[str, Any]:
    return {"timestamp": at_ms, "input_length": tokens, "output_length": 7, "hash_ids": ids}


def chat(at_ms: int, *said: str, **more: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in said]
    body = {"model": "m", "messages": messages}
    return {"timestamp": at_ms, "path": "/v1/chat/completions", "body": body, **more}


def calls(file: Path, **options: Any) -> list[Call]:
    return list(read_trace(file, **options).calls)


def test_mooncake_blocks_become_blocks_of_the_engine(tmp_path: Path) -> None:
    file = write(tmp_path, mooncake(1000, 1100, 5, 6, 7), mooncake(3000, 600, 5, 8))
    first, second = calls(file)
    assert (first.at_s, second.at_s) == (0.0, 2.0)
    assert (first.prompt_tokens, first.output_tokens) == (1100, 7)
    assert (len(first.chain), len(second.chain)) == (68, 37)
    assert first.chain[:32] == second.chain[:32]
    assert not set(first.chain[32:]) & set(second.chain[32:])


def test_rate_and_limit(tmp_path: Path) -> None:
    file = write(tmp_path, *(mooncake(1000 * second, 100, 1) for second in range(5)))
    assert [call.at_s for call in calls(file, rate_scale=2.0, limit=3)] == [0.0, 0.5, 1.0]
    assert read_trace(file, limit=3).requests == 3


def test_a_log_is_read_as_the_router_reads_requests(tmp_path: Path) -> None:
    shared = "x" * 1000
    file = write(
        tmp_path,
        chat(0, shared + "a" * 400),
        chat(10, shared + "b" * 400, output_length=99),
        {**chat(20, shared + "a" * 400), "body": json.dumps(chat(0, shared + "a" * 400)["body"])},
    )
    first, second, third = calls(file)
    assert 350 < first.prompt_tokens < 400
    common = sum(x == y for x, y in zip(first.chain, second.chain, strict=True))
    assert 1000 // 64 <= common < 1100 // 64
    assert third.chain == first.chain
    assert (first.output_tokens, second.output_tokens) == (ANSWER_TOKENS, 99)
    assert calls(file, output_tokens=7)[0].output_tokens == 7


def test_limits_of_a_body_are_its_output(tmp_path: Path) -> None:
    line = chat(0, "hello")
    line["body"]["max_tokens"] = 321
    assert calls(write(tmp_path, line))[0].output_tokens == 321


def test_requests_without_a_prompt_share_nothing(tmp_path: Path) -> None:
    line = {"timestamp": 0, "path": "/v1/chat/completions", "body": ""}
    (call,) = calls(write(tmp_path, line))
    assert call.chain == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"timestamp": "x"}, "line 1: not a JSON object with a number in 'timestamp'"),
        ([1], "line 1: not a JSON object"),
        ({"timestamp": 1}, "line 1: neither 'hash_ids'"),
        (mooncake(0, 2000, 1), "hash_ids lack 93 blocks"),
        ({"timestamp": 1, "body": {}}, "line 1: KeyError\\('path'\\)"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, line))


def test_an_empty_file_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="has no requests"):
        read_trace(write(tmp_path))


def decided(at_ms: float, total: int, *checkpoints: tuple[int, str], **more: Any) -> dict[str, Any]:
    return {
        "timestamp": at_ms,
        "pool": "llm",
        "total_tokens": total,
        "tokens": [tokens for tokens, _ in checkpoints],
        "hashes": [value for _, value in checkpoints],
    } | more


def test_prompts_of_a_decision_log_share_the_blocks_up_to_a_common_checkpoint(
    tmp_path: Path,
) -> None:
    file = write(
        tmp_path,
        decided(5000.5, 300, (64, "0a"), (128, "0b"), (250, "0c")),
        decided(6000.5, 140, (64, "0a"), (128, "0d"), output_length=9),
    )
    first, second = calls(file)
    assert (first.at_s, second.at_s) == (0.0, 1.0)
    assert (first.prompt_tokens, first.output_tokens) == (300, ANSWER_TOKENS)
    assert (second.prompt_tokens, second.output_tokens) == (140, 9)
    assert (len(first.chain), len(second.chain)) == (15, 8)
    assert first.chain[:4] == second.chain[:4]
    assert not set(first.chain[4:]) & set(second.chain[4:])
    assert len(set(first.chain)) == 15


def test_requests_without_a_prompt_are_passed_over(tmp_path: Path) -> None:
    file = write(tmp_path, decided(0, 0), decided(1, 10), decided(2, 0), decided(3, 20))
    assert [call.prompt_tokens for call in calls(file)] == [10, 20]
    assert read_trace(file, limit=1).requests == 1


def test_one_pool_at_a_time(tmp_path: Path) -> None:
    file = write(tmp_path, decided(0, 10), decided(1, 20, pool="gold"), decided(2, 30))
    with pytest.raises(TraceError, match=r"line 2: pools 'gold', 'llm' are not one; .* --pool"):
        read_trace(file)
    assert [call.prompt_tokens for call in calls(file, pool="llm")] == [10, 30]
    with pytest.raises(TraceError, match="no requests of pool 'silver'"):
        read_trace(file, pool="silver")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (decided(0, 10, (64, "0a")), "line 1: .*behind the prompt's 10 tokens"),
        (decided(0, 100, (64, "zz")), "line 1: ValueError"),
        (decided(0, 100, (64, "0a"), hashes=[]), "line 1: ValueError"),
    ],
)
def test_a_broken_decision_is_named(tmp_path: Path, line: Any, message: str) -> None:
    with pytest.raises(TraceError, match=message):
        read_trace(write(tmp_path, line))
