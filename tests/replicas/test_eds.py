"""EDS over gRPC, against a small control plane."""

import asyncio
import shutil
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from envoy_data_plane.envoy.config.core.v3 import HealthStatus
from envoy_data_plane.google.protobuf import Any as AnyMessage

from extproc.lab.processes import PortPool
from extproc.replicas.eds import EdsFeed
from extproc.replicas.endpoint import Endpoint, SourceError
from extproc.replicas.target import EdsTarget
from tests.replicas.control_plane import ControlPlane, acknowledged, assignment, controlling
from tests.replicas.sinks import LIMIT_S, Recorder, following

A, B, C = "10.0.0.1:80", "10.0.0.2:80", "[fd00::3]:80"


@pytest_asyncio.fixture
async def plane() -> AsyncIterator[ControlPlane]:
    async with controlling() as started:
        yield started


@pytest.fixture(params=["sotw", "delta", "ads", "ads delta"])
def feed(request: pytest.FixtureRequest, plane: ControlPlane) -> EdsFeed:
    return feed_of(plane, delta="delta" in request.param, ads="ads" in request.param)


def feed_of(
    plane: ControlPlane,
    *,
    delta: bool = False,
    ads: bool = False,
    silence_s: float = LIMIT_S,
    connect_s: float = LIMIT_S,
) -> EdsFeed:
    port = int(plane.address.rpartition(":")[2])
    target = EdsTarget("127.0.0.1", port, "llm", delta=delta, ads=ads, node="me")
    return EdsFeed(target, connect_s=connect_s, first_answer_s=silence_s, quiet_s=0.1)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


async def test_changes_are_told_and_acknowledged(plane: ControlPlane, feed: EdsFeed) -> None:
    plane.put(
        assignment("llm", A, zone="north", weight=3, priority=1, health=HealthStatus.DRAINING)
    )
    async with following(feed) as told:
        assert await told.until(A) == (Endpoint(A, "north", 3, 1, healthy=False),)
        plane.put(assignment("llm", A, B, C))
        await told.until(A, B, C)
        plane.put(assignment("llm", B, C))
        await told.until(B, C)
        await until(lambda: len(plane.requests) == 4)

    assert told.problems == []
    assert plane.streams == 1
    first = plane.requests[0]
    assert first.node is not None
    assert first.node.id == "me"
    assert acknowledged(plane.requests) == [("n1", ""), ("n2", ""), ("n3", "")]


async def test_what_is_no_good_is_refused_and_the_last_good_stays(
    plane: ControlPlane, feed: EdsFeed
) -> None:
    plane.put(assignment("llm", A))
    async with following(feed) as told:
        await told.until(A)
        plane.put_raw("llm", AnyMessage(type_url="type.googleapis.com/nonsense"))
        assert "type.googleapis.com/nonsense" in await told.problem()
        assert told.addresses == (A,)
        plane.put(assignment("llm", A, B))
        await told.until(A, B)
        await until(lambda: len(plane.requests) == 4)

    refusals = acknowledged(plane.requests)
    assert [(nonce, bool(text)) for nonce, text in refusals] == [
        ("n1", False),
        ("n2", True),
        ("n3", False),
    ]
    assert plane.streams == 1


async def test_a_removed_resource_keeps_its_replicas_and_is_a_problem(
    plane: ControlPlane, feed: EdsFeed
) -> None:
    plane.put(assignment("llm", A))
    async with following(feed) as told:
        await told.until(A)
        plane.remove("llm")
        assert "'llm'" in await told.problem()
        assert len(told.answers) == 1
        plane.put(assignment("llm", B))
        await told.until(B)


async def test_a_control_plane_that_comes_back_is_asked_for_news(
    plane: ControlPlane, feed: EdsFeed
) -> None:
    plane.put(assignment("llm", A))
    async with following(feed) as told:
        await told.until(A)
        await plane.stop()
        await told.problem()
        await plane.start()
        await until(lambda: len(told.answers) == 2)
        assert told.addresses == (A,)
        plane.put(assignment("llm", A, B))
        await told.until(A, B)

    again = next(each for each in plane.requests[1:] if each.node is not None and each.node.id)
    known = getattr(again, "version_info", "") or again.initial_resource_versions["llm"]  # type: ignore[union-attr]
    assert known == "1"


async def test_a_change_that_was_missed_is_told_on_the_next_stream(
    plane: ControlPlane, feed: EdsFeed
) -> None:
    plane.put(assignment("llm", A))
    async with following(feed) as told:
        await told.until(A)
        await plane.stop()
        await told.problem()
        plane.put(assignment("llm", B))
        await plane.start()
        await told.until(B)


@pytest.mark.parametrize("delta", [False, True])
async def test_a_resource_that_nobody_knows_is_a_problem(plane: ControlPlane, delta: bool) -> None:
    async with following(feed_of(plane, delta=delta, silence_s=0.1)) as told:
        problem = await told.problem()
        assert problem == (f"control plane {plane.address} tells nothing of 'llm': does it exist?")
        plane.put(assignment("llm", A))
        await told.until(A)
    assert plane.streams == 1


async def test_nobody_there(plane: ControlPlane) -> None:
    await plane.stop()

    with pytest.raises(SourceError, match=f"no control plane answers at {plane.address}"):
        await feed_of(plane, connect_s=0.2).follow(Recorder())


async def test_a_server_of_something_else() -> None:
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    feed = EdsFeed(EdsTarget("127.0.0.1", port, "llm"), connect_s=LIMIT_S)

    with pytest.raises(SourceError, match=f"control plane 127.0.0.1:{port}: UNIMPLEMENTED"):
        await feed.follow(Recorder())
    await server.stop(None)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")
@pytest.mark.parametrize("mutual", [False, True])
async def test_tls(tmp_path: Path, mutual: bool) -> None:
    cert, key = certificate(tmp_path)
    plane = ControlPlane(PortPool().take())
    chain = (key.read_bytes(), cert.read_bytes())
    await plane.start(
        grpc.ssl_server_credentials([chain], cert.read_bytes(), require_client_auth=mutual)
    )
    plane.put(assignment("llm", A))
    port = int(plane.address.rpartition(":")[2])
    target = EdsTarget("localhost", port, "llm", tls=True, ca=str(cert))
    if mutual:
        target = replace(target, cert=str(cert), key=str(key))
    async with following(EdsFeed(target, connect_s=LIMIT_S)) as told:
        await told.until(A)
    await plane.stop()


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate of ``localhost`` that signs itself, and its private key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2"
    arguments = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        [*command.split(), *arguments, "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    return cert, key


async def test_certificates_that_are_missing_are_named() -> None:
    target = EdsTarget("127.0.0.1", 1, "llm", tls=True, ca="/no/such/ca.pem")

    with pytest.raises(SourceError, match=r"/no/such/ca\.pem cannot be read: No such file"):
        await EdsFeed(target).follow(Recorder())
