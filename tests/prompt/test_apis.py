"""The other API families."""

from itertools import pairwise
from typing import Any

import pytest

from extproc.prompt import fingerprint
from extproc.prompt.model import Api, Unreadable
from tests.prompt.helpers import chat, content, outcome, read, user

COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages?beta=true"
EMBEDDINGS = "/v1/embeddings"


def test_a_list_of_one_prompt_is_the_prompt() -> None:
    assert content({"prompt": ["x"]}, COMPLETIONS) == content({"prompt": "x"}, COMPLETIONS)
    assert content({"prompt": [[1, 2]]}, COMPLETIONS) == content({"prompt": [1, 2]}, COMPLETIONS)


def test_forms_of_completions_are_told_apart() -> None:
    forms: list[Any] = [
        "ab",
        ["a", "b"],
        [1, 2],
        [[1], [2]],
        [1, 258],
        ["a", [1]],
        [1, "a"],
        [2**40],
    ]
    assert len({content({"prompt": form}, COMPLETIONS) for form in forms}) == len(forms)


def test_token_ids_are_four_bytes_each() -> None:
    assert content({"prompt": [1, 70_000]}, COMPLETIONS) == b"\xffK\0\0\0\x01\0\x01\x11\x70"
    longer = content({"prompt": [1, 70_000, 3]}, COMPLETIONS)
    assert longer.startswith(content({"prompt": [1, 70_000]}, COMPLETIONS))


@pytest.mark.parametrize("odd", [-1, 2**32, 0xFF4D_0000, 1.5, None, 10**400])
def test_ids_that_no_vocabulary_has_are_keyed_all_the_same(odd: Any) -> None:
    found = read({"prompt": [1, odd]}, COMPLETIONS)
    assert found.content != content({"prompt": [1, 1]}, COMPLETIONS)


def test_a_suffix_and_missing_special_tokens_count() -> None:
    plain = content({"prompt": "x"}, COMPLETIONS)
    assert content({"prompt": "x", "suffix": "y"}, COMPLETIONS).startswith(plain)
    assert content({"prompt": "x", "suffix": "y"}, COMPLETIONS) != plain
    assert not content({"prompt": "x", "add_special_tokens": False}, COMPLETIONS).startswith(plain)
    assert content({"prompt": "x", "add_special_tokens": True}, COMPLETIONS) == plain


def test_embeddings_for_a_prompt_count_by_hash() -> None:
    one = read({"prompt_embeds": "AA"}, COMPLETIONS)
    assert one.content != content({"prompt_embeds": "AB"}, COMPLETIONS)
    assert len(read({"prompt_embeds": ["AA", "AB"]}, COMPLETIONS).media) == 2
    assert len(read({"input_embeds": [[0.5, 1.0], [2.0, 3.0]]}, "/generate").media) == 1


def test_responses_give_the_bytes_of_the_chat_they_are_rendered_as() -> None:
    body = {"model": "m", "instructions": "be terse", "input": "hi"}
    assert content(body, RESPONSES) == content(
        chat({"role": "system", "content": "be terse"}, user("hi"))
    )
    items = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}]
    assert content({**body, "input": items}, RESPONSES) == content(body, RESPONSES)


def test_responses_keep_items_in_order_and_extend() -> None:
    items: list[Any] = [
        {"role": "user", "content": "read it"},
        {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "think"}]},
        {"type": "function_call", "call_id": "c", "name": "read", "arguments": '{"p": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "oil"},
        {"type": "item_reference", "id": "i"},
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok"}],
        },
        {"type": "custom_tool_call", "call_id": "d", "name": "x", "input": "raw text"},
        {"type": "reasoning", "encrypted_content": "xyz", "content": [{"text": "a"}, 5]},
        "stray",
    ]
    contents = [content({"input": items[:count]}, RESPONSES) for count in range(1, len(items) + 1)]
    for shorter, longer in pairwise(contents):
        assert longer.startswith(shorter)
        assert len(longer) > len(shorter)
    assert b'\xffCc\xffNread\xffA{"p":1}\xffMtool\xffToil\xffIc' in contents[-1]


def test_tools_and_effort_of_responses_stand_in_front() -> None:
    plain = content({"input": "hi"}, RESPONSES)
    for fields in (
        {"tools": [{"type": "function", "name": "f"}]},
        {"reasoning": {"effort": "high"}},
        {"prompt": {"id": "p", "variables": {"a": "b"}}},
        {"previous_response_id": "resp_1"},
    ):
        assert content({"input": "hi", **fields}, RESPONSES).endswith(plain)
    assert content({"input": "hi", "reasoning": {"summary": "auto"}}, RESPONSES) == plain


@pytest.mark.parametrize("instructions", ["", "x" * 100, "x" * 9_000])
def test_turns_of_a_conversation_share_a_checkpoint_and_the_sticky_key(instructions: str) -> None:
    def of(conversation: Any, text: str) -> Any:
        body = {"instructions": instructions, "conversation": conversation, "input": text}
        return fingerprint(read(body, RESPONSES), pool="p")

    first, second, other = of("c1", "hi"), of({"id": "c1"}, "what else?"), of("c2", "hi")
    shared = len(set(first.hashes) & set(second.hashes))
    assert shared > len(set(first.hashes) & set(other.hashes))
    assert first.tokens[shared - 1] >= 1024
    assert first.sticky == second.sticky != other.sticky


