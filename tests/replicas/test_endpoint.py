from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.replicas.endpoint import Endpoint, listing, routable, standings
from extproc.routing import Standing

ADDRESSES = st.sampled_from([f"10.0.0.{n}:80" for n in range(6)])
ENDPOINTS = st.lists(
    st.builds(Endpoint, ADDRESSES, priority=st.integers(0, 2), healthy=st.booleans()), max_size=8
)


def test_the_healthy_ones_of_the_best_priority() -> None:
    endpoints = [
        Endpoint("a", healthy=False),
        Endpoint("b", priority=1),
        Endpoint("c", priority=1, healthy=False),
        Endpoint("d", priority=2),
    ]
    assert routable(endpoints) == ("b",)
    assert routable([*endpoints, Endpoint("e")]) == ("e",)


def test_all_where_nobody_is_healthy() -> None:
    assert routable([Endpoint("a", healthy=False), Endpoint("b", healthy=False, priority=1)]) == (
        "a",
        "b",
    )
    assert routable([]) == ()


@settings(max_examples=50, deadline=None)
@given(ENDPOINTS)
def test_a_listing_is_sorted_and_has_each_address_once(endpoints: list[Endpoint]) -> None:
    found = listing(endpoints)
    addresses = [endpoint.address for endpoint in found]
    assert addresses == sorted({endpoint.address for endpoint in endpoints})
    assert set(found) <= set(endpoints)
    assert bool(routable(found)) == bool(endpoints)


def test_who_weighs_less_than_others_stands_lower() -> None:
    found = [Endpoint("a:1", weight=4), Endpoint("b:1", weight=1), Endpoint("c:1", weight=3)]
    assert standings(found) == {"b:1": Standing(250), "c:1": Standing(750)}
    assert standings(found[:1]) == standings([]) == {}
