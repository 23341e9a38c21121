"""Which environments ask for traces, and what is told where they ask for what cannot be."""

import sys

import pytest
from structlog.testing import capture_logs

from extproc.server.tracing import open_tracer

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://user:secret@127.0.0.1:1"}


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"OTEL_SERVICE_NAME": "router"},
        {"OTEL_EXPORTER_OTLP_ENDPOINT": " "},
        ENDPOINT | {"OTEL_SDK_DISABLED": "TRUE"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "none"},
        {"OTEL_TRACES_EXPORTER": "None"},
    ],
)
def test_off_and_silent(environment: dict[str, str]) -> None:
    with capture_logs() as lines:
        assert open_tracer(environment, store="memory", router="r") is None
    assert not lines


@pytest.mark.parametrize(
    "environment",
    [
        ENDPOINT,
        {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://127.0.0.1:1/v1/traces"},
        {"OTEL_TRACES_EXPORTER": "otlp"},
        ENDPOINT | {"OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json"},
        ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf", "OTEL_SDK_DISABLED": "false"},
    ],
)
def test_on(environment: dict[str, str]) -> None:
    with capture_logs() as lines:
        tracer = open_tracer(environment, store="memory", router="r")
    assert tracer is not None
    assert not lines
    tracer.close()


@pytest.mark.parametrize(
    ("environment", "key", "cure"),
    [
        (ENDPOINT | {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL", "4318"),
        (
            ENDPOINT
            | {
                "OTEL_EXPORTER_OTLP_PROTOCOL": "http/json",
                "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc",
            },
            "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
            "4318",
        ),
        (ENDPOINT | {"OTEL_TRACES_EXPORTER": "zipkin"}, "OTEL_TRACES_EXPORTER", "otlp"),
    ],
)
def test_what_cannot_be_is_one_line(environment: dict[str, str], key: str, cure: str) -> None:
    with capture_logs() as lines:
        assert open_tracer(environment, store="memory", router="r") is None
    (line,) = lines
    assert (line["event"], line["key"]) == ("decisions are not traced", key)
    assert line["value"] == environment[key]
    assert cure in line["cure"]


def test_a_missing_extra_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "extproc.server.spans", raising=False)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with capture_logs() as lines:
        assert open_tracer(ENDPOINT, store="memory", router="r") is None
    (line,) = lines
    assert line["key"] == "OTEL_EXPORTER_OTLP_ENDPOINT"
    assert line["cure"].startswith("pip install 'prefix-extproc[otel]'")
    assert "secret" not in str(line)


def test_what_the_sdk_refuses_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-1")
    with capture_logs() as lines:
        assert open_tracer(ENDPOINT, store="memory", router="r") is None
    (line,) = lines
    assert "max_queue_size" in line["cure"]
