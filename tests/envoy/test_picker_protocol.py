"""The router as the endpoint picker of a gateway, on the real Envoy."""

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NamedTuple

import pytest
import pytest_asyncio
from envoy_data_plane.envoy.extensions.filters.http.header_to_metadata.v3 import (
    Config,
    ConfigKeyValuePair,
    ConfigRule,
    ConfigValueEncode,
    ConfigValueType,
)
from google.protobuf import struct_pb2

from extproc.lab.envoy_clusters import GATEWAYS_CLUSTER, REPLICAS_CLUSTER
from extproc.lab.envoy_config import ListenerConfig, http_filter
from extproc.lab.stack import LocalStack
from extproc.processing import DESTINATION, BodyMode
from tests.envoy.clients import JSON, Answer, digest, http1, http2
from tests.envoy.conftest import MODES, pool
from tests.envoy.scripted import DONE, EVENT, HOLD, SCRIPT, STREAM, ScriptedReplicas
from tests.envoy.versions import envoy_version

pytestmark = pytest.mark.asyncio(loop_scope="module")

TELLS_WHO_SERVED = envoy_version() >= (1, 38)

SUBSET, OTHER = "x-gateway-destination-endpoint-subset", "another-key"
AS_TEXT, AS_LIST, AS_OTHER = "x-subset-text", "x-subset-list", "x-subset-other"
NOBODY_SIX = "[2001:db8::1]:8000"
HALF = 600_000
"""Bytes of a body after which the router decides: more than its inspect window."""


def hint(header: str, key: str, kind: ConfigValueType) -> ConfigRule:
    """A rule that puts a header into the namespace of hints."""
    encoded = kind is ConfigValueType.PROTOBUF_VALUE
    pair = ConfigKeyValuePair(
        metadata_namespace="envoy.lb.subset_hint",
        key=key,
        type=kind,
        encode=ConfigValueEncode.BASE64 if encoded else ConfigValueEncode.NONE,
    )
    return ConfigRule(header=header, on_header_present=pair, remove=True)


HINTS = http_filter(
    "envoy.filters.http.header_to_metadata",
    Config(
        request_rules=[
            hint(AS_TEXT, SUBSET, ConfigValueType.STRING),
            hint(AS_LIST, SUBSET, ConfigValueType.PROTOBUF_VALUE),
            hint(AS_OTHER, OTHER, ConfigValueType.STRING),
        ]
    ),
)
"""A gateway that hints at what a test's header says."""


def picker(name: str, **fields: Any) -> ListenerConfig:
    metadata = {"x-prefix-pool": name, "x-prefix-protocol": "epp"} | fields.pop("metadata", {})
    told = {
        "x-in-metadata": f"%DYNAMIC_METADATA(envoy.lb:{DESTINATION})%",
        "x-why": "%DYNAMIC_METADATA(prefix_extproc:reason)%",
        "x-details": "%RESPONSE_CODE_DETAILS%",
    }
    return ListenerConfig(
        name,
        metadata=metadata,
        before=[HINTS],
        message_timeout_s=5.0,
        response_headers=told,
        **fields,
    )


