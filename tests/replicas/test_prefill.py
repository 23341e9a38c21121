"""A pool's prefill rate, learned by its routers together."""

from extproc.affinity.memory import MemoryStore
from extproc.replicas.prefill import TOPIC, PoolRate
from extproc.routing import Policy
from tests.routing.test_prefill_rate import requests

GUESS = 24_000
POLICY = Policy(prefill_rate=GUESS)


def a_rate(store: MemoryStore, router: str, *, pool: str = "llm") -> PoolRate:
    return PoolRate(pool, GUESS, router, store)


def learn(rate: PoolRate, count: int, *, seed: int = 1) -> None:
    for tokens, seconds in requests(4_000, count, seed=seed):
        rate.observe(tokens, seconds)


def test_what_one_router_learned_all_apply() -> None:
    store = MemoryStore()
    one, other = a_rate(store, "one"), a_rate(store, "other")
    learn(one, 1000)
    assert one.applied(POLICY) == other.applied(POLICY)
    assert other.tokens_per_second == one.tokens_per_second < GUESS / 2


def test_a_router_does_not_count_what_it_told_twice() -> None:
    store = MemoryStore()
    rate, alone = a_rate(store, "one"), a_rate(MemoryStore(), "one")
    for seed in range(4):
        learn(rate, 125, seed=seed)
        rate.applied(POLICY)
        learn(alone, 125, seed=seed)
    assert rate.tokens_per_second == alone.tokens_per_second


def test_pools_learn_apart() -> None:
    store = MemoryStore()
    learn(a_rate(store, "one", pool="fast"), 1000)
    assert a_rate(store, "two").applied(POLICY) == POLICY


def test_strange_notices_are_passed_over() -> None:
    store = MemoryStore()
    store.post("llm", TOPIC + "newer", "v2 something", ttl_s=600)
    store.post("llm", "ejected/10.0.0.1:80", "1 refused", ttl_s=600)
    rate = a_rate(store, "one")
    assert rate.applied(POLICY) == POLICY
