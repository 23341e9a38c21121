"""A stack under traffic, aborts, restarts and reshaping pools, and samples of what it holds."""

import asyncio
import json
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from redis.asyncio import Redis

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions

POOL = "soak"
_SIZES = (500, 500, 8_000, 8_000, 60_000, 200_000)
_TOPICS = 40
_SETTLE_S = 30.0


@dataclass(frozen=True, slots=True)
class SoakOptions:
    """How long, how much, and what happens.

    Attributes:
        minutes: Of traffic.
        rate: Requests per second.
        aborted: Share of requests that the client gives up on.
        every_s: Between two restarts of one router, and between two reshapings of the pool.
        ttl_s: ``x-prefix-ttl``: how long keys live in the store.
        replicas: Simulated; at least 3.
        seed: Of everything drawn.
    """

    minutes: float = 30.0
    rate: float = 200.0
    aborted: float = 0.1
    every_s: float = 60.0
    ttl_s: int = 60
    replicas: int = 6
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Sample:
    """What is held at one time.

    Attributes:
        at_s: Since the start of traffic.
        rss_bytes: Of the router that is never restarted.
        keys: In the store.
        store_bytes: Memory that the store uses.
        requests: Sent until then.
        aborted: Of these, given up by the client.
        streams: Open at that router.
    """

    at_s: float
    rss_bytes: float
    keys: int
    store_bytes: int
    requests: int
    aborted: int
    streams: float


@dataclass(frozen=True, slots=True)
class Soaked:
    """What came of a run.

    Attributes:
        samples: In order of time.
        answered: Requests with an answer of 200.
        aborted: Requests that the client gave up.
        failed: All others, by what they met.
        restarts: Of the second router.
        reshapings: Of the pool.
        left: What was still counted once all traffic had ended: 0 each.
    """

    samples: Sequence[Sample]
    answered: int
    aborted: int
    failed: Counter[str]
    restarts: int
    reshapings: int
    left: dict[str, float]


async def run_soak(options: SoakOptions, tell: Callable[[str], None]) -> Soaked:
    """Run it.

    Raises:
        StackError: A part did not start, or died.
    """
    # The pool's file has to be named before the stack has its addresses.
    pool = _PoolFile(random.Random(options.seed))
    listener = ListenerConfig(
        POOL,
        metadata={
            "x-prefix-pool": POOL,
            "x-prefix-ttl": str(options.ttl_s),
            "x-prefix-discovery": f"file://{pool.path}?cluster={POOL}",
        },
        static_replicas=False,
        whole_body=True,
    )
    stack = LocalStack(
        [listener],
        routers=2,
        replicas=options.replicas,
        replica_options=ReplicaOptions(speed=float("inf"), per_process=options.replicas),
    )
    pool.write(stack.replicas)
    try:
        async with stack:
            return await _Soak(options, stack, pool, tell).run()
    finally:
        pool.path.unlink(missing_ok=True)
        pool.path.parent.rmdir()


