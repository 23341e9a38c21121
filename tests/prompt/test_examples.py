"""The example bodies: which are equal, which extend each other, and where they part."""

import json

import pytest

from extproc.prompt import fingerprint
from extproc.prompt.model import Api, Prompt, Unreadable
from tests.bodies import PATHS, load
from tests.prompt.helpers import example, example_prompt, read, shared_prefix

UNREADABLE = {
    "039_chat_messages_empty.json": Unreadable.NO_PROMPT_FIELD,
    "040_chat_messages_wrong_type.json": Unreadable.NO_PROMPT_FIELD,
    "056_completions_prompt_missing.json": Unreadable.NO_PROMPT_FIELD,
    "090_audio_transcription.multipart": Unreadable.CONTENT_TYPE,
}
PROBLEMS = {
    "027_chat_lone_surrogate.json": Unreadable.SURROGATE,
    "043_chat_truncated.json": Unreadable.BROKEN_JSON,
}
APIS = {
    "chat": Api.CHAT,
    "completions": Api.COMPLETIONS,
    "responses": Api.RESPONSES,
    "messages": Api.MESSAGES,
    "embeddings": Api.EMBEDDINGS,
    "rerank": Api.RERANK,
    "tokenize": Api.TOKENIZE,
    "detokenize": Api.TOKENIZE,
    "audio": Api.RAW,
    "sglang": Api.SGLANG,
    "vllm": Api.VLLM,
}


@pytest.mark.parametrize("name", PATHS)
def test_every_example_is_read_by_its_api_or_has_a_reason(name: str) -> None:
    found = example(name)
    if name in UNREADABLE:
        assert found is UNREADABLE[name]
    else:
        assert isinstance(found, Prompt)
        assert found.api is APIS[name.split("_")[1].removesuffix(".json")]
        assert found.problem is PROBLEMS.get(name)
        assert found.content
        assert not found.cut


@pytest.mark.parametrize(
    ("first", "second"), [("001", "002"), ("001", "003"), ("012", "014"), ("050", "054")]
)
def test_equal_prompts_have_equal_fingerprints(first: str, second: str) -> None:
    one, other = example_prompt(first), example_prompt(second)
    assert one.content == other.content
    assert fingerprint(one, pool="p") == fingerprint(other, pool="p")


def test_the_next_turn_extends_the_turn_before() -> None:
    turn, following = example_prompt("004"), example_prompt("005")
    assert following.content.startswith(turn.content)
    assert len(following.content) > len(turn.content)
    assert following.salt == turn.salt


def test_other_images_part_at_the_image() -> None:
    one, other = example_prompt("007"), example_prompt("008")
    shared = shared_prefix(one.content, other.content)
    assert shared == b"\xffMuser\xffX"
    assert one.media == other.media == (len(shared) + 16,)
    assert one.text == other.text == b"What colour fills this square?"


def test_tools_stand_in_front_of_the_messages() -> None:
    with_tools, without = example_prompt("015"), example_prompt("017")
    assert shared_prefix(with_tools.content, without.content) == b"\xff"
    assert with_tools.content.endswith(without.content)


def test_escapes_do_not_count() -> None:
    raw = load("025")
    escaped = json.dumps(json.loads(raw), ensure_ascii=True).encode()
    assert escaped != raw
    assert read(escaped).content == example_prompt("025").content


def test_a_shared_system_prompt_shares_all_but_the_tail() -> None:
    first, second, changed = (
        fingerprint(example_prompt(name), pool="p") for name in ("029", "030", "031")
    )
    assert first.hashes[:-1] == second.hashes[:-1]
    assert first.positions[-1] > 36_000
    assert len(set(first.hashes) & set(second.hashes)) >= len(first.hashes) - 1
    assert not set(first.hashes) & set(changed.hashes)
    assert first.tie != changed.tie


def test_a_cache_salt_separates_equal_contents() -> None:
    plain, salted = example_prompt("004"), example_prompt("024")
    assert plain.content == salted.content
    one, other = fingerprint(plain, pool="p"), fingerprint(salted, pool="p")
    assert one.tie != other.tie
    assert one.sticky != other.sticky
    assert not set(one.hashes) & set(other.hashes)


def test_template_arguments_and_names_count() -> None:
    assert b"enable_thinking" in example_prompt("023").content
    assert b"\xffNdesk_3\xffThello" in example_prompt("037").content


def test_the_cache_key_of_a_prompt_is_handed_on() -> None:
    assert example_prompt("034").cache_key == "docs-bot-v3"


def test_anthropic_cache_marks_do_not_count() -> None:
    assert b"cache_control" in load("071")
    body = json.loads(load("071"), object_hook=_without_cache_control)
    assert read(body, PATHS["071_messages_system_blocks_cache.json"]).content == (
        example_prompt("071").content
    )


def _without_cache_control(value: dict[str, object]) -> dict[str, object]:
    return {name: item for name, item in value.items() if name != "cache_control"}
