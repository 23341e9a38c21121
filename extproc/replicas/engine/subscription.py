"""Subscribing to engines' KV cache events: one router of all that serve a pool follows each."""

import asyncio
from collections.abc import Callable, Sequence

import structlog
import zmq
import zmq.asyncio

from extproc.replicas.engine.follower import Follower
from extproc.replicas.engine.kv_events import (
    Message,
    Numbers,
    Order,
    number_bytes,
    read_batch,
    read_message,
    read_replayed,
)
from extproc.replicas.engine.state import EngineError

_log = structlog.get_logger(__name__)

_LOOK_EVERY_S = 1.0
_REPLAY_S = 2.0
_MOST_REPLAYED = 100_000


class Subscriptions:
    """Follows the event streams of a pool's engines.

    Args:
        follower: Is told.
        candidates: Whose streams may be followed.
        elected: Whether this router is the one to follow an address.
        port: Of the stream, at the replica's host.
        replay_port: Where missed events can be had again; 0 for nowhere.
    """

    def __init__(
        self,
        follower: Follower,
        candidates: Callable[[], Sequence[str]],
        elected: Callable[[str], bool],
        *,
        port: int,
        replay_port: int = 0,
    ) -> None:
        self._follower = follower
        self._candidates = candidates
        self._elected = elected
        self._port = port
        self._replay_port = replay_port
        self._context = zmq.asyncio.Context()
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to follow in the background."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="kv-events")

    async def close(self) -> None:
        """Follow no more."""
        tasks = [*self._streams.values(), *([self._task] if self._task else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._context.destroy(linger=0)

    async def _run(self) -> None:
        while True:
            mine = {each for each in self._candidates() if self._elected(each)}
            ended = [each for each, task in self._streams.items() if task.done()]
            for address in (self._streams.keys() - mine) | set(ended):
                self._streams.pop(address).cancel()
            for address in mine - self._streams.keys():
                follow = self._follow(address)
                self._streams[address] = asyncio.get_running_loop().create_task(follow)
            await asyncio.sleep(_LOOK_EVERY_S)

    async def _follow(self, address: str) -> None:
        """Take in a stream for as long as it is ours; ZeroMQ connects again by itself."""
        numbers = Numbers()
        complained = False
        with self._socket(zmq.SUB, address, self._port) as stream:
            stream.subscribe(b"")
            while True:
                frames = await stream.recv_multipart()
                try:
                    await self._take(address, numbers, read_message(frames))
                except EngineError as error:
                    if not complained:
                        complained = True
                        _log.warning("KV events not read", replica=address, error=str(error))

    async def _take(self, address: str, numbers: Numbers, message: Message) -> None:
        last = numbers.last
        order = numbers.order(message.number)
        if order is Order.RESTART:
            self._follower.cleared(address)
        elif order is Order.GAP and last is not None and self._replay_port:
            for payload in await self._missed(address, last + 1, message.number):
                self._tell(address, payload)
        self._tell(address, message.payload)

    def _tell(self, address: str, payload: bytes) -> None:
        batch = read_batch(payload)
        self._follower.events(address, batch.events, batch.removed, batch.block_tokens)
        if batch.cleared:
            self._follower.cleared(address)

    async def _missed(self, address: str, start: int, end: int) -> list[bytes]:
        """What can still be had of the batches from ``start`` up to before ``end``."""
        found: list[bytes] = []
        with self._socket(zmq.DEALER, address, self._replay_port) as replay:
            try:
                async with asyncio.timeout(_REPLAY_S):
                    await replay.send_multipart([b"", number_bytes(start)])
                    while len(found) < _MOST_REPLAYED:
                        message = read_replayed(await replay.recv_multipart())
                        if not message.payload or message.number >= end:
                            break
                        found.append(message.payload)
            except TimeoutError:
                pass
        return found

    def _socket(self, kind: int, address: str, port: int) -> zmq.asyncio.Socket:
        host = address.rpartition(":")[0]
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.ipv6 = host.startswith("[")
        socket.connect(f"tcp://{host}:{port}")
        return socket
