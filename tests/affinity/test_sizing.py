"""What prompts cost in the shared store, as docs/sizing.md has it."""

import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from extproc.affinity import RedisStore, Reservation
from extproc.affinity.connect import connect
from extproc.prompt.checkpoints import checkpoint_positions
from extproc.prompt.fingerprinting import fingerprint
from extproc.prompt.model import Api, Prompt
from extproc.routing import Policy, rendezvous
from tests.affinity.test_agreement import REPLICAS
from tests.valkey import Valkey

PAGE = Path(__file__).parents[2] / "docs" / "sizing.md"
ROW = re.compile(r"^\| ([\d,]+) B \| (\d+) \| ([\d.]+) kB \|", re.MULTILINE)
PROMPTS = 1000

TABLE = [
    (int(size.replace(",", "")), int(checkpoints), float(memory))
    for size, checkpoints, memory in ROW.findall(PAGE.read_text())
]
"""Bytes of a prompt, its checkpoints, and the kB that it takes in the store."""


async def send(store: RedisStore, size: int) -> None:
    """Prompts that share nothing, one after the other."""
    for number in range(PROMPTS):
        content = (size + number).to_bytes(4, "big") * (size // 4)
        print_ = fingerprint(Prompt(Api.CHAT, content), pool="llm")
        candidates = rendezvous(print_.tie, REPLICAS)
        reservation = Reservation(f"{size}-{number}", "llm", candidates, Policy(), print_)
        decision = await store.reserve(reservation)
        store.served(reservation.id, decision.ranked[0], ok=True)
        store.release(reservation.id)
    await store.sync_all()


def cost(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    return (after["used_memory"] - before["used_memory"]) / PROMPTS


@pytest.mark.parametrize(("size", "checkpoints", "memory_kb"), TABLE)
async def test_what_a_prompt_costs(
    valkey: Valkey, size: int, checkpoints: int, memory_kb: float
) -> None:
    assert len(checkpoint_positions(size)) == checkpoints
    store = RedisStore(connect(valkey.url), router="a", deadline_s=5.0)
    await store.start()
    try:
        await send(store, 1000)  # what does not grow with prompts is there from now on
        client = store._link.client
        before = await client.info("memory")
        await send(store, size)
        used = cost(before, await client.info("memory"))
    finally:
        await store.close()

    assert used / 1000 == pytest.approx(memory_kb, rel=0.3)
