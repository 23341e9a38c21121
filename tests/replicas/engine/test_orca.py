"""Load reports in response headers."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xds.data.orca.v3.orca_load_report_pb2 import OrcaLoadReport

from extproc.replicas.engine.orca import HEADER, HEADER_BIN, HEADER_JSON, read_report

METRICS = {"kv_cache_usage_perc": 0.25, "num_requests_waiting": 3.0, "num_requests_running": 8.0}
PAIRS = ", ".join(f"named_metrics.{name}={value}" for name, value in METRICS.items())
REPORT = json.dumps({"named_metrics": METRICS})
BINARY = base64.b64encode(OrcaLoadReport(named_metrics=METRICS).SerializeToString()).decode()


@pytest.mark.parametrize(
    ("header", "value"),
    [
        (HEADER, f"TEXT {PAIRS}"),
        (HEADER, PAIRS.replace("=", ":")),
        (HEADER, f"JSON {REPORT}"),
        (HEADER, f"BIN {BINARY}"),
        (HEADER_JSON, REPORT),
        (HEADER_BIN, BINARY),
        (HEADER_BIN, BINARY.rstrip("=")),
    ],
)
def test_all_formats_tell_the_same(header: str, value: str) -> None:
    state = read_report({header: [value]})
    assert state is not None
    assert (state.engine, state.running, state.waiting, state.kv_usage) == ("orca", 8, 3, 0.25)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {HEADER: ["TEXT cpu_utilization=0.5"]},
        {HEADER: ["JSON {"]},
        {HEADER_JSON: ["[1]"]},
        {HEADER_BIN: ["?"]},
        {HEADER: ["num_requests_waiting=NaN"]},
    ],
)
def test_what_says_nothing_is_none(headers: dict[str, list[str]]) -> None:
    assert read_report(headers) is None


@given(st.sampled_from([HEADER, HEADER_BIN, HEADER_JSON]), st.text(max_size=100))
def test_no_header_is_a_fault_of_ours(header: str, value: str) -> None:
    read_report({header: [value]})
    read_report({header: ["JSON " + value]})
