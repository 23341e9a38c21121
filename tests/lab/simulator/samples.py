"""Rows, records and findings to write about."""

from typing import Any

from extproc.lab.simulator.findings import Findings
from extproc.lab.simulator.loop import Records
from extproc.lab.simulator.results import Row, summarize
from extproc.lab.simulator.study import Outcome
from extproc.lab.simulator.trial import Setup

BASE = Row(
    strategy="random",
    hit_rate=0.4,
    ttft_p50_s=0.5,
    ttft_p90_s=2.0,
    ttft_p99_s=4.0,
    ttft_mean_s=1.0,
    ttft_mean_spread_s=0.0,
    ttft_p99_spread_s=0.0,
    latency_mean_s=3.0,
    requests_per_s=10.0,
    share_min=0.2,
    share_max=0.3,
    requests=100,
    failed=0,
    seeds=1,
)


def records(*calls: tuple[float, float, float, int, int, int]) -> Records:
    """Each: sent, time to first token, ended, prompt tokens, cached tokens, replica."""
    made = Records()
    for sent, ttft, ended, prompt, cached, replica in calls:
        made.open(sent, prompt, replica)
        made.ttft_s[-1], made.ended_s[-1], made.cached_tokens[-1] = ttft, ended, cached
    return made


def steady(ttft_s: float, cached: int, *, requests: int = 40, replicas: int = 2) -> Records:
    """A request of 1,000 tokens each second, each two seconds long, to the replicas in turn."""
    return records(
        *((float(at), ttft_s, at + 2.0, 1000, cached, at % replicas) for at in range(requests))
    )


def findings(runs: dict[str, list[Records]], **setup: Any) -> Findings:
    """What a simulation of these runs found."""
    chosen: dict[str, Any] = {"source": "chat", "replicas": 2} | setup
    what = Setup(**chosen)
    outcomes = [
        Outcome(summarize(strategy, what.replicas, each), each) for strategy, each in runs.items()
    ]
    seeds = range(1, 1 + len(outcomes[0].runs))
    requests = len(outcomes[0].runs[0].sent_s)
    command = "prefix-extproc simulate chat --set 'a=<b>'"
    return Findings(what, "a <test> workload", requests, seeds, outcomes, 0.9, command)