class Stage(NamedTuple):
    stack: LocalStack
    replicas: ScriptedReplicas

    async def ask(
        self,
        listener: str,
        text: str = "hello",
        fields: dict[str, Any] | None = None,
        /,
        **headers: str,
    ) -> Answer:
        """Ask over HTTP/1.1; the underscores of header names are dashes."""
        messages = [{"role": "user", "content": text}]
        body = json.dumps({"model": "m", "messages": messages} | (fields or {})).encode()
        pairs = [(name.replace("_", "-"), value) for name, value in headers.items()]
        answer = await http1(self.stack.port(listener), [body], headers=[JSON, *pairs])
        assert answer.received in {"", digest(body)}  # nothing where it was refused
        return answer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage() -> AsyncIterator[Stage]:
    listeners = [picker(f"picker-{mode}", body_mode=mode, retry=False) for mode in MODES]
    listeners += [
        picker(
            "gateway",
            body_mode=BodyMode.FULL_DUPLEX_STREAMED,
            response_body_mode=BodyMode.FULL_DUPLEX_STREAMED,
            attributes=False,
            cluster=GATEWAYS_CLUSTER if TELLS_WHO_SERVED else REPLICAS_CLUSTER,
            failure_mode_allow=False,
            retry=False,
        ),
        picker("envoy", metadata={"x-prefix-protocol": "envoy"}),
        picker("nobody", static_replicas=False),
        picker(
            "limited",
            metadata={"x-prefix-max-in-flight": "2", "x-prefix-priority-header": "x-priority"},
        ),
        picker(
            "sessions",
            metadata={
                "x-prefix-session-header": "x-session",
                "x-prefix-session-field": "metadata.session_id",
            },
        ),
        picker("six", metadata={"x-prefix-replicas": f"{NOBODY_SIX},[2001:db8::1]:8001"}),
    ]
    async with (
        ScriptedReplicas(3) as replicas,
        LocalStack(listeners, addresses=replicas.addresses, store="memory://") as stack,
    ):
        yield Stage(stack, replicas)


def listed(*addresses: str) -> str:
    """A list of addresses for the header ``AS_LIST``."""
    value = struct_pb2.Value(
        list_value=struct_pb2.ListValue(
            values=[struct_pb2.Value(string_value=each) for each in addresses]
        )
    )
    return base64.b64encode(value.SerializeToString()).decode()


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not reached():
            await asyncio.sleep(0.02)


def refused(answer: Answer, reason: str) -> None:
    assert (answer.status, answer.headers.get("x-prefix-refused")) == (503, reason)
    assert answer.headers["content-type"] == "application/json"
    assert json.loads(answer.body)["error"]["code"] == reason
    assert "x-replica" not in answer.headers


@pytest.mark.parametrize("mode", MODES, ids=str)
async def test_a_hint_that_names_nobody_is_refused_in_every_mode(
    stage: Stage, mode: BodyMode
) -> None:
    name = f"picker-{mode}"
    for number in range(2):
        refused(await stage.ask(name, x_subset_text="10.0.0.99"), "no_subset")
        counts = await pool(stage.stack, name)
        assert counts["rejected"] == counts["reasons"] == {"no_subset": number + 1}
    assert (await stage.ask(name)).status == 200


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("upgrade", [False, True], ids=["get", "upgrade"])
async def test_a_request_without_a_prompt_is_refused_at_its_headers(
    stage: Stage, mode: BodyMode, upgrade: bool
) -> None:
    headers = [(AS_TEXT, "10.0.0.99")]
    if upgrade:
        headers += [("upgrade", "websocket"), ("connection", "upgrade")]
    port = stage.stack.port(f"picker-{mode}")
    refused(await http1(port, method="GET", headers=headers), "no_subset")


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("ask", [http1, http2])
async def test_a_body_on_its_way_does_not_hold_a_refusal_up(
    stage: Stage, mode: BodyMode, ask: Callable[..., Awaitable[Answer]]
) -> None:
    """The client sends half of it and waits; where Envoy has to have it whole, it sends all."""
    if mode is BodyMode.BUFFERED and envoy_version() < (1, 37):
        pytest.skip("Envoy 1.36 refuses large bodies: 413")
    whole = mode in {BodyMode.BUFFERED, BodyMode.BUFFERED_PARTIAL}
    pieces: list[bytes | float] = [b" " * HALF, b" " * HALF if whole else 3600.0]
    headers = [JSON, (AS_TEXT, "10.0.0.99")]

    answer = await ask(stage.stack.port(f"picker-{mode}"), pieces, headers=headers)

    refused(answer, "no_subset")


