"""The wire format of KV cache events."""

import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.replicas.engine.kv_events import (
    Batch,
    Numbers,
    Order,
    number_bytes,
    read_batch,
    read_message,
    read_replayed,
)
from extproc.replicas.engine.state import EngineError


def packed(*events: Any) -> bytes:
    return msgspec.msgpack.encode([1.5, list(events), 0])


def test_events_as_maps() -> None:
    batch = packed(
        {
            "type": "BlockStored",
            "block_hashes": [b"a", b"b"],
            "parent_block_hash": None,
            "token_ids": [1] * 32,
            "block_size": 16,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
        },
        {"type": "BlockRemoved", "block_hashes": [b"a"], "medium": "GPU"},
        {"type": "BlockRemoved", "block_hashes": [b"b"], "medium": "CPU"},
    )
    assert read_batch(batch) == Batch(3, stored=2, removed=1, block_tokens=16)


def test_events_as_lists() -> None:
    batch = packed(
        ["BlockStored", [1, 2, 3], None, [7] * 96, 32, None],
        ["BlockRemoved", [1]],
        ["AllBlocksCleared"],
    )
    assert read_batch(batch) == Batch(3, 3, 1, 32, cleared=True)
    assert read_batch(packed({"type": "AllBlocksCleared"})).cleared


def test_events_of_other_kinds_are_counted() -> None:
    assert read_batch(packed(["BlockMoved", [1]], {"type": 3}, 7, [])) == Batch(4)


@pytest.mark.parametrize("payload", [b"", b"\xc1", msgspec.msgpack.encode({"a": 1}), b"\x91\x01"])
def test_what_is_no_batch_is_refused(payload: bytes) -> None:
    with pytest.raises(EngineError):
        read_batch(payload)


@given(st.binary(max_size=60), st.recursive(st.integers() | st.text(), st.lists))
def test_no_payload_is_a_fault_of_ours(junk: bytes, event: Any) -> None:
    with contextlib.suppress(EngineError):
        read_batch(junk)
    with contextlib.suppress(EngineError, OverflowError):
        read_batch(packed(event, ["BlockStored", event, event, event, event]))


def test_messages() -> None:
    assert read_message([b"topic", number_bytes(7), b"x"]) == (7, b"x")
    assert read_replayed([b"", b"topic", number_bytes(7), b"x"]) == (7, b"x")
    assert read_replayed([b"", number_bytes(7), b"x"]) == (7, b"x")
    for frames in ([], [b"x"], [b"", b"7", b"x"], [b"", b"", number_bytes(7), b"x"]):
        with pytest.raises(EngineError):
            read_message(frames)


def test_numbers_tell_gaps_and_restarts() -> None:
    numbers = Numbers()
    found = [numbers.order(each) for each in (5, 6, 9, 10, 0, 1)]
    assert found == [
        Order.NEXT,
        Order.NEXT,
        Order.GAP,
        Order.NEXT,
        Order.RESTART,
        Order.NEXT,
    ]
