"""Rendezvous order: stable, even, and only touched by what changes."""

from collections import Counter
from hashlib import md5

from extproc.routing import rendezvous

REPLICAS = [f"10.0.0.{number}:8000" for number in range(8)]


def keys(count: int) -> list[bytes]:
    return [md5(str(number).encode()).digest() for number in range(count)]


def test_order_does_not_depend_on_the_order_of_the_input() -> None:
    for key in keys(50):
        assert rendezvous(key, REPLICAS) == rendezvous(key, REPLICAS[::-1])
        assert sorted(rendezvous(key, REPLICAS)) == sorted(REPLICAS)


def test_known_order() -> None:
    """Routers of different releases must agree: this order may never change."""
    assert rendezvous(b"0123456789abcdef", ["a:1", "b:1", "c:1", "[::1]:1"]) == KNOWN


KNOWN = ("a:1", "[::1]:1", "c:1", "b:1")


def test_shares_are_even() -> None:
    shares = Counter(rendezvous(key, REPLICAS)[0] for key in keys(8000))
    assert set(shares) == set(REPLICAS)
    assert max(shares.values()) < 1.15 * 1000
    assert min(shares.values()) > 0.85 * 1000


def test_a_leaving_replica_moves_only_its_own_keys() -> None:
    for key in keys(500):
        before = rendezvous(key, REPLICAS)
        after = rendezvous(key, REPLICAS[1:])
        assert after == tuple(each for each in before if each != REPLICAS[0])
