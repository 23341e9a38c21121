"""Rows to judge and to print."""

from dataclasses import replace

from extproc.lab.bench.published import SHARED
from extproc.lab.bench.rows import BenchRow

BASE = BenchRow(
    experiment=SHARED,
    strategy="random",
    speed=1.0,
    rounds=3,
    replicas=4,
    hit_rate=0.25,
    infinite_hit_rate=0.83,
    ttft_p50_s=0.4,
    ttft_p90_s=1.0,
    ttft_p99_s=2.0,
    ttft_mean_s=0.5,
    floor_p50_s=0.01,
    floor_p90_s=0.3,
    requests_per_s=10.0,
    share_min=0.24,
    share_max=0.26,
    requests=900,
    failed=0,
    decision_mean_s=0.002,
    decision_p50_s=0.0015,
    decision_p99_s=0.01,
    router_cpu_s=0.004,
    prompts=138,
    cpu_own=0.3,
    cpu_busy=0.4,
)
GOOD = replace(
    BASE,
    strategy="kv_aware",
    hit_rate=0.825,
    ttft_p50_s=0.09,
    ttft_p90_s=0.6,
    requests_per_s=12.0,
    share_min=0.245,
    share_max=0.255,
)
