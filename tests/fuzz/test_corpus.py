"""What fuzzing has found interesting, and broken, once: every run sees it again."""

from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS

CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", TARGETS)
def test_all_that_was_found_once(name: str) -> None:
    files = sorted((CORPUS / name).iterdir())
    assert files
    for file in files:
        TARGETS[name](file.read_bytes())
