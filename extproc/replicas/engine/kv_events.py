"""Reading vLLM's stream of KV cache events. Pure.

Source: vLLM's ``vllm/distributed/kv_events.py``. A message has three frames: a topic, a sequence
number (8 bytes, big-endian), and a batch in MessagePack: ``[time, [event, ...], rank]``. Lately an
event is a map of its fields and its ``type``; before, as in SGLang, a list that begins with the
type: ``["BlockStored", hashes, parent, tokens, block_size, lora, medium]``, ``["BlockRemoved",
hashes, medium]``, ``["AllBlocksCleared"]``.
"""

from collections.abc import Sequence
from enum import Enum, auto
from typing import Any, NamedTuple

import msgspec

from extproc.replicas.engine.state import EngineError

_NUMBER_BYTES = 8
_MOST_BYTES = 16 * 1024 * 1024
_FRAMES = 3
_STORED = ("type", "block_hashes", "parent", "token_ids", "block_size", "lora_id", "medium")
_REMOVED = ("type", "block_hashes", "medium")
_LARGEST_BLOCK = 1_000_000
_OF_ENGINE = (None, "GPU")
"""Media of blocks that are in the engine's own cache, and not in one behind it."""


class Order(Enum):
    """How a message follows the one before."""

    NEXT = auto()
    GAP = auto()
    """Some between are missing."""
    RESTART = auto()
    """The numbers began anew."""


class Message(NamedTuple):
    """A message of the stream: its number, and the batch in MessagePack."""

    number: int
    payload: bytes


class Batch(NamedTuple):
    """What a batch tells.

    Attributes:
        events: How many there are.
        stored: Blocks that were put into the cache.
        removed: Blocks that were evicted.
        block_tokens: Tokens of a block; 0 where nothing was stored.
        cleared: Whether the whole cache was emptied.
    """

    events: int = 0
    stored: int = 0
    removed: int = 0
    block_tokens: int = 0
    cleared: bool = False


def read_message(frames: Sequence[bytes]) -> Message:
    """Take a message apart.

    Raises:
        EngineError: It is none.
    """
    if len(frames) != _FRAMES:
        raise EngineError(_NO_STREAM)
    return _message(frames)


def read_replayed(frames: Sequence[bytes]) -> Message:
    """Take a message apart that was asked for again. It has the topic, or as of old has none.

    Raises:
        EngineError: It is none.
    """
    if len(frames) < _FRAMES:
        raise EngineError(_NO_STREAM)
    return _message(frames)


def _message(frames: Sequence[bytes]) -> Message:
    number, payload = frames[-2:]
    if len(number) != _NUMBER_BYTES or len(payload) > _MOST_BYTES:
        raise EngineError(_NO_STREAM)
    return Message(int.from_bytes(number, "big"), payload)


_NO_STREAM = "no KV cache events of vLLM: is this the port of its publisher?"


def number_bytes(number: int) -> bytes:
    """A sequence number as the wire has it."""
    return number.to_bytes(_NUMBER_BYTES, "big")


def read_batch(payload: bytes) -> Batch:
    """Read a batch. Events of kinds that are not known are counted, no more.

    Raises:
        EngineError: It is none.
    """
    try:
        batch = msgspec.msgpack.decode(payload)
    except (msgspec.DecodeError, ValueError, RecursionError):
        batch = None
    if not isinstance(batch, list) or len(batch) < 2 or not isinstance(batch[1], list):
        raise EngineError("KV cache events that are not written as vLLM writes them")
    found = Batch(events=len(batch[1]))
    for event in batch[1]:
        found = _plus(found, event)
    return found


def _plus(batch: Batch, event: Any) -> Batch:
    if isinstance(event, list):
        names = _REMOVED if event[:1] == ["BlockRemoved"] else _STORED
        event = dict(zip(names, event, strict=False))
    if not isinstance(event, dict):
        return batch
    kind, hashes = event.get("type"), event.get("block_hashes")
    if kind == "AllBlocksCleared":
        return batch._replace(cleared=True)
    if not isinstance(hashes, list) or event.get("medium") not in _OF_ENGINE:
        return batch
    if kind == "BlockRemoved":
        return batch._replace(removed=batch.removed + len(hashes))
    if kind != "BlockStored":
        return batch
    size = event.get("block_size")
    if not isinstance(size, int) or not 0 < size <= _LARGEST_BLOCK:
        size = batch.block_tokens
    return batch._replace(stored=batch.stored + len(hashes), block_tokens=size)


class Numbers:
    """Follows the sequence numbers of one stream."""

    def __init__(self) -> None:
        self.last: int | None = None

    def order(self, number: int) -> Order:
        """How a message follows what was taken before; it counts as taken."""
        last, self.last = self.last, number
        if last is None or number == last + 1:
            return Order.NEXT
        return Order.GAP if number > last else Order.RESTART
