"""The access logs of the documentation, written by the real Envoy."""

import json
from pathlib import Path

import pytest
import yaml

from extproc.lab.stack import LocalStack
from tests.docs.pages import Page
from tests.envoy.test_shipped import envoy_of, post, standalone

pytestmark = pytest.mark.asyncio(loop_scope="session")

PAGE = Page(Path(__file__).parents[2] / "docs" / "access-log.md")
FIELDS = {"pool", "strategy", "reason", "chosen", "served"}


async def test_both_tell_what_was_decided_and_who_served(stack: LocalStack, tmp_path: Path) -> None:
    logs = [yaml.safe_load(block.text)["access_log"][0] for block in PAGE.blocks("yaml")]
    paths = [tmp_path / "text.log", tmp_path / "json.log"]
    for log, path in zip(logs, paths, strict=True):
        log["typed_config"]["path"] = str(path)
    config = standalone()
    listener = config["static_resources"]["listeners"][0]
    listener["filter_chains"][0]["filters"][0]["typed_config"]["access_log"] = logs
    envoy, url = envoy_of(config, stack, tmp_path)
    await envoy.start()
    try:
        served = [await post(url, {}) for _ in range(2)]
    finally:
        await envoy.stop()  # which writes what is buffered

    texts = [
        dict(word.partition("=")[::2] for word in line.split() if "=" in word)
        for line in paths[0].read_text().splitlines()
    ]
    objects = [json.loads(line) for line in paths[1].read_text().splitlines()]
    assert len(texts) == len(objects) == 2
    for text, found, replica in zip(texts, objects, served, strict=True):
        assert found["served"] == replica
        assert found["chosen"].split(",")[0] == replica
        assert found["status"] == 200
        assert found["attempts"] == 1
        assert found["strategy"] == "kv_aware"
        assert {name: text[name] for name in FIELDS} == {name: found[name] for name in FIELDS}
        assert int(text["tokens"]) == found["total_tokens"] > 200
    assert [each["reason"] for each in objects] == ["cold", "matched"]
    assert objects[0]["matched_tokens"] == 0
    assert int(texts[1]["matched"]) == objects[1]["matched_tokens"] > 0
