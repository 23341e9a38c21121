"""The log of decisions: what it holds, what it hides, and that no request waits for it."""

import errno
import json
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from extproc.lab.simulator.calls import Call
from extproc.lab.simulator.results import summarize
from extproc.lab.simulator.traces import read_trace
from extproc.lab.simulator.trial import Setup, simulate
from extproc.pool_settings import parse
from extproc.prompt import checkpoint_positions, fingerprint
from extproc.prompt.model import Api, Fingerprint, Prompt
from extproc.routing import Decision, Reason
from extproc.server import decision_log
from extproc.server.app import ServeError
from extproc.server.decision_log import DecisionLog, Entry
from extproc.server.question import with_session
from tests.server.conftest import STATIC, Serve, Served
from tests.server.messages import (
    GET,
    JSON,
    destinations,
    request_body,
    request_headers,
    response_headers,
)
from tests.server.test_stream import end, exchange, quiet

KEY = "0123456789abcdef"
A = "10.0.0.1:80"


def print_of(text: str) -> Fingerprint:
    return fingerprint(Prompt(Api.CHAT, text.encode()), pool="llm")


def entry(text: str = "x" * 1000, **changes: Any) -> Entry:
    decision = Decision((A, "10.0.0.2:80"), Reason.MATCHED, matched_tokens=128, total_tokens=250)
    made = Entry(
        at_s=1_700_000_000.5,
        pool="llm",
        settings=parse(()).settings,
        decision=decision,
        fingerprint=print_of(text),
        served=A,
        status=200,
        duration_s=0.75,
    )
    return replace(made, **changes)


def new(path: Path, key: str = KEY) -> tuple[DecisionLog, Counter[str]]:
    lines: Counter[str] = Counter()
    return DecisionLog(path, key, lines), lines


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_line(tmp_path: Path) -> None:
    log, lines = new(tmp_path / "log.jsonl")
    log.start()
    log.add(entry())
    log.close()

    (line,) = read(tmp_path / "log.jsonl")
    hashes = line.pop("hashes")
    assert line == {
        "timestamp": 1_700_000_000_500.0,
        "pool": "llm",
        "mode": "enforce",
        "strategy": "kv_aware",
        "total_tokens": 250,
        "tokens": [64, 128, 192],
        "ranked": [A, "10.0.0.2:80"],
        "reason": "matched",
        "matched_tokens": 128,
        "served": A,
        "status": 200,
        "duration_ms": 750.0,
    }
    assert [len(bytes.fromhex(value)) for value in hashes] == [8, 8, 8]
    assert lines == {"written": 1}


def test_a_request_without_prompt_or_answer(tmp_path: Path) -> None:
    log, _ = new(tmp_path / "log.jsonl")
    line = json.loads(log.line(entry(fingerprint=None, served="", status=0)))

    assert (line["total_tokens"], line["tokens"], line["hashes"]) == (0, [], [])
    assert (line["served"], line["status"]) == (None, None)


def hashes(log: DecisionLog, text: str) -> list[str]:
    return list(json.loads(log.line(entry(text)))["hashes"])


def test_hashes_match_under_one_key_and_no_other(tmp_path: Path) -> None:
    log, again, other, unnamed, unnamed_too = (
        new(tmp_path / "log", key)[0] for key in (KEY, KEY, KEY + "!", "", "")
    )
    text = "a" * 600
    first = hashes(log, text + "b" * 600)

    assert hashes(again, text + "c" * 600)[:2] == first[:2]
    assert not set(hashes(again, text + "c" * 600)[2:]) & set(first)
    for each in (other, unnamed, unnamed_too):
        assert not set(hashes(each, text)) & set(first)
    assert not set(hashes(unnamed, text)) & set(hashes(unnamed_too, text))