class _PoolFile:
    """The pool's members, as Envoy's endpoint discovery writes them to a file."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.path = Path(tempfile.mkdtemp(prefix="prefix-extproc-soak-")) / "pool.json"

    def reshape(self, replicas: Sequence[str]) -> None:
        """Make it some of the replicas."""
        self.write(self._chance.sample(replicas, self._chance.randint(2, len(replicas))))

    def write(self, addresses: Sequence[str]) -> None:
        """Replace the file by a whole one."""
        places = [address.rpartition(":") for address in addresses]
        endpoints = [
            {"endpoint": {"address": {"socket_address": {"address": h, "port_value": int(p)}}}}
            for h, _, p in places
        ]
        kind = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        groups = [{"lb_endpoints": endpoints}]
        resource = {"@type": kind, "cluster_name": POOL, "endpoints": groups}
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps({"resources": [resource]}))
        new.replace(self.path)


class _Soak:
    def __init__(
        self,
        options: SoakOptions,
        stack: LocalStack,
        pool: _PoolFile,
        tell: Callable[[str], None],
    ) -> None:
        self._options = options
        self._stack = stack
        self._pool = pool
        self._tell = tell
        self._chance = random.Random(options.seed)
        self._topics = [
            self._chance.randbytes(self._chance.choice(_SIZES) // 2).hex() for _ in range(_TOPICS)
        ]
        self._sent = self._answered = self._aborted = self._restarts = self._reshapings = 0
        self._failed: Counter[str] = Counter()
        self._samples: list[Sample] = []
        self._start = 0.0
        self._restarting: asyncio.Task[None] | None = None

    async def run(self) -> Soaked:
        store: Any = Redis.from_url(self._stack.store_url)
        timeout = aiohttp.ClientTimeout(total=60)
        connector = aiohttp.TCPConnector(limit=0)
        self._start = time.monotonic()
        try:
            async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http:
                around = [
                    asyncio.create_task(each)
                    for each in (self._restart(), self._reshape(), self._watch(http, store))
                ]
                try:
                    await self._flow(http)
                finally:
                    for task in around:
                        task.cancel()
                    ended = await asyncio.gather(*around, return_exceptions=True)
                for each in ended:
                    if not isinstance(each, asyncio.CancelledError) and each is not None:
                        raise each
                if self._restarting is not None:
                    await self._restarting
                left = await self._settle(http, store)
        finally:
            await store.aclose()
        return Soaked(
            self._samples,
            self._answered,
            self._aborted,
            self._failed,
            self._restarts,
            self._reshapings,
            left,
        )

    async def _flow(self, http: aiohttp.ClientSession) -> None:
        """Send in step with the clock, however long answers take."""
        end = self._options.minutes * 60
        async with asyncio.TaskGroup() as group:
            for number in count():
                due = number / self._options.rate
                if due >= end:
                    return
                await asyncio.sleep(self._start + due - time.monotonic())
                self._sent += 1
                group.create_task(self._ask(http))

    async def _ask(self, http: aiohttp.ClientSession) -> None:
        text = f"{self._chance.choice(self._topics)} {self._chance.random()}"
        message = {"role": "user", "content": text}
        body = json.dumps({"model": "m", "max_tokens": 8, "stream": True, "messages": [message]})
        gone = self._chance.random() < self._options.aborted
        patience = self._chance.random() * 0.02 if gone else 60.0
        url = f"{self._stack.url(POOL)}/v1/chat/completions"
        headers = {"content-type": "application/json"}
        try:
            async with (
                asyncio.timeout(patience),
                http.post(url, data=body, headers=headers) as reply,
            ):
                await reply.read()
                if reply.status == 200:
                    self._answered += 1
                else:
                    self._failed[str(reply.status)] += 1
        except TimeoutError:
            if gone:
                self._aborted += 1
            else:
                self._failed["timeout"] += 1
        except aiohttp.ClientError as error:
            self._failed[type(error).__name__] += 1

    async def _restart(self) -> None:
        """The second router alone, so that the first one's memory can be followed."""
        while True:
            await asyncio.sleep(self._options.every_s)
            # Not cut short: a router that is neither here nor gone would be nobody's.
            self._restarting = asyncio.create_task(self._restart_once())
            await asyncio.shield(self._restarting)

    async def _restart_once(self) -> None:
        await self._stack.routers[1].restart()
        self._restarts += 1

    async def _reshape(self) -> None:
        while True:
            await asyncio.sleep(self._options.every_s * 0.7)
            self._pool.reshape(self._stack.replicas)
            self._reshapings += 1

    async def _watch(self, http: aiohttp.ClientSession, store: Any) -> None:
        pause = min(10.0, self._options.minutes * 60 / 30)
        while True:
            self._samples.append(await self._sample(http, store))
            last = self._samples[-1]
            self._tell(
                f"{last.at_s:6.0f} s  {last.requests} requests  router "
                f"{last.rss_bytes / 2**20:.1f} MiB  store {last.keys} keys "
                f"{last.store_bytes / 2**20:.1f} MiB  failed {self._failed.total()}"
            )
            await asyncio.sleep(pause)

    async def _sample(self, http: aiohttp.ClientSession, store: Any) -> Sample:
        told = await _metrics(http, self._stack.routers[0].admin)
        return Sample(
            at_s=round(time.monotonic() - self._start, 1),
            rss_bytes=told["process_resident_memory_bytes"],
            keys=await store.dbsize(),
            store_bytes=(await store.info("memory"))["used_memory"],
            requests=self._sent,
            aborted=self._aborted,
            streams=told["prefix_extproc_open_streams"],
        )

    async def _settle(self, http: aiohttp.ClientSession, store: Any) -> dict[str, float]:
        """What is still counted after the traffic, once the routers had time to tell all."""
        left: dict[str, float] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(_SETTLE_S):
                while not left or any(left.values()):
                    await asyncio.sleep(0.2)
                    left = await self._left(http, store)
        return left

    async def _left(self, http: aiohttp.ClientSession, store: Any) -> dict[str, float]:
        left: Counter[str] = Counter()
        keys = await store.keys("prefix-extproc:*:open:*")
        left["reservations in the store"] = sum([await store.hlen(key) for key in keys])
        for router in self._stack.routers:
            told = await _metrics(http, router.admin)
            left["open streams"] += int(told["prefix_extproc_open_streams"])
            left["in flight"] += int(told["prefix_extproc_replica_in_flight"])
            left["faults of a router"] += int(told["prefix_extproc_errors_total"])
        return dict(left)


async def _metrics(http: aiohttp.ClientSession, admin: str) -> dict[str, float]:
    """Name to the sum over all labels."""
    async with http.get(f"{admin}/metrics") as reply:
        text = await reply.text()
    sums: dict[str, float] = defaultdict(float)
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value
    return sums
