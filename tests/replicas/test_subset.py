from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.replicas import Candidates, Hint, Observed, Service, Source, Subset, hint_of, static
from tests.replicas.test_observation import Members

KEY = "x-gateway-destination-endpoint-subset"
A, A2, B, SIX = "10.0.0.1:8000", "10.0.0.1:8001", "10.0.0.2:8000", "[2001:db8::1]:8000"
STRANGER = "10.0.0.99:8000"


def hint(value: Any) -> dict[str, dict[str, Any]]:
    return {"envoy.lb.subset_hint": {KEY: value}}


def named(value: Any, pool: Source, *, within: bool = True) -> tuple[str, ...]:
    """Who may be chosen of a pool by a hint."""
    found = hint_of(hint(value))
    assert found is not None
    return Subset(found, pool, within=within).candidates().addresses


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("10.0.0.2:8080,10.0.0.3:8080", ("10.0.0.2:8080", "10.0.0.3:8080")),
        ("  10.0.0.2:8080 ,  ,  10.0.0.3:8080  ", ("10.0.0.2:8080", "10.0.0.3:8080")),
        (["10.0.0.2:8080", " [0::1]:80 "], ("10.0.0.2:8080", "[::1]:80")),
        (["10.0.0.2:8080", "10.0.0.2:8080"], ("10.0.0.2:8080",)),
        (["not an address", 7.0, None], ()),
        ("", ()),
        ([], ()),
        (7.0, ()),
    ],
)
def test_a_subset_is_a_list_or_a_text(value: Any, addresses: tuple[str, ...]) -> None:
    assert hint_of(hint(value)) == Hint(addresses)
    found = Subset(Hint(addresses), static(()))
    assert found.candidates() == Candidates(addresses)


@pytest.mark.parametrize(
    ("value", "hosts"),
    [
        ("10.0.0.2", ("10.0.0.2",)),
        (["10.0.0.2", "2001:DB8::1", "[2001:db8:0::1]"], ("10.0.0.2", "[2001:db8::1]")),
        ("10.0.0.2:0, 10.0.0, [::1", ()),
    ],
)
def test_addresses_without_a_port(value: Any, hosts: tuple[str, ...]) -> None:
    assert hint_of(hint(value)) == Hint((), hosts)


@pytest.mark.parametrize(
    "metadata",
    [{}, {"envoy.lb": {KEY: A}}, {"envoy.lb.subset_hint": {}}, hint(None)],
)
def test_no_subset(metadata: dict[str, dict[str, Any]]) -> None:
    assert hint_of(metadata) is None


@pytest.mark.parametrize(
    ("value", "addresses"),
    [
        ("10.0.0.1", (A, A2)),
        (["10.0.0.2", "2001:db8::1"], (B, SIX)),
        (["10.0.0.2:8000", "10.0.0.1"], (B, A, A2)),
        ([A2, "10.0.0.1"], (A2, A)),
        ("10.0.0.99", ()),
        ([STRANGER, B], (B,)),
        (STRANGER, ()),
    ],
)
def test_a_hint_names_members(value: Any, addresses: tuple[str, ...]) -> None:
    pool = static((A, A2, B, SIX))

    assert named(value, pool) == addresses


def test_an_address_with_a_port_is_taken_at_its_word_unless_members_are_wanted() -> None:
    assert named([STRANGER, "10.0.0.1"], static((A, A2)), within=False) == (STRANGER, A, A2)


def test_a_pool_that_is_being_learned_has_no_say() -> None:
    members = Members()
    members.join("llm", [A, A2])
    pool = Observed("llm", members, roll=lambda: 1.0)

    assert named([STRANGER, "10.0.0.1"], pool) == (STRANGER, A, A2)
    assert named("10.0.0.2", pool) == ()


def test_a_pool_learns_from_our_choices_alone() -> None:
    members = Members()
    pool = Subset(Hint((A, B)), Observed("llm", members, roll=lambda: 1.0))

    pool.served(Service(B, 1, "", answered=True))
    assert members.members("llm") == []

    pool.served(Service(A, 1, A, answered=True))
    assert members.members("llm") == [A]


hosts = st.sampled_from(["10.0.0.1", "10.0.0.2", "[2001:db8::1]", "[::1]"])
addresses = st.builds("{}:{}".format, hosts, st.integers(8000, 8002))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(addresses, unique=True).map(tuple),
    st.lists(st.one_of(addresses, hosts, st.text("xyz \t\udcff", max_size=5))),
    st.booleans(),
    st.booleans(),
)
def test_nobody_is_chosen_who_is_not_named(
    pool: tuple[str, ...], items: list[str], within: bool, as_text: bool
) -> None:
    items = [item for item in items if "," not in item]
    chosen = named(",".join(items) if as_text else items, static(pool), within=within)

    wanted = {item.strip() for item in items}
    assert len(chosen) == len(set(chosen))
    assert all(each in wanted or each.rpartition(":")[0] in wanted for each in chosen)
    at_their_word = {each for each in chosen if each not in pool}
    assert not at_their_word or not within
    assert {each for each in pool if each in wanted or each.rpartition(":")[0] in wanted} <= {
        *chosen
    }
