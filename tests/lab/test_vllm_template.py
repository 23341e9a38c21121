"""The chat template of the tiny model, rendered as vLLM renders one."""

import json
from itertools import pairwise
from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from extproc.lab.vllm_model import chat_template

SYSTEM: dict[str, Any] = {"role": "system", "content": "bab"}
QUESTION: dict[str, Any] = {"role": "user", "content": "gab"}
ANSWER: dict[str, Any] = {"role": "assistant", "content": "dab"}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
CALL: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": {"a": 1}}}],
}
RESULT: dict[str, Any] = {"role": "tool", "tool_call_id": "c", "content": "hab"}
DEFINITION = '{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}'


def render(*messages: dict[str, Any], **options: Any) -> str:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    template = environment.from_string(chat_template())
    return template.render(messages=messages, add_generation_prompt=True, **options)


def test_a_message_is_its_role_its_content_and_an_end() -> None:
    assert render(SYSTEM, QUESTION, ANSWER, QUESTION) == (
        "<|system|>bab<|end|><|user|>gab<|end|><|assistant|>dab<|end|><|user|>gab<|end|>"
        "<|assistant|>"
    )


def test_tools_stand_behind_the_system_message_or_first() -> None:
    behind = render(SYSTEM, QUESTION, tools=TOOLS)
    first = render(SYSTEM, QUESTION, tools=TOOLS, tools_first=True)
    alone = render(QUESTION, tools=TOOLS)
    assert behind.startswith("<|system|>bab\n\n")
    assert behind.index("bab") < behind.index(DEFINITION) < behind.index("<|user|>")
    assert first.index(DEFINITION) < first.index("bab") < first.index("<|user|>")
    assert sorted(behind) == sorted(first)
    assert alone == behind.replace("bab\n\n", "", 1)


def test_calls_and_results_are_shown() -> None:
    text = render(QUESTION, CALL, RESULT)
    assert '<|assistant|><tool_call>{"name": "f", "arguments": {"a": 1}}</tool_call><|end|>' in text
    assert text.endswith("<|tool|>hab<|end|><|assistant|>")


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_are_shown_until_the_next_question(field: str) -> None:
    thinking = CALL | {field: "fab"}
    assert "<think>fab</think>" in render(QUESTION, thinking, RESULT)
    assert "fab" not in render(QUESTION, thinking, RESULT, ANSWER, QUESTION)


def test_each_turn_extends_the_one_before() -> None:
    messages = [SYSTEM, QUESTION, CALL, RESULT, ANSWER, QUESTION, ANSWER, SYSTEM, QUESTION]
    texts = [render(*messages[:end], tools=TOOLS) for end in range(2, len(messages) + 1)]
    for shorter, longer in pairwise(texts):
        assert longer.startswith(shorter.removesuffix("<|assistant|>"))