def test_who_knows_the_prompt_but_not_the_key_finds_none_of_its_hashes(tmp_path: Path) -> None:
    text = "a prompt that can be guessed " * 50
    line = new(tmp_path / "log")[0].line(entry(text)).decode()

    assert "guessed" not in line
    for value in print_of(text).hashes:
        assert value.hex()[:16] not in line
        assert value.hex()[-16:] not in line


def test_a_session_is_not_taken_for_text(tmp_path: Path) -> None:
    log, _ = new(tmp_path / "log")
    plain = print_of("y" * 1000)
    tied = with_session(plain, b"session 7" + bytes(7))

    assert log.line(entry(fingerprint=tied)) == log.line(entry(fingerprint=plain))


def test_a_file_that_is_moved_away_is_begun_anew(tmp_path: Path) -> None:
    path, old = tmp_path / "log", tmp_path / "log.1"
    log, lines = new(path)
    log._open()
    for pool in ("first", "second"):
        log.add(entry(pool=pool))
        assert log._write_some()
    path.rename(old)
    log.add(entry(pool="third"))
    assert log._write_some()
    log.close()

    assert [line["pool"] for line in read(old)] == ["first", "second"]
    assert [line["pool"] for line in read(path)] == ["third"]
    assert lines == {"written": 3}


def test_a_log_is_continued(tmp_path: Path) -> None:
    for _ in range(2):
        log, _ = new(tmp_path / "log")
        log.start()
        log.add(entry())
        log.close()

    first, second = read(tmp_path / "log")
    assert first == second


def test_too_many_at_once_are_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_log, "WAITING", 20)
    log, lines = new(tmp_path / "log")
    for number in range(50):
        log.add(entry(pool=str(number)))
    assert lines == {"dropped": 30}

    log.start()
    log.close()
    assert [line["pool"] for line in read(tmp_path / "log")] == [str(n) for n in range(20)]
    assert lines == {"dropped": 30, "written": 20}


def disk(monkeypatch: pytest.MonkeyPatch, room: list[int]) -> None:
    """A disk with room for so many bytes."""
    write: Callable[[int, Any], int] = os.write

    def limited(file: int, data: Any) -> int:
        if not room[0]:
            raise OSError(errno.ENOSPC, "full")
        done = write(file, bytes(data)[: room[0]])
        room[0] -= done
        return done

    monkeypatch.setattr("extproc.server.decision_log.os.write", limited)


