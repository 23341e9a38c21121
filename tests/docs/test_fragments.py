"""YAML and JSON in the pages is such, and what is whole is what Envoy takes."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from extproc.check.checking import check
from tests.check.envoy import refusal
from tests.docs.pages import Page, Place, pages

FRAGMENTS = [block for page in pages() for block in page.blocks("yaml")]


def loaded(block: Place) -> list[Any]:
    return list(yaml.safe_load_all(block.text))


@pytest.mark.parametrize("block", FRAGMENTS, ids=lambda block: f"{block.page}:{block.line}")
def test_yaml_is_yaml(block: Place) -> None:
    assert all(isinstance(document, dict | list) for document in loaded(block))


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_json_is_json(page: Page) -> None:
    for block in page.blocks("json"):
        text = block.text if block.text.lstrip().startswith(("{", "[")) else f"{{{block.text}}}"
        json.loads(text)


def test_envoy_takes_what_is_whole(tmp_path: Path) -> None:
    """Whole configurations are files beside the pages; one that a page holds is tried too."""
    path = tmp_path / "envoy.yaml"
    for block in FRAGMENTS:
        if "static_resources:" in block.text:
            path.write_text(block.text)
            assert refusal(path) == "", f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", FRAGMENTS, ids=lambda block: f"{block.page}:{block.line}")
def test_settings_in_fragments_are_good(block: Place) -> None:
    found = check({str(block.line): block.text}).findings

    assert [each.message for each in found if each.rule == "bad-setting"] == []
