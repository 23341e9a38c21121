"""DNS, against a real server on loopback."""

from collections.abc import AsyncIterator

import dns.rcode
import pytest
import pytest_asyncio

from extproc.replicas.assignment import Host
from extproc.replicas.dns import (
    DnsFeed,
    Lookup,
    Names,
    dns_feed,
    lookup_hosts,
    lookup_services,
)
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.target import Asking, DnsTarget, Family, SrvTarget
from tests.replicas.dns_server import DnsServer, serving
from tests.replicas.sinks import Recorder, following

NAME = "replicas.example"
SERVICE = "_llm._tcp.example"


@pytest_asyncio.fixture
async def server() -> AsyncIterator[DnsServer]:
    async with serving() as started:
        yield started


def asked(server: DnsServer) -> Names:
    return Names(Asking(server.address))


async def lookup(server: DnsServer, family: Family = Family.AUTO, name: str = NAME) -> Lookup:
    return await lookup_hosts(asked(server), [Host(name, 80, Endpoint(""))], family)


async def addresses(server: DnsServer, family: Family) -> list[str]:
    return [each.address for each in (await lookup(server, family)).endpoints]


async def test_the_addresses_of_a_name(server: DnsServer) -> None:
    server.put(NAME, "A", "10.0.0.1", "10.0.0.2", ttl=30)

    endpoints, ttl_s = await lookup(server)

    assert sorted(endpoints) == [Endpoint("10.0.0.1:80"), Endpoint("10.0.0.2:80")]
    assert ttl_s == 30
    assert set(server.questions) == {(NAME, "AAAA"), (NAME, "A")}


async def test_families_are_envoys(server: DnsServer) -> None:
    server.put(NAME, "A", "10.0.0.1")
    server.put(NAME, "AAAA", "fd00::1")

    assert await addresses(server, Family.AUTO) == ["[fd00::1]:80"]
    assert await addresses(server, Family.V6_ONLY) == ["[fd00::1]:80"]
    assert await addresses(server, Family.V4_PREFERRED) == ["10.0.0.1:80"]
    assert await addresses(server, Family.V4_ONLY) == ["10.0.0.1:80"]
    assert sorted(await addresses(server, Family.ALL)) == ["10.0.0.1:80", "[fd00::1]:80"]

    del server.records[NAME, "A"]
    assert await addresses(server, Family.V4_PREFERRED) == ["[fd00::1]:80"]
    with pytest.raises(SourceError, match=r"replicas\.example: no addresses"):
        await lookup(server, Family.V4_ONLY)


async def test_an_alias_holds_as_long_as_its_shortest_lived_part(server: DnsServer) -> None:
    server.put(NAME, "CNAME", "other.example.", ttl=7)
    server.put("other.example", "A", "10.0.0.1", ttl=60)

    assert await lookup(server, Family.V4_ONLY) == ([Endpoint("10.0.0.1:80")], 7)


async def test_an_answer_too_long_for_udp_comes_by_tcp(server: DnsServer) -> None:
    server.truncate = True
    server.put(NAME, "A", *(f"10.0.1.{n}" for n in range(200)))

    assert len((await lookup(server, Family.V4_ONLY)).endpoints) == 200


async def test_some_servers_tell_more_by_tcp(server: DnsServer) -> None:
    server.put(NAME, "A", "10.0.0.1", "10.0.0.2", "10.0.0.3")
    server.most_by_udp = 1

    found = await Names(Asking(server.address)).addresses(NAME, Family.V4_ONLY)
    assert len(found.found) == 1
    found = await Names(Asking(server.address, tcp=True)).addresses(NAME, Family.V4_ONLY)
    assert sorted(found.found) == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]


async def test_an_address_is_no_question(server: DnsServer) -> None:
    assert (await lookup(server, name="10.0.0.9")).endpoints == [Endpoint("10.0.0.9:80")]
    assert (await lookup(server, name="fd00::9")).endpoints == [Endpoint("[fd00::9]:80")]
    assert server.questions == []


async def test_services_have_ports_weights_and_priorities(server: DnsServer) -> None:
    server.put(
        SERVICE,
        "SRV",
        "0 5 8001 a.example.",
        "0 0 8002 b.example.",
        "1 1 8003 c.example.",
        "0 1 8004 gone.example.",
        ttl=20,
    )
    server.put("a.example", "A", "10.0.0.1", "10.0.0.2", ttl=9)
    server.put("b.example", "AAAA", "fd00::b", ttl=30)
    server.put("c.example", "A", "10.0.0.3", ttl=30)

    endpoints, ttl_s = await lookup_services(asked(server), SrvTarget(SERVICE))

    assert sorted(endpoints) == [
        Endpoint("10.0.0.1:8001", weight=5),
        Endpoint("10.0.0.2:8001", weight=5),
        Endpoint("10.0.0.3:8003", priority=1),
        Endpoint("[fd00::b]:8002"),
    ]
    assert ttl_s == 9