@pytest.mark.parametrize("listener", ["gateway", f"picker-{BodyMode.BUFFERED_PARTIAL}"])
async def test_why_a_request_was_refused_is_there_for_access_logs(
    stage: Stage, listener: str
) -> None:
    answer = await stage.ask(listener, x_subset_list=listed())
    refused(answer, "no_subset")
    assert answer.headers["x-details"] == "prefix_extproc_no_subset"
    assert answer.headers["x-why"] == "no_subset"


async def test_a_pool_that_nobody_is_known_of_is_refused(stage: Stage) -> None:
    refused(await stage.ask("nobody"), "no_replicas")


async def test_envoy_chooses_unless_the_router_is_an_endpoint_picker(stage: Stage) -> None:
    answer = await stage.ask("envoy", x_subset_text="10.0.0.99")
    assert (answer.status, answer.headers["x-why"]) == (200, "no_subset")
    assert answer.headers["x-destination"] == ""
    counts = await pool(stage.stack, "envoy")
    assert (counts["rejected"], counts["outcomes"]) == ({}, {"envoy": 1})


@pytest.mark.parametrize("listener", ["gateway", f"picker-{BodyMode.BUFFERED_PARTIAL}"])
async def test_a_hint_limits_the_choice_as_text_and_as_list(stage: Stage, listener: str) -> None:
    one, two, three = stage.replicas.addresses
    for only in (one, two, three):
        for hint in ({"x_subset_text": f" {only} , 10.0.0.99"}, {"x_subset_list": listed(only)}):
            answer = await stage.ask(listener, **hint)
            assert (answer.replica, answer.headers["x-destination"]) == (only, only)
    both = await stage.ask(listener, x_subset_list=listed(one, "10.0.0.99:80", three))
    assert sorted(both.headers["x-destination"].split(",")) == sorted([one, three])


async def test_a_namespace_without_the_key_is_no_hint(stage: Stage) -> None:
    for headers in ({"x_subset_other": "10.0.0.99"}, {}):
        answer = await stage.ask("gateway", **headers)
        assert sorted(answer.headers["x-destination"].split(",")) == sorted(
            stage.replicas.addresses
        )


@pytest.mark.parametrize("hint", ["127.0.0.1", "10.0.0.99,127.0.0.1"])
async def test_an_address_without_a_port_stands_for_every_port(stage: Stage, hint: str) -> None:
    for headers in ({"x_subset_text": hint}, {"x_subset_list": listed(*hint.split(","))}):
        answer = await stage.ask("gateway", **headers)
        assert sorted(answer.headers["x-destination"].split(",")) == sorted(
            stage.replicas.addresses
        )


async def test_the_busiest_is_chosen_if_it_is_all_that_is_allowed(stage: Stage) -> None:
    name = f"picker-{BodyMode.FULL_DUPLEX_STREAMED}"
    busy = stage.replicas.addresses[1]
    held = [
        asyncio.create_task(stage.ask(name, uuid.uuid4().hex, x_script=HOLD, x_subset_text=busy))
        for _ in range(5)
    ]
    await until(lambda: stage.replicas.held[busy] == 5)
    free = await stage.ask(name, uuid.uuid4().hex)
    only = await stage.ask(name, uuid.uuid4().hex, x_subset_list=listed(busy))
    stage.replicas.let_go()

    assert free.headers["x-destination"].split(",").index(busy) == 2
    assert (only.replica, only.headers["x-destination"]) == (busy, busy)
    assert [answer.replica for answer in await asyncio.gather(*held)] == [busy] * 5


@pytest.mark.parametrize(
    ("hint", "destinations"),
    [
        (None, {NOBODY_SIX, "[2001:db8::1]:8001"}),
        ("2001:DB8::1", {NOBODY_SIX, "[2001:db8::1]:8001"}),
        ("[2001:db8:0:0::1]:8000", {NOBODY_SIX}),
    ],
)
async def test_ipv6(stage: Stage, hint: str | None, destinations: set[str]) -> None:
    """Envoy's cluster has no such host: it passes over them, and the request tells of them."""
    answer = await stage.ask("six", **({"x_subset_text": hint} if hint else {}))
    assert answer.status == 200
    assert set(answer.headers["x-destination"].split(",")) == destinations


