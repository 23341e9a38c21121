"""Pools whose members a source tells."""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extproc.replicas import Candidates, Observed, Service
from extproc.replicas.discovery import Discovered, Discovery
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.feeds import open_feed
from extproc.replicas.watch import Feed, Sink, State, Watch
from extproc.routing import Standing
from tests.replicas.sinks import LIMIT_S

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80"
URL = "dns://replicas.example:80"
OTHER_URL = "dns://others.example:80"


class Members:
    """Who is a member, and what was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str]] = []
        self._members: dict[str, set[str]] = {}

    def join(self, pool: str, replicas: Sequence[str]) -> None:
        self._members.setdefault(pool, set()).update(replicas)
        self.told += [("join", pool, each) for each in replicas]

    def leave(self, pool: str, replica: str) -> None:
        self._members.setdefault(pool, set()).discard(replica)
        self.told.append(("leave", pool, replica))

    def members(self, pool: str) -> list[str]:
        return sorted(self._members.get(pool, ()))


class Silent:
    """A feed that a test speaks for, through its watch."""

    async def follow(self, _sink: Sink) -> None:
        await asyncio.Event().wait()


def endpoints(*addresses: str) -> list[Endpoint]:
    return [Endpoint(address) for address in addresses]


def discovered(members: Members, watch: Watch | None = None, pool: str = "llm") -> Discovered:
    watch = watch or Watch(URL, Silent())
    return Discovered(pool, members, watch, Observed(pool, members))


def test_until_the_first_answer_the_pool_is_observed() -> None:
    members, watch = Members(), Watch(URL, Silent())
    source = discovered(members, watch)
    assert source.name == "dns"
    assert source.candidates() == Candidates((), matched_only=True)

    source.served(Service(A, 1, "", answered=True))
    assert source.candidates() == Candidates((A,), matched_only=True)
    watch.failed(SourceError("no answer"))
    assert source.candidates() == Candidates((A,), matched_only=True)

    watch.heard(endpoints(B))
    assert source.candidates() == Candidates((B,))
    source.served(Service(C, 1, "", answered=True))
    source.served(Service(C, 1, B, answered=True))
    assert source.candidates() == Candidates((B,))
    assert members.told == [("join", "llm", A), ("join", "llm", B)]


def test_only_who_is_gone_leaves() -> None:
    members, watch = Members(), Watch(URL, Silent())
    source = discovered(members, watch)
    watch.heard(endpoints(A, B))
    watch.heard(endpoints(A, B))
    assert members.told == [("join", "llm", A), ("join", "llm", B)]

    watch.heard(endpoints(A, B, C))
    watch.heard(endpoints(A, C))
    assert members.told[2:] == [("join", "llm", C), ("leave", "llm", B)]
    assert source.candidates() == Candidates((A, C))

    watch.failed(SourceError("no answer"))
    assert source.candidates() == Candidates((A, C))
    watch.heard([])
    assert source.candidates() == Candidates(())
    assert members.members("llm") == []


def test_one_that_is_unhealthy_stays_a_member() -> None:
    members, watch = Members(), Watch(URL, Silent())
    source = discovered(members, watch)
    watch.heard(endpoints(A, B))
    watch.heard([Endpoint(A), Endpoint(B, healthy=False)])

    assert source.candidates() == Candidates((A,))
    assert members.members("llm") == [A, B]
    assert source.status().endpoints == (Endpoint(A), Endpoint(B, healthy=False))


def test_one_that_a_late_request_made_a_member_again_leaves_once_more() -> None:
    members, watch = Members(), Watch(URL, Silent())
    discovered(members, watch)
    watch.heard(endpoints(A, B))
    watch.heard(endpoints(A))
    members.join("llm", [B])
    watch.heard(endpoints(A))
    assert members.members("llm") == [A]

    members.join("llm", [B])  # by a router whose source has it: not for us to fight
    watch.heard(endpoints(A))
    assert members.members("llm") == [A, B]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sets(st.sampled_from([A, B, C])), max_size=8))
def test_members_are_who_was_told_last(answers: list[set[str]]) -> None:
    members, watch = Members(), Watch(URL, Silent())
    source = discovered(members, watch)
    for answer in answers:
        watch.heard(endpoints(*answer))
        assert members.members("llm") == sorted(answer)
        assert source.candidates() == Candidates(tuple(sorted(answer)))
    moves = [set(one) ^ set(other) for one, other in zip([set(), *answers], answers, strict=False)]
    assert len(members.told) == sum(map(len, moves))


async def test_pools_of_one_url_share_a_watch() -> None:
    members, opened = Members(), list[str]()

    def open_silent(url: str) -> Feed:
        opened.append(url)
        return Silent()

    discovery = Discovery(members, open_feed=open_silent)
    one = discovery.source("one", URL, lambda: Observed("one", members))
    two = discovery.source("two", URL, lambda: Observed("two", members))
    assert discovery.source("one", URL, lambda: Observed("one", members)) is one
    assert one is not two
    assert opened == [URL]

    discovery._watches[URL].heard(endpoints(A))
    assert members.told == [("join", "one", A), ("join", "two", A)]
    late = discovery.source("three", URL, lambda: Observed("three", members))
    assert late.candidates() == Candidates((A,))
    assert {pool: status.state for pool, status in discovery.statuses().items()} == {
        "one": State.OK,
        "two": State.OK,
        "three": State.OK,
    }
    await discovery.close()


async def test_another_url_takes_the_place_of_the_former() -> None:
    members = Members()
    discovery = Discovery(members, open_feed=lambda _: Silent())
    discovery.source("llm", URL, lambda: Observed("llm", members))
    discovery._watches[URL].heard(endpoints(A))
    now = discovery.source("llm", OTHER_URL, lambda: Observed("llm", members))
    discovery._watches[OTHER_URL].heard(endpoints(A, B))
    told = list(members.told)

    discovery._watches[URL].heard([])

    assert members.told == told
    assert now.candidates() == Candidates((A, B))
    await discovery.close()


async def test_a_watch_that_nobody_used_is_begun_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("extproc.replicas.watch.monotonic", lambda: 0.0)
    members, opened = Members(), list[str]()

    def open_silent(url: str) -> Feed:
        opened.append(url)
        return Silent()

    discovery = Discovery(members, open_feed=open_silent)
    first = discovery.source("llm", URL, lambda: Observed("llm", members))
    first_watch = discovery._watches[URL]
    first_watch.heard(endpoints(A))
    monkeypatch.setattr(first_watch, "_idle_s", 0.0)
    async with asyncio.timeout(LIMIT_S):
        while discovery.statuses():
            await asyncio.sleep(0)

    again = discovery.source("llm", URL, lambda: Observed("llm", members))
    assert again is not first
    assert again.candidates() == Candidates((A,), matched_only=True)  # still a member
    assert opened == [URL, URL]
    await discovery.close()


async def test_pools_are_bounded() -> None:
    members = Members()
    discovery = Discovery(members, open_feed=lambda _: Silent())
    for number in range(1100):
        discovery.source(f"pool {number}", URL, lambda: Observed("", members))

    assert len(discovery.statuses()) == 1000
    assert len(discovery._watches[URL].listeners) == 1000
    await discovery.close()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("envoy-admin://127.0.0.1:9901/llm", "AdminFeed"),
        ("dns://replicas.example:80", "DnsFeed"),
        ("dns+srv://_llm._tcp.example", "DnsFeed"),
        ("file:///etc/envoy/envoy.yaml?cluster=llm", "FileFeed"),
        ("eds://127.0.0.1:18000/llm", "EdsFeed"),
        ("eds+tls://127.0.0.1:18000/llm", "EdsFeed"),
    ],
)
def test_every_url_has_its_feed(url: str, kind: str) -> None:
    assert type(open_feed(url)).__name__ == kind


def test_weights_of_the_source_are_known_with_the_members() -> None:
    watch = Watch(URL, Silent())
    source = discovered(Members(), watch)
    watch.heard([Endpoint(A, weight=2), Endpoint(B, weight=1)])
    assert source.candidates().standings == {B: Standing(500)}
