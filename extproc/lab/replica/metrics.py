"""A replica's ``/metrics``, under the names that vLLM gives its own."""

import time
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from extproc.lab.replica.engine import Engine

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)


class ReplicaMetrics:
    """The metrics of one replica.

    Args:
        engine: Whose counters to show.
        model: The value of the label ``model_name``.
    """

    def __init__(self, engine: Engine, model: str) -> None:
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(_EngineCollector(engine, model))
        ttft = Histogram(
            "vllm:time_to_first_token_seconds",
            "Seconds from a request's arrival to its first token.",
            ["model_name", "engine"],
            buckets=TTFT_BUCKETS,
            registry=self._registry,
        )
        self._ttft = ttft.labels(model, "0")

    def observe_first_token(self, seconds: float) -> None:
        """Count one request's time to first token."""
        self._ttft.observe(seconds)

    def render(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._labels = (model, "0")
        self._started = time.time()

    def collect(self) -> Iterable[Metric]:
        engine, cache, counters = self._engine, self._engine.cache, self._engine.counters
        yield self._gauge("num_requests_running", "Sequences in the batch.", engine.running)
        yield self._gauge("num_requests_waiting", "Sequences waiting.", engine.waiting)
        yield self._gauge(
            "kv_cache_usage_perc",
            "Share of the cache's blocks in use; 1 is all.",
            cache.held_blocks / cache.capacity_blocks,
        )
        for name, text, value in (
            ("prefix_cache_queries", "Prompt tokens looked up.", counters.prefix_queries),
            ("prefix_cache_hits", "Prompt tokens found.", counters.prefix_hits),
            ("prompt_tokens", "Prompt tokens processed.", counters.prompt_tokens),
            ("generation_tokens", "Tokens generated.", counters.generation_tokens),
            ("num_preemptions", "Sequences that started over.", counters.preemptions),
        ):
            counter = CounterMetricFamily(f"vllm:{name}", text, labels=["model_name", "engine"])
            counter.add_metric(self._labels, value)
            yield counter
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "The cache's configuration.",
            labels=["block_size", "num_gpu_blocks", "enable_prefix_caching", "engine"],
        )
        info.add_metric((str(cache.block_tokens), str(cache.capacity_blocks), "True", "0"), 1)
        yield info
        yield GaugeMetricFamily(
            "process_start_time_seconds", "Unix time of the start.", value=self._started
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        gauge = GaugeMetricFamily(f"vllm:{name}", text, labels=["model_name", "engine"])
        gauge.add_metric(self._labels, value)
        return gauge