def test_a_full_disk_costs_lines_and_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, lines = new(tmp_path / "log")
    room = [len(log.line(entry())) * 3 // 2]
    disk(monkeypatch, room)
    log._open()
    with capture_logs() as logs:
        for pool in ("aaa", "bbb", "ccc"):
            log.add(entry(pool=pool))
            assert log._write_some()
        room[0] = 1_000_000
        for pool in ("ddd", "eee"):
            log.add(entry(pool=pool))
            assert log._write_some()
    log.close()

    assert [line["pool"] for line in read(tmp_path / "log")] == ["aaa", "ddd", "eee"]
    assert lines == {"written": 3, "failed": 2}
    assert [(each["log_level"], each["event"]) for each in logs] == [
        ("error", "decision log cannot be written"),
        ("info", "decision log is written again"),
    ]
    assert logs[0]["path"] == str(tmp_path / "log")
    assert logs[0]["error"] == os.strerror(errno.ENOSPC)


def test_a_folder_that_goes_away_is_no_fault_of_the_requests(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    log, lines = new(folder / "log")
    log._open()
    (folder / "log").unlink()
    folder.rmdir()
    with capture_logs():
        log.add(entry())
        assert log._write_some()
        folder.mkdir()
        log.add(entry(pool="again"))
        assert log._write_some()
    log.close()

    assert lines == {"failed": 1, "written": 1}
    assert [line["pool"] for line in read(folder / "log")] == ["again"]


async def test_a_log_that_cannot_be_opened_is_told_at_the_start(
    serve: Serve, tmp_path: Path
) -> None:
    path = tmp_path / "nowhere" / "log"
    with pytest.raises(ServeError, match=r"cannot write the decision log .*no such file.*choose"):
        await serve(decision_log=str(path))


SYSTEM = "You are a librarian who knows every book. " * 60
TOPICS = ("whales", "lighthouses", "bread")


def bodies() -> list[bytes]:
    """Three chats of four turns under one system prompt, in turns, and a lonely long question."""
    asked = []
    for turn in range(1, 5):
        for topic in TOPICS:
            messages = [{"role": "system", "content": SYSTEM}]
            for number in range(turn):
                messages.append({"role": "user", "content": f"More on {topic}, {number}! " * 20})
                messages.append({"role": "assistant", "content": f"{number} about {topic}. " * 30})
            asked.append({"model": "m", "messages": messages[:-1]})
    asked.append({"model": "m", "messages": [{"role": "user", "content": "Alone. " * 300}]})
    return [json.dumps(body).encode() for body in asked]


async def ask(
    served: Served, body: bytes, metadata: tuple[tuple[str, str], ...], **at: Any
) -> None:
    call = served.open(metadata)
    messages = (
        [request_headers(JSON), request_body(body)]
        if body
        else [request_headers(GET, end_of_stream=True)]
    )
    ranked = destinations(await exchange(call, *messages))
    await exchange(call, response_headers(ranked[0] if ranked else A, **at))
    await end(call)
    await quiet(served)


def common(first: Call, second: Call) -> int:
    """Blocks at the start that two prompts share."""
    count = 0
    for one, other in zip(first.chain, second.chain, strict=False):
        if one != other:
            break
        count += 1
    return count


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_a_session_is_simulated_from_its_hashes_as_from_its_bodies(
    serve: Serve, tmp_path: Path, mode: str
) -> None:
    hashed, full = tmp_path / "hashes.jsonl", tmp_path / "bodies.jsonl"
    served = await serve(decision_log=str(hashed), decision_log_key=KEY)
    metadata = (*STATIC, ("x-prefix-mode", mode))
    await ask(served, b"", metadata)
    for body in bodies():
        await ask(served, body, metadata)
    await served.stop()

    assert served.app.router.stats.log_lines == {"written": len(bodies()) + 1}
    text = hashed.read_text()
    assert not [word for word in ("librarian", "Alone", *TOPICS) if word in text]
    lines = sorted(read(hashed), key=lambda line: line["timestamp"])
    assert lines.pop(0)["reason"] == "no_prompt"
    assert {(line["mode"], line["pool"], line["status"]) for line in lines} == {(mode, "llm", 200)}
    assert all(line["served"] in line["ranked"] or mode == "shadow" for line in lines)
    assert lines[0]["reason"] == "cold"
    assert {line["reason"] for line in lines[1:-1]} <= {"matched", "spilled"}

    # The same pace in both, whatever this machine's was.
    for number, line in enumerate(lines):
        line["timestamp"] = 5000 * number
    hashed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    full.write_text(
        "".join(
            json.dumps(
                {"timestamp": 5000 * number, "path": JSON[":path"], "body": json.loads(body)}
            )
            + "\n"
            for number, body in enumerate(bodies())
        )
    )
    by_hash, by_body = (list(read_trace(path).calls) for path in (hashed, full))
    assert [call.prompt_tokens for call in by_hash] == [call.prompt_tokens for call in by_body]
    for one in range(len(by_body)):
        for other in range(one):
            exact = common(by_body[one], by_body[other])
            known = [position // 64 for position in checkpoint_positions(exact * 64)]
            assert common(by_hash[one], by_hash[other]) == (known[-1] if known else 0)

    rates = []
    for path in (hashed, full):
        setup = Setup(str(path), replicas=2)
        rates.append(summarize("kv_aware", 2, [simulate(setup, "kv_aware", 1)]).hit_rate)
    assert rates[1] > 0.5
    assert rates[1] - 1 / 8 < rates[0] <= rates[1]
