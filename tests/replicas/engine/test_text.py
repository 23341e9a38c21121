"""Engines' metrics pages."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from extproc.replicas.engine.state import EngineError
from extproc.replicas.engine.text import MOST_BYTES, read_metrics
from tests.replicas.engine.pages import vllm

SGLANG = b"""\
sglang:num_running_reqs{model_name="m",tp_rank="0"} 5.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 5.0
sglang:num_running_reqs{model_name="m",tp_rank="0",priority="1"} 2.0
sglang:num_queue_reqs{model_name="m",tp_rank="0"} 7.0
sglang:token_usage{model_name="m",tp_rank="0"} 0.25
sglang:max_total_num_tokens{model_name="m",tp_rank="0"} 64000.0
sglang:prompt_tokens_total{model_name="m"} 1000.0
sglang:cached_tokens_total{model_name="m"} 250.0
"""

TGI = b"""\
tgi_queue_size 3
tgi_batch_current_size 2
tgi_batch_inference_duration_sum{method="prefill"} 1.5
tgi_batch_inference_duration_sum{method="decode"} 40
tgi_request_input_length_sum 900
tgi_request_input_length_count 9
"""


def test_vllm() -> None:
    page = vllm(
        num_requests_running=4,
        num_requests_waiting=9,
        kv_cache_usage_perc=0.5,
        prompt_tokens_total=4000,
        prefix_cache_queries_total=4000,
        prefix_cache_hits_total=1000,
        adapters="sql,poems",
    )
    state = read_metrics(page)
    assert (state.engine, state.running, state.waiting, state.kv_usage) == ("vllm", 4, 9, 0.5)
    assert (state.capacity_tokens, state.started_at) == (16_000, 1000.0)
    assert (state.queried_tokens, state.hit_tokens, state.computed_tokens) == (4000, 1000, 3000)
    assert state.adapters == ("sql", "poems")


def test_older_names_of_vllm() -> None:
    state = read_metrics(vllm(gpu_cache_usage_perc=0.125, gpu_prefix_cache_hits_total=3))
    assert (state.kv_usage, state.hit_tokens, state.running) == (0.125, 3, None)


def test_a_server_of_several_engines_is_added_up() -> None:
    page = b'vllm:num_requests_running{engine="0"} 1\nvllm:num_requests_running{engine="1"} 2\n'
    assert read_metrics(page).running == 3


def test_sglang_is_counted_once_over_its_ranks() -> None:
    state = read_metrics(SGLANG)
    assert (state.engine, state.running, state.waiting, state.kv_usage) == ("sglang", 5, 7, 0.25)
    assert (state.capacity_tokens, state.computed_tokens) == (64_000, 750)
    assert (state.started_at, state.adapters) == (None, None)


def test_tgi() -> None:
    state = read_metrics(TGI)
    assert (state.engine, state.running, state.waiting) == ("tgi", 2, 3)
    assert (state.prefill_s, state.prompt_tokens, state.requests) == (1.5, 900, 9)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300"])
def test_what_cannot_be_counts_as_not_told(value: str) -> None:
    page = f"vllm:num_requests_running {value}\nvllm:num_requests_waiting 2\n".encode()
    assert read_metrics(page)[1:3] == (None, 2)


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<html>Not found</html>",
        b"python_info 1\n",
        b'vllm:num_requests_running{engine="0 1\n',
        b"vllm:num_requests_running much\n",
        b"x" * (MOST_BYTES + 1),
    ],
)
def test_other_pages_are_refused_in_one_line(page: bytes) -> None:
    with pytest.raises(EngineError) as refused:
        read_metrics(page)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 150


@given(st.binary(max_size=200), st.binary(max_size=50))
def test_no_page_is_a_fault_of_ours(junk: bytes, more: bytes) -> None:
    with contextlib.suppress(EngineError):
        read_metrics(b"vllm:num_requests_running" + junk + b"\nvllm:lora_requests_info" + more)
