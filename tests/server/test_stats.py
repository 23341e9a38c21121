from extproc.routing import Decision, Reason
from extproc.server.stats import MAX_POOLS, OTHER, PoolStats, Stats


def test_decisions_add_up() -> None:
    stats = PoolStats()
    stats.decided(Decision(("a",), Reason.MATCHED, 10, 20, 30))
    stats.decided(Decision((), Reason.COLD, 0, 0, 5, shared=False))

    assert stats.reasons == {Reason.MATCHED: 1, Reason.COLD: 1}
    assert (stats.matched_tokens, stats.best_tokens, stats.total_tokens) == (10, 20, 35)
    assert stats.unshared == 1


def test_shadow_compares_choice_and_service() -> None:
    shadow = PoolStats().shadow
    shadow.compare(
        Decision(("a", "b"), Reason.MATCHED, 8, 8, 10), Decision(("a",), Reason.COLD, 2, 2, 10)
    )
    shadow.compare(
        Decision(("a", "b"), Reason.MATCHED, 8, 8, 10), Decision(("b",), Reason.COLD, 0, 0, 10)
    )

    assert (shadow.requests, shadow.agreed) == (2, 1)
    assert (shadow.total_tokens, shadow.matched_tokens, shadow.served_tokens) == (20, 16, 2)


def test_pools_are_bounded() -> None:
    stats = Stats(most_pools=MAX_POOLS)
    first = [stats.pool(str(number)) for number in range(MAX_POOLS)]
    more = [stats.pool(str(number)) for number in range(MAX_POOLS, MAX_POOLS + 5)]

    assert len({id(pool) for pool in first}) == MAX_POOLS
    assert {id(pool) for pool in more} == {id(stats.pools[OTHER])}
    assert stats.pool("0") is first[0]
    assert len(stats.pools) == MAX_POOLS + 1
    assert stats.limits.reached == {"--metric-pools": 5}
