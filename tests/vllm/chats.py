"""Conversations of agents with tools, and the request bodies of four APIs that carry them."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from extproc.lab.vllm import MODEL_NAME
from extproc.lab.vllm_model import words

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Agent:
    """What all conversations with an agent begin with: a system message, empty for none, and tools.

    Tools are in the form of chat completions.
    """

    system: str
    tools: tuple[Json, ...] = ()

    def opening(self) -> list[Json]:
        return [{"role": "system", "content": self.system}] if self.system else []


def agent(rng: random.Random, *, system: int = 500, tools: int = 4) -> Agent:
    """An agent whose system message has ``system`` tokens, and so many tools of 200 each."""
    return Agent(words(rng, system) if system else "", tuple(tool(rng) for _ in range(tools)))


def tool(rng: random.Random) -> Json:
    parameters = {
        word: {"type": "string", "description": words(rng, 25)} for word in words(rng, 2).split()
    }
    return {
        "type": "function",
        "function": {
            "name": words(rng, 1),
            "description": words(rng, 120),
            "parameters": {
                "type": "object",
                "properties": parameters,
                "required": list(parameters),
            },
        },
    }


def turns(agent: Agent, rng: random.Random, count: int) -> Iterator[list[Json]]:
    """The messages of each request of a conversation, as chat completions have them.

    A question is followed by two calls at once if there are tools, then their results by an answer
    and the next question; so every other request ends with a question.
    """
    messages = [*agent.opening(), question(rng)]
    for number in range(count):
        yield messages
        if agent.tools and number % 2 == 0:
            messages = [*messages, *calls_and_results(agent, rng, number)]
        else:
            answer = {"role": "assistant", "content": words(rng, rng.randint(30, 120))}
            messages = [*messages, answer, question(rng)]


def question(rng: random.Random) -> Json:
    return {"role": "user", "content": words(rng, rng.randint(60, 200))}


def calls_and_results(agent: Agent, rng: random.Random, number: int) -> list[Json]:
    ids = [f"call_{number}_{index}" for index in range(2)]
    calls = [
        {"id": identifier, "type": "function", "function": _call(rng.choice(agent.tools), rng)}
        for identifier in ids
    ]
    results = [
        {"role": "tool", "tool_call_id": identifier, "content": words(rng, rng.randint(80, 200))}
        for identifier in ids
    ]
    return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]


def _call(definition: Json, rng: random.Random) -> Json:
    function = definition["function"]
    arguments = {name: words(rng, 12) for name in function["parameters"]["properties"]}
    return {"name": function["name"], "arguments": json.dumps(arguments)}


def chat_body(agent: Agent, messages: list[Json]) -> Json:
    tools = {"tools": list(agent.tools)} if agent.tools else {}
    return {"model": MODEL_NAME, "temperature": 0, **tools, "messages": messages}


def completion_body(_agent: Agent, messages: list[Json]) -> Json:
    text = "\n".join(f"{message['role']}: {message['content']}" for message in messages)
    return {"model": MODEL_NAME, "temperature": 0, "prompt": text}


def messages_body(agent: Agent, messages: list[Json]) -> Json:
    """Anthropic's form."""
    tools = [
        {
            "name": definition["function"]["name"],
            "description": definition["function"]["description"],
            "input_schema": definition["function"]["parameters"],
        }
        for definition in agent.tools
    ]
    system = {"system": agent.system} if agent.system else {}
    said = [_anthropic(message) for message in messages if message["role"] != "system"]
    return {"model": MODEL_NAME, **system, "tools": tools, "messages": said}


def _anthropic(message: Json) -> Json:
    if message["role"] == "tool":
        result = {
            "type": "tool_result",
            "tool_use_id": message["tool_call_id"],
            "content": message["content"],
        }
        return {"role": "user", "content": [result]}
    calls = [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"]),
        }
        for call in message.get("tool_calls", ())
    ]
    return {"role": message["role"], "content": calls or message["content"]}


def responses_body(agent: Agent, messages: list[Json]) -> Json:
    tools = [{"type": "function", **definition["function"]} for definition in agent.tools]
    items = [
        item for message in messages if message["role"] != "system" for item in _items(message)
    ]
    return {
        "model": MODEL_NAME,
        "store": False,
        "instructions": agent.system,
        "tools": tools,
        "input": items,
    }


def _items(message: Json) -> list[Json]:
    if message["role"] == "tool":
        return [
            {
                "type": "function_call_output",
                "call_id": message["tool_call_id"],
                "output": message["content"],
            }
        ]
    calls = [
        {"type": "function_call", "call_id": call["id"], **call["function"]}
        for call in message.get("tool_calls", ())
    ]
    return calls or [{"role": message["role"], "content": message["content"]}]