@pytest.mark.parametrize("listener", ["gateway", *(f"picker-{mode}" for mode in MODES)])
async def test_header_and_metadata_are_one(stage: Stage, listener: str) -> None:
    hints: list[dict[str, str]] = [
        {},
        {"x_subset_text": stage.replicas.addresses[0]},
        {"x_subset_text": "127.0.0.1"},
    ]
    for hint in hints:
        answer = await stage.ask(listener, uuid.uuid4().hex * 20, **hint)
        assert answer.headers["x-destination"]
        assert answer.headers["x-in-metadata"] == answer.headers["x-destination"]


@pytest.mark.skipif(not TELLS_WHO_SERVED, reason="needs Envoy 1.38: selected_host_key")
async def test_who_served_is_what_the_gateway_tells(stage: Stage) -> None:
    """Envoy writes it into the metadata; without attributes there is nothing else to know it by."""
    before = (await pool(stage.stack, "gateway")).get("outcomes", {}).get("first", 0)
    text = uuid.uuid4().hex * 40
    first = await stage.ask("gateway", text)
    again = await stage.ask("gateway", text)

    assert (first.headers["x-why"], again.headers["x-why"]) == ("cold", "matched")
    assert again.replica == first.replica
    counts = await pool(stage.stack, "gateway")
    assert counts["outcomes"]["first"] == before + 2


async def test_bodies_stream_both_ways_in_full_duplex(stage: Stage) -> None:
    answer = await stage.ask("gateway", "x" * 200_000, **{SCRIPT: STREAM})
    assert (answer.status, bool(answer.received)) == (200, True)
    assert answer.body.count(EVENT) == answer.body.count(DONE) == 1
    assert answer.body.endswith(b"0\r\n\r\n")


async def test_too_much_is_shed_and_the_lowest_first(stage: Stage) -> None:
    """Each of three replicas takes one low request, two normal and three high ones."""
    held: list[asyncio.Task[Answer]] = []
    await until(lambda: stage.replicas.held.total() == 0)
    for priority in ("low", "normal", "high"):
        for _ in range(3):
            text = uuid.uuid4().hex
            asking = stage.ask("limited", text, x_script=HOLD, x_priority=priority)
            held.append(asyncio.create_task(asking))
        await until(lambda: stage.replicas.held.total() == len(held))
        shed = await stage.ask("limited", uuid.uuid4().hex, x_priority=priority)
        assert (shed.status, shed.headers["x-prefix-refused"]) == (429, "shed")
        assert shed.headers["retry-after"] == "1"
        assert json.loads(shed.body)["error"]["type"] == "rate_limit_error"
    assert set(stage.replicas.held.values()) == {3}
    stage.replicas.let_go()
    assert {answer.status for answer in await asyncio.gather(*held)} == {200}
    counts = await pool(stage.stack, "limited")
    assert counts["rejected"] == {"shed": 3}
    async with asyncio.timeout(30):
        while (answer := await stage.ask("limited", x_priority="low")).status != 200:
            await asyncio.sleep(0.02)
    assert answer.replica in stage.replicas.addresses


@pytest.mark.parametrize("by", ["header", "field"])
async def test_a_session_keeps_its_replica_though_its_prompts_share_nothing(
    stage: Stage, by: str
) -> None:
    for _ in range(3):
        name = uuid.uuid4().hex
        headers = {"x_session": name} if by == "header" else {}
        fields = {"metadata": {"session_id": name}} if by == "field" else {}
        answers = [
            await stage.ask("sessions", uuid.uuid4().hex * 20, fields, **headers) for _ in range(5)
        ]
        assert len({answer.replica for answer in answers}) == 1
        assert [answer.headers["x-why"] for answer in answers] == ["cold"] + ["session"] * 4
