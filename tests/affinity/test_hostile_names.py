"""Names of pools and tenants that try to reach other keys."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.affinity import RedisStore, Reservation
from extproc.affinity.connect import connect
from extproc.affinity.keys import PoolKeys
from extproc.routing import Policy
from tests.affinity.test_agreement import REPLICAS, fingerprint
from tests.valkey import Valkey

NAMES = [
    "",
    "{}",
    "}",
    "a}:state",
    "%7D",
    "a%7Db",
    "a\nb",
    "a\r\nFLUSHALL\r\n",
    "*",
    "\x00",
    "ä" * 50,
    "x" * 60_000,
]
names = st.one_of(st.sampled_from(NAMES), st.text(max_size=30))
KEY = re.compile(rb"prefix-extproc:\d+:\{[A-Za-z0-9_.~%-]*\}:[a-z]+")


@given(names, names)
def test_no_two_pools_share_a_key(one: str, other: str) -> None:
    first, second = PoolKeys(one), PoolKeys(other)
    for keys in (first, second):
        assert KEY.fullmatch(keys.state)
    assert (first.state == second.state) == (one == other)
    assert not first.checkpoint(b"x" * 16).startswith(second.state)


@pytest.mark.parametrize("name", NAMES)
async def test_a_pool_of_any_name_stays_with_its_own_keys(shared_valkey: Valkey, name: str) -> None:
    client = connect(shared_valkey.url)
    before = set(await client.keys("*"))
    store = RedisStore(client, router="router", deadline_s=30.0)
    try:
        made = Reservation("id", name, REPLICAS, Policy(), fingerprint((0, 1)))
        assert (await store.reserve(made)).ranked
        store.release("id")
        await store.flush()
        new = set(await client.keys("*")) - before
        base = PoolKeys(name).state.removesuffix(b"state")
        assert new
        assert all(key.startswith(base) for key in new)
        assert all([await client.ttl(key) > 0 for key in new])
        await client.delete(*new)
    finally:
        await client.aclose()
