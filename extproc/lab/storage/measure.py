"""Drives one Valkey through the routers' own store code, and reads who spent what."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import count, product
from time import perf_counter, process_time
from typing import Any, Final

from extproc.affinity import Reservation
from extproc.affinity.connect import connect
from extproc.affinity.redis import RedisStore
from extproc.lab.overhead import accounts
from extproc.lab.processes import Part
from extproc.prompt import fingerprint
from extproc.prompt.model import Api, Fingerprint, Prompt
from extproc.routing import Policy

KNOWN, NEW = "known", "new"
_MICRO: Final = 1e6
_AT_ONCE: Final = 8
"""Requests that each router has under way."""
_KINDS: Final = 16
"""Prompts that come again and again, where they are to be known."""
_DEADLINE_S: Final = 5.0
"""Above what a busy machine takes: a decision that gave up would be no measurement."""
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True)
class Case:
    """One kind of decision.

    Attributes:
        prompt_kb: Of the prompt, in 1,000 bytes.
        replicas: How many may be chosen.
        prompts: ``known``: a prompt that was decided before; ``new``: never seen.
        routers: How many ask at the same time.
    """

    prompt_kb: int
    replicas: int
    prompts: str
    routers: int


@dataclass(frozen=True, slots=True)
class StoreRow:
    """What one case took, as a median over rounds.

    Attributes:
        case: What was asked.
        decisions: How many in each round.
        reserve_us: Of Valkey's processor, in the script that chooses and books, for a decision.
        scripts_us: The same of both scripts, that which chooses and that which releases.
        valkey_us: Of Valkey's processor in all, sockets included, for a decision.
        router_us: Of the routers' processor for a decision, without prompt, gRPC and Envoy.
        per_core: Decisions per second of one Valkey processor.
        per_s: Decisions per second as measured; all routers share the benchmark's one process.
    """

    case: Case
    decisions: int
    reserve_us: float
    scripts_us: float
    valkey_us: float
    router_us: float
    per_core: float
    per_s: float

    def as_json(self) -> dict[str, Any]:
        """The row with its field names as keys."""
        row = asdict(self)
        case: dict[str, Any] = row.pop("case")
        return case | row


def all_cases(
    prompts_kb: Sequence[int], replicas: Sequence[int], routers: Sequence[int]
) -> list[Case]:
    """Every combination, with known and new prompts."""
    return [
        Case(size, many, prompts, asking)
        for asking, size, many, prompts in product(routers, prompts_kb, replicas, (KNOWN, NEW))
    ]


async def measure(
    valkey: Part,
    port: int,
    cases: Sequence[Case],
    *,
    decisions: int,
    rounds: int,
    seed: int,
    progress: Callable[[str], None],
) -> list[StoreRow]:
    """Ask for so many decisions of each case in each round; cases take turns.

    Args:
        valkey: A store that runs and that nobody else uses.
        port: Its port on 127.0.0.1.
        cases: What to ask.
        decisions: Of each case and round.
        rounds: How often.
        seed: Of the prompts' text.
        progress: Told what comes next.

    Raises:
        StoreError: A decision failed.
    """
    found: dict[Case, list[StoreRow]] = {case: [] for case in cases}
    for number in range(rounds):
        for case in cases:
            progress(f"round {number + 1} of {rounds}: {case}")
            found[case].append(await _round(valkey, port, case, decisions, seed + number))
    return [_median(rows) for rows in found.values()]


def _median(rows: Sequence[StoreRow]) -> StoreRow:
    return sorted(rows, key=lambda row: row.valkey_us)[len(rows) // 2]


async def _round(valkey: Part, port: int, case: Case, decisions: int, seed: int) -> StoreRow:
    clients = [connect(f"redis://127.0.0.1:{port}/0") for _ in range(case.routers)]
    stores = [
        RedisStore(client, router=f"router-{at}", deadline_s=_DEADLINE_S)
        for at, client in enumerate(clients)
    ]
    client = clients[0]
    await client.flushall()
    for store in stores:
        await store.start()
        await store.warm()
    every = _prints(case, decisions + max(decisions // 5, 1), seed)
    prints, rest = every[:decisions], every[decisions:]
    if case.prompts == KNOWN:
        await _decide(stores, case, prints)
    else:  # members are known, and scripts loaded
        await _decide(stores, case, _prints(Case(4, 1, NEW, 1), 2 * _AT_ONCE, -1))
    await client.config_resetstat()
    begun, ours, theirs = perf_counter(), process_time(), accounts.cpu_s([valkey.pid])
    await _decide(stores, case, prints)
    theirs, ours = accounts.cpu_s([valkey.pid]) - theirs, process_time() - ours
    wall = perf_counter() - begun
    both = await _spent(client)
    held: list[str] = []
    await client.config_resetstat()
    await _decide(stores[:1], case, rest, held=held)
    alone = await _spent(client)
    for name in held:
        stores[0].release(name)
    for store in stores:
        await store.close()
    return StoreRow(
        case=case,
        decisions=decisions,
        reserve_us=alone / len(rest),
        scripts_us=both / decisions,
        valkey_us=theirs / decisions * _MICRO,
        router_us=ours / decisions * _MICRO,
        per_core=decisions / theirs,
        per_s=decisions / wall,
    )


async def _spent(client: Any) -> float:
    """Microseconds in scripts, by ``INFO commandstats``, which counts all scripts as one.

    By the clock: on a busy machine waiting for the processor is in it.
    """
    stats = await client.info("commandstats")
    return float(stats["cmdstat_evalsha"]["usec"])


async def _decide(
    stores: Sequence[RedisStore],
    case: Case,
    prints: Sequence[Fingerprint],
    *,
    held: list[str] | None = None,
) -> None:
    """Decide on each prompt, and release it at once; the routers take turns with the prompts.

    With a list of what is held nothing is released; the first router must be the only one then.
    """
    waiting, policy = iter(prints), Policy()
    replicas = tuple(f"10.0.{at // 250}.{at % 250 + 1}:8000" for at in range(case.replicas))

    async def client(store: RedisStore) -> None:
        for print_ in waiting:
            name = f"bench-{next(_IDS)}"
            await store.reserve(Reservation(name, "bench", replicas, policy, print_))
            if held is None:
                store.release(name)
            else:
                held.append(name)

    await asyncio.gather(*(client(store) for store in stores for _ in range(_AT_ONCE)))
    for store in stores:
        await store.flush()


_IDS = count()


def _prints(case: Case, decisions: int, seed: int) -> list[Fingerprint]:
    """Fingerprints of prompts: few that come again and again, or each its own."""
    kinds = min(_KINDS, decisions) if case.prompts == KNOWN else decisions
    draw = random.Random(seed)
    text = bytes(draw.choices(_LETTERS, k=case.prompt_kb * 1000))
    prints = [
        fingerprint(
            Prompt(api=Api.CHAT, content=b"%d/%d/" % (seed, kind) + text, text=text[:4096]),
            pool="bench",
        )
        for kind in range(kinds)
    ]
    return [prints[at % kinds] for at in range(decisions)]
