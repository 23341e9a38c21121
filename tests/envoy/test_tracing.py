"""The tracing of the documentation, with the real Envoy's own tracer."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack, ReplicaOptions
from tests.docs.pages import Page
from tests.envoy.test_shipped import envoy_of, post, standalone
from tests.server.collector import Collector

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Page(Path(__file__).parents[2] / "docs" / "tracing.md")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def collector() -> AsyncIterator[Collector]:
    async with Collector() as started:
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(collector: Collector) -> AsyncIterator[LocalStack]:
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    async with LocalStack(
        [ListenerConfig("unused")],
        store="memory://",
        replica_options=ReplicaOptions(speed=float("inf"), per_process=3),
        environment=environment,
    ) as started:
        yield started


async def test_the_routers_span_is_in_envoys_trace(
    stack: LocalStack, collector: Collector, tmp_path: Path
) -> None:
    manager_part, root_part = (
        yaml.safe_load(block.text.replace("4318", str(collector.port)))
        for block in PAGE.blocks("yaml")
    )
    config = standalone()
    resources = config["static_resources"]
    resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"] |= manager_part
    resources["clusters"] += root_part["clusters"]
    envoy, url = envoy_of(config, stack, tmp_path)
    await envoy.start()
    try:
        replica = await post(url, {})
        ours = await collector.wait_for(lambda span: span.service == "prefix-extproc")
        parent = await collector.wait_for(lambda span: span.id == ours.parent)
        root = await collector.wait_for(lambda span: span.id == parent.parent)
    finally:
        await envoy.stop()

    assert ours.attributes["prefix_extproc.served"] == replica
    assert {span.service for span in (parent, root)} == {"envoy"}
    assert "ExternalProcessor.Process" in parent.name
    assert ours.trace == parent.trace == root.trace
    assert root.parent == ""
