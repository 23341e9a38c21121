"""Rendezvous (highest random weight) order: every router sorts the same replicas the same way.

Source: Thaler and Ravishankar, "Using name-based mappings to increase hit rates", 1998. When a
replica joins or leaves, only the keys that it wins or held change their first choice.
"""

from collections.abc import Sequence

from xxhash import xxh3_64_intdigest


def rendezvous(key: bytes, replicas: Sequence[str]) -> tuple[str, ...]:
    """Sort replicas by their weight for a key, heaviest first.

    Args:
        key: What is to be placed, at least 8 bytes of hash.
        replicas: Canonical addresses in any order, without repeats.
    """
    seed = int.from_bytes(key[:8], "little")
    return tuple(sorted(replicas, key=lambda name: (xxh3_64_intdigest(name.encode(), seed), name)))