def test_anthropic_messages_give_the_bytes_of_the_equal_chat() -> None:
    body = {"model": "m", "system": "be terse", "messages": [user("hi")]}
    expected = content(chat({"role": "system", "content": "be terse"}, user("hi")))
    assert content(body, MESSAGES) == expected
    body["system"] = [{"type": "text", "text": "be terse", "cache_control": {"type": "ephemeral"}}]
    assert content(body, MESSAGES) == expected


def _result(*blocks: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "t", "content": list(blocks), **fields}


def test_anthropic_blocks() -> None:
    text = {"type": "text", "text": "a"}
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
    other = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AB"}}
    variants = [
        [_result(text), text],
        [_result(text, text)],
        [_result(text)],
        [_result(text, is_error=True)],
        [_result(image)],
        [_result(other)],
        [{**_result(text), "tool_use_id": "u"}],
        [{"type": "thinking", "thinking": "a", "signature": "s"}],
        [{"type": "redacted_thinking", "data": "a"}],
        [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}],
        [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 2}}],
        [{"type": "document", "source": {"type": "url", "url": "u"}, "title": "x"}],
        [{"type": "document", "source": {"type": "url", "url": "u"}, "title": "y"}],
        [{"type": "search_result", "source": "s"}],
    ]
    contents = {content({"messages": [user(blocks)]}, MESSAGES) for blocks in variants}
    assert len(contents) == len(variants)
    assert content({"messages": [user([_result(text)])]}, MESSAGES) == content(
        {"messages": [user([{**_result(), "content": "a"}])]}, MESSAGES
    )


def test_cache_control_counts_nowhere() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    tool = {"name": "f", "input_schema": {"properties": {"cache_control": {"type": "string"}}}}
    image = {"type": "image", "source": {"type": "url", "url": "u"}}

    def body(fields: dict[str, Any]) -> dict[str, Any]:
        blocks = [
            {"type": "text", "text": "a", **fields},
            {**image, **fields},
            {**_result({"type": "text", "text": "b", **fields}), **fields},
            {"type": "server_tool_use", "name": "s", **fields},
        ]
        return {"tools": [{**tool, **fields}], "messages": [user(blocks)], **fields}

    assert content(body(mark), MESSAGES) == content(body({}), MESSAGES)
    assert b"cache_control" in content(body(mark), MESSAGES)  # a property of the tool's schema


def test_thinking_counts_where_it_changes_the_template() -> None:
    plain = content({"messages": [user("a")]}, MESSAGES)
    enabled = {"thinking": {"type": "enabled", "budget_tokens": 2048}}
    disabled = {"thinking": {"type": "disabled"}}
    assert content({"messages": [user("a")], **enabled}, MESSAGES) == plain
    assert content({"messages": [user("a")], **disabled}, MESSAGES) != plain
    effort = {"output_config": {"effort": "low"}}
    assert content({"messages": [user("a")], **effort}, MESSAGES) != plain