async def test_a_service_that_is_not_offered_has_no_replicas(server: DnsServer) -> None:
    server.put(SERVICE, "SRV", "0 0 0 .", ttl=20)

    assert await lookup_services(asked(server), SrvTarget(SERVICE)) == ([], 20)


async def test_names_that_lead_nowhere_are_named(server: DnsServer) -> None:
    with pytest.raises(SourceError, match=r"_llm\._tcp\.example has no SRV records"):
        await lookup_services(asked(server), SrvTarget(SERVICE))
    server.put(SERVICE, "SRV", "0 1 80 a.example.", "0 1 80 b.example.")
    with pytest.raises(SourceError, match=r"a\.example\. and 1 others: no addresses"):
        await lookup_services(asked(server), SrvTarget(SERVICE))


async def test_a_server_that_fails_is_no_answer(server: DnsServer) -> None:
    server.rcode = dns.rcode.SERVFAIL

    with pytest.raises(SourceError, match=r"asking DNS for AAAA of replicas\.example"):
        await lookup(server)


async def test_a_server_that_is_silent_is_no_answer(
    server: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extproc.replicas.dns._LIFETIME_S", 0.1)
    server.mute = True

    with pytest.raises(SourceError, match=r"asking DNS for A of replicas\.example"):
        await lookup(server, Family.V4_ONLY)


async def test_records_are_asked_for_again_when_their_time_is_over(server: DnsServer) -> None:
    waits: list[float] = []
    answers = iter([([Endpoint("10.0.0.1:80")], 30), ([Endpoint("10.0.0.2:80")], 0)])

    async def lookup(_names: Names) -> Lookup:
        return Lookup(*next(answers))

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            raise SourceError("enough")

    recorder = Recorder()
    feed = DnsFeed(lookup, Asking(server.address, interval_s=2.0), sleep=sleep)
    with pytest.raises(SourceError, match="enough"):
        await feed.follow(recorder)

    assert waits == [30, 2.0]
    assert [each[0].address for each in recorder.answers] == ["10.0.0.1:80", "10.0.0.2:80"]


async def test_addresses_are_held_where_servers_tell_some_at_a_time(server: DnsServer) -> None:
    now = [0.0]
    answers = iter(["ab", "bc", "ca", "c", "c"])

    async def lookup(_names: Names) -> Lookup:
        return Lookup([Endpoint(each) for each in next(answers)], 0)

    async def sleep(seconds: float) -> None:
        now[0] += seconds
        if len(recorder.answers) == 5:
            raise SourceError("enough")

    recorder = Recorder()
    asking = Asking(server.address, hold_s=15.0, interval_s=10.0)
    with pytest.raises(SourceError, match="enough"):
        await DnsFeed(lookup, asking, sleep=sleep, clock=lambda: now[0]).follow(recorder)

    told = ["".join(endpoint.address for endpoint in answer) for answer in recorder.answers]
    assert told == ["ab", "abc", "abc", "ac", "c"]


async def test_a_name_is_followed(server: DnsServer) -> None:
    server.put(NAME, "A", "10.0.0.1", ttl=0)
    feed = dns_feed(DnsTarget(NAME, 80, asking=Asking(server.address, interval_s=0.1)))
    async with following(feed) as told:
        await told.until("10.0.0.1:80")
        server.put(NAME, "A", "10.0.0.1", "10.0.0.2", ttl=0)
        await told.until("10.0.0.1:80", "10.0.0.2:80")
        del server.records[NAME, "A"]
        assert "no addresses" in await told.problem()
        server.put(NAME, "A", "10.0.0.2", ttl=0)
        await told.until("10.0.0.2:80")


async def test_a_service_is_followed(server: DnsServer) -> None:
    server.put(SERVICE, "SRV", "0 1 8001 a.example.", ttl=0)
    server.put("a.example", "A", "10.0.0.1", ttl=0)
    feed = dns_feed(SrvTarget(SERVICE, asking=Asking(server.address, interval_s=0.1)))
    async with following(feed) as told:
        await told.until("10.0.0.1:8001")
        server.put(SERVICE, "SRV", "0 1 8001 a.example.", "0 1 8002 a.example.", ttl=0)
        await told.until("10.0.0.1:8001", "10.0.0.1:8002")


async def test_the_hosts_file_counts_where_the_system_is_asked(
    server: DnsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = asked(server)
    monkeypatch.setattr(names, "_system", True)

    found = await names.addresses("localhost", Family.V4_ONLY)

    assert found.found == ["127.0.0.1"]
