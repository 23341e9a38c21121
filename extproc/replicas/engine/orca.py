"""Reading the load report that a replica adds to its responses. Pure.

Sources: Envoy's ``source/common/orca/orca_parser.cc`` for the headers and their formats,
``xds/data/orca/v3/orca_load_report.proto`` for the report, and vLLM's
``entrypoints/serve/utils/orca_metrics.py`` for the names in it. vLLM reports where a request asks
for it by the header ``endpoint-load-metrics-format``.
"""

import base64
import binascii
import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from google.protobuf.message import DecodeError
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport

from extproc.replicas.engine.state import EngineState

HEADER = "endpoint-load-metrics"
HEADER_BIN = "endpoint-load-metrics-bin"
HEADER_JSON = "endpoint-load-metrics-json"

_MOST_CHARACTERS = 16_384
_WAITING = ("num_requests_waiting", "waiting_queue_size", "queue_size")
_RUNNING = ("num_requests_running", "running_queue_size")
_USAGE = ("kv_cache_usage_perc", "gpu_cache_usage_perc", "kv_cache_utilization", "token_usage")
_HIGHEST = 1e9


def read_report(headers: Mapping[str, Sequence[str]]) -> EngineState | None:
    """The load report in a response's headers; None where there is none that says anything.

    Args:
        headers: Lower-case name to values.
    """
    metrics = _metrics(headers)
    waiting, running, usage = (
        next((metrics[name] for name in names if name in metrics), None)
        for names in (_WAITING, _RUNNING, _USAGE)
    )
    if waiting is None and running is None and usage is None:
        return None
    return EngineState(
        "orca",
        running=None if running is None else int(running),
        waiting=None if waiting is None else int(waiting),
        kv_usage=None if usage is None else min(1.0, usage),
    )


def _metrics(headers: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Named metrics, in whichever of the formats."""
    for name, read in ((HEADER_BIN, _binary), (HEADER_JSON, _json)):
        if values := headers.get(name):
            return _sound(read(values[0][:_MOST_CHARACTERS]))
    text = ", ".join(headers.get(HEADER, ()))[:_MOST_CHARACTERS]
    kind, _, rest = text.partition(" ")
    if kind == "JSON":
        return _sound(_json(rest))
    if kind == "BIN":
        return _sound(_binary(rest))
    return _sound(_text(rest if kind == "TEXT" else text))


def _sound(metrics: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in metrics.items()
        if isinstance(value, int | float) and math.isfinite(value) and 0 <= value <= _HIGHEST
    }


def _text(text: str) -> dict[str, float]:
    """``named_metrics.name=0.4, …``; Envoy's own parser has it with a colon."""
    found = {}
    for item in text.split(","):
        name, _, value = item.replace("=", ":", 1).partition(":")
        try:
            found[_name(name)] = float(value)
        except ValueError:
            continue
    return found


def _name(name: str) -> str:
    return name.strip().removeprefix("named_metrics.")


def _json(text: str) -> dict[str, Any]:
    try:
        report = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    named = report.get("named_metrics") if isinstance(report, dict) else None
    return named if isinstance(named, dict) else {}


def _binary(text: str) -> dict[str, Any]:
    report = OrcaLoadReport()
    try:
        report.ParseFromString(base64.b64decode(text + "=" * (-len(text) % 4), validate=True))
    except (binascii.Error, ValueError, DecodeError):
        return {}
    return dict(report.named_metrics)
