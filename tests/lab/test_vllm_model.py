import json
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from extproc.lab.vllm_model import MAX_MODEL_LEN, WORDS, words, write_model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("lab") / "tiny" / "llama")


@pytest.fixture(scope="module")
def bpe(model: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((model / "tokenizer.json").read_text())["model"]
    return content


def byte_pair_encode(text: str, bpe: dict[str, Any]) -> list[str]:
    """The textbook algorithm: apply the earliest learnt merge first, until none applies."""
    rank = {tuple(merge): number for number, merge in enumerate(bpe["merges"])}
    parts = list(text)
    while True:
        known = [pair for pair in pairwise(parts) if pair in rank]
        if not known:
            return parts
        left, right = min(known, key=rank.__getitem__)
        at = next(i for i, pair in enumerate(pairwise(parts)) if pair == (left, right))
        parts[at : at + 2] = [left + right]


def test_a_word_and_the_space_before_it_are_one_token(bpe: dict[str, Any]) -> None:
    for word in random.Random(1).sample(WORDS, 100):
        assert byte_pair_encode("Ġ" + word, bpe) == ["Ġ" + word]


@pytest.mark.parametrize(
    "text", ["function", " function", "parameters", '{"', ' {"', '":', '"}}', " describes", " To"]
)
def test_what_json_and_the_template_are_made_of_is_one_token(
    text: str, bpe: dict[str, Any]
) -> None:
    assert len(byte_pair_encode(text.replace(" ", "Ġ"), bpe)) == 1


def test_any_other_text_still_has_tokens(bpe: dict[str, Any]) -> None:
    # "ö" is the bytes C3 B6, shown as those two characters by byte-level BPE
    for text in ("Ġqqq", "Ġbabbab", "Ö", "Ã¶"):
        parts = byte_pair_encode(text, bpe)
        assert "".join(parts) == text
        assert all(part in bpe["vocab"] for part in parts)


def test_the_vocabulary_numbers_every_token_once_and_covers_bytes_and_merges(
    bpe: dict[str, Any],
) -> None:
    vocabulary = bpe["vocab"]
    assert sorted(vocabulary.values()) == list(range(len(vocabulary)))
    assert sum(len(token) == 1 for token in vocabulary) == 256
    for left, right in bpe["merges"]:
        assert {left, right, left + right} <= vocabulary.keys()


def test_the_model_knows_every_token_and_the_longest_prompt(
    model: Path, bpe: dict[str, Any]
) -> None:
    config = json.loads((model / "config.json").read_text())
    assert config["vocab_size"] >= len(bpe["vocab"])
    assert config["max_position_embeddings"] == MAX_MODEL_LEN >= 8192


def test_text_has_one_word_per_token_and_4_bytes_each() -> None:
    text = words(random.Random(7), 4000)
    assert len(text.split(" ")) == 4000
    assert set(text.split(" ")) <= set(WORDS)
    assert len(text.encode()) == 4 * 4000 - 1