@pytest.mark.parametrize(
    ("path", "body", "api"),
    [
        (EMBEDDINGS, {"input": "a"}, Api.EMBEDDINGS),
        (EMBEDDINGS, {"messages": [user("a")]}, Api.EMBEDDINGS),
        (EMBEDDINGS, {"input": [user("a")]}, Api.EMBEDDINGS),
        (EMBEDDINGS, {"input": [[user("a")], [user("b")]]}, Api.EMBEDDINGS),
        (EMBEDDINGS, {"input": [{"text": "a"}, {"image": "u"}]}, Api.EMBEDDINGS),
        ("/v2/embed", {"texts": ["a", "b"], "input_type": "query"}, Api.EMBEDDINGS),
        ("/v2/embed", {"inputs": [{"content": [{"type": "text", "text": "a"}]}]}, Api.EMBEDDINGS),
        ("/v2/embed", {"images": ["u"]}, Api.EMBEDDINGS),
        ("/pooling", {"input": "a"}, Api.EMBEDDINGS),
        ("/classify", {"input": ["a", "b"]}, Api.EMBEDDINGS),
        ("/v1/rerank", {"query": "q", "documents": ["a", {"text": "b"}]}, Api.RERANK),
        ("/v2/rerank", {"query": {"content": ["q"]}, "documents": ["a"]}, Api.RERANK),
        ("/rerank", {"query": "q", "texts": ["a"]}, Api.RERANK),
        ("/score", {"text_1": "q", "text_2": ["a", "b"]}, Api.SCORE),
        ("/v1/score", {"queries": ["q"], "documents": ["a"]}, Api.SCORE),
        ("/v1/score", {"query": [1, 2], "items": [[3], [4]]}, Api.SCORE),
        ("/tokenize", {"messages": [user("a")]}, Api.TOKENIZE),
        ("/tokenize", {"content": "a"}, Api.TOKENIZE),
        ("/v1/messages/count_tokens", {"messages": [user("a")]}, Api.MESSAGES),
        ("/generate", {"text": ["a", "b"]}, Api.SGLANG),
        ("/generate", {"input_ids": [[1, 2], [3]]}, Api.SGLANG),
        ("/generate", {"text": "a", "image_data": [["u"], "v"]}, Api.SGLANG),
        ("/generate", {"inputs": "a", "parameters": {}}, Api.TGI),
        ("/generate_stream", {"inputs": "a"}, Api.TGI),
        ("/", {"inputs": "a"}, Api.TGI),
        ("/generate", {"prompt": "a"}, Api.COMPLETIONS),
        ("/invocations", {"messages": [user("a")]}, Api.CHAT),
        ("/invocations", {"input": "a"}, Api.EMBEDDINGS),
        ("/invocations", {"query": "q", "documents": ["a"]}, Api.RERANK),
        ("/invocations", {"text_1": "q", "text_2": "a"}, Api.SCORE),
        ("/inference/v1/generate", {"token_ids": [1, 2]}, Api.VLLM),
        ("/api/chat", {"messages": [user("a") | {"images": ["AA"]}], "think": True}, Api.OLLAMA),
        ("/api/generate", {"prompt": "a", "system": "s", "images": ["AA"]}, Api.OLLAMA),
        ("/api/embed", {"input": ["a"]}, Api.OLLAMA),
        ("/api/embeddings", {"prompt": "a"}, Api.OLLAMA),
        ("/completion", {"prompt": "a"}, Api.COMPLETIONS),
        ("/", {"unknown": 1}, Api.RAW),
        ("/generate", {"unknown": 1}, Api.RAW),
        ("/v1/images/generations", {"prompt": "a"}, Api.RAW),
    ],
)
def test_which_api_reads_what(path: str, body: Any, api: Api) -> None:
    found = read({"model": "m", **body}, path)
    assert found.api is api
    assert found.problem is None
    assert found.text
    assert (found.model == "m") == (api is not Api.RAW)


def test_the_query_of_a_rerank_stands_in_front_of_the_documents() -> None:
    body = {"documents": ["a", "b"], "query": "q"}
    assert content(body, "/rerank") == b"\xffQq\xffDa\xffDb"
    assert content({"text_2": ["a", "b"], "text_1": "q"}, "/score") == b"\xffQq\xffDa\xffDb"
    assert content({"query": "q", "items": ["a"], "item_first": True}, "/score") == b"\xffDa\xffQq"


def test_plain_texts_are_equal_over_the_engines() -> None:
    expected = content({"prompt": "a"}, COMPLETIONS)
    assert content({"inputs": "a"}, "/generate") == expected
    assert content({"text": "a"}, "/generate") == expected
    assert content({"prompt": "a", "raw": True}, "/api/generate") == expected


def test_media_of_sglang_stand_in_front() -> None:
    one, other = (content({"text": "what?", "image_data": url}, "/generate") for url in ("u", "v"))
    assert one[:18] != other[:18]
    assert one[18:] == other[18:] == b"\xffTwhat?"


def test_image_hashes_count_where_all_placeholders_are_equal() -> None:
    def of(digest: str) -> bytes:
        features = {"mm_hashes": {"image": [digest]}, "mm_placeholders": {"image": []}}
        return content({"token_ids": [1, 2], "features": features}, "/inference/v1/generate")

    assert of("a") != of("b")


def test_an_adapter_is_in_the_salt() -> None:
    plain = read({"inputs": "a"}, "/generate")
    adapted = read({"inputs": "a", "parameters": {"adapter_id": "x"}}, "/generate")
    assert plain.content == adapted.content
    assert plain.salt != adapted.salt


def test_ollama_puts_context_and_system_before_the_prompt() -> None:
    body = {"prompt": "p", "system": "s", "context": [1], "suffix": "z", "template": "{{ }}"}
    assert content(body, "/api/generate") == (
        b'\xffH{"template":"{{ }}"}\xffK\0\0\0\x01\xffMsystem\xffTs\xffMuser\xffTp\xffSz'
    )


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (COMPLETIONS, {"prompt": None}),
        (COMPLETIONS, {"prompt": ""}),
        (COMPLETIONS, {"prompt": []}),
        (RESPONSES, {"input": []}),
        (MESSAGES, {"messages": {}}),
        (EMBEDDINGS, {}),
        ("/rerank", {}),
        ("/tokenize", {"prompt": None}),
        ("/api/generate", {"model": "m"}),
        ("/generate", {"text": ""}),
        ("/inference/v1/generate", {}),
    ],
)
def test_without_a_prompt_there_is_none(path: str, body: Any) -> None:
    assert outcome(body, path) is Unreadable.NO_PROMPT_FIELD


@pytest.mark.parametrize("root", [b"[]", b'"text"', b"5", b"null", b'[{"messages": []}]'])
def test_a_body_that_is_no_object_has_no_prompt(root: bytes) -> None:
    assert outcome(root) is Unreadable.NO_PROMPT_FIELD
