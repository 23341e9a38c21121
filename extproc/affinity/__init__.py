"""Which replica has seen which checkpoint and how busy it is, shared by all routers."""

from extproc.affinity.connect import StoreUrlError, connect, memory_routers, redact
from extproc.affinity.memory import MemoryStore
from extproc.affinity.redis import RedisStore
from extproc.affinity.resilient import ResilientStore
from extproc.affinity.store import (
    AffinityStore,
    ReplicaState,
    Reservation,
    StoreError,
    StoreStatus,
)

__all__ = [
    "AffinityStore",
    "MemoryStore",
    "RedisStore",
    "ReplicaState",
    "Reservation",
    "ResilientStore",
    "StoreError",
    "StoreStatus",
    "StoreUrlError",
    "connect",
    "memory_routers",
    "open_store",
    "redact",
]


def open_store(
    url: str, *, router: str, deadline_s: float = 0.010, memory_entries: int = 250_000
) -> AffinityStore:
    """Make the store that a URL names; nothing is sent before ``start``.

    Args:
        url: See ``memory_routers`` and ``connect``.
        router: This process's name, unique over all routers and restarts.
        deadline_s: Longest wait of a request for the shared store.
        memory_entries: Checkpoints to remember in this process.

    Raises:
        StoreUrlError: The URL cannot be understood.
    """
    routers = memory_routers(url)
    if routers is not None:
        return MemoryStore(entries=memory_entries, routers=lambda _pool: routers)
    shared = RedisStore(connect(url), router=router, deadline_s=deadline_s)
    return ResilientStore(shared, MemoryStore(entries=memory_entries, routers=shared.routers))
