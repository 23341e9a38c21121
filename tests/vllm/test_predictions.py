"""What the router foretells is what vLLM finds in its cache."""

import asyncio
import random
from dataclasses import dataclass

import pytest

from extproc.lab.vllm import BLOCK_TOKENS
from tests.vllm.chats import Agent, agent, question, turns
from tests.vllm.client import CHAT, COMPLETIONS, MESSAGES, RESPONSES, Dialect
from tests.vllm.conftest import Stage
from tests.vllm.measured import Row

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.timeout(3600),
    pytest.mark.asyncio(loop_scope="session"),
]

TURNS = 6
LONG_ANSWER = 96
MUCH = 10 * BLOCK_TOKENS


@dataclass(frozen=True, slots=True)
class Plan:
    """One conversation."""

    name: str
    agent: Agent
    dialect: Dialect
    stream: bool


def plans(dialect: Dialect, *, system: int, tools: int) -> list[Plan]:
    """Three conversations with one agent: they share its system message and tools."""
    name = f"{dialect.name}{'' if system else ', no system'}{'' if tools else ', no tools'}"
    someone = agent(random.Random(name), system=system, tools=tools)
    return [
        Plan(f"{name} {number}{' stream' if stream else ''}", someone, dialect, stream)
        for number, stream in enumerate((False, True, False), 1)
    ]


LANES = [
    plans(CHAT, system=500, tools=4),
    plans(CHAT, system=0, tools=4),
    plans(CHAT, system=900, tools=0),
    plans(MESSAGES, system=500, tools=4),
    plans(RESPONSES, system=500, tools=4),
    plans(COMPLETIONS, system=1000, tools=0),
]


async def test_interleaved_conversations_of_all_apis(stage: Stage) -> None:
    """An agent's conversations take turns; six agents are at work at the same time."""
    rows = {
        plan.name: found
        for lane in await asyncio.gather(*(converse(stage, lane) for lane in LANES))
        for plan, found in lane
    }

    everything = [row for found in rows.values() for row in found]
    assert not [row for row in everything if not row.is_explained]
    assert sum(row.agrees for row in everything) >= 0.8 * len(everything)
    # Or the comparison would be one of noughts.
    for name, found in rows.items():
        assert sum(row.answer.usage.cached > MUCH for row in found) >= TURNS // 2, name


async def converse(stage: Stage, lane: list[Plan]) -> list[tuple[Plan, list[Row]]]:
    sequences = [list(turns(plan.agent, random.Random(plan.name), TURNS)) for plan in lane]
    rows: list[list[Row]] = [[] for _ in lane]
    for turn in range(TURNS):
        for plan, sequence, found in zip(lane, sequences, rows, strict=True):
            row = await stage.ask(
                "tools" if plan.agent.tools else "text",
                plan.name,
                turn,
                plan.agent,
                sequence[turn],
                plan.dialect,
                stream=plan.stream,
            )
            found.append(row)
    return list(zip(lane, rows, strict=True))


async def sharing(stage: Stage, name: str, place: str, *, tools_first: bool) -> list[Row]:
    """Ask as three agents. The second shares the first one's system message, the third its tools.

    Args:
        stage: The stage.
        name: For the table.
        place: Where the pool takes the tools to be: its name.
        tools_first: Whether the template has them in front.
    """
    rng = random.Random(f"{name} {place}")
    one = agent(rng)
    agents = [one, Agent(one.system, agent(rng).tools), Agent(agent(rng).system, one.tools)]
    shared = ["", ", system shared", ", tools shared"]
    return [
        await stage.ask(
            place,
            f"{name} {place}{what}",
            0,
            someone,
            [*someone.opening(), question(rng)],
            tools_first=tools_first,
        )
        for someone, what in zip(agents, shared, strict=True)
    ]


@pytest.mark.parametrize("place", ["after_system", "first"])
async def test_tools_are_where_the_template_puts_them(stage: Stage, place: str) -> None:
    """Two agents share their systems or their tools, whichever the template has first."""
    rows = await sharing(stage, "tools", place, tools_first=place == "first")

    assert all(row.is_explained and abs(row.explained) < MUCH for row in rows)
    _, system, tools = (row.answer.usage.cached > MUCH for row in rows)
    assert (system, tools) == ((True, False) if place == "after_system" else (False, True))


@pytest.mark.parametrize("place", ["after_system", "first"])
async def test_the_wrong_place_of_tools_misleads(stage: Stage, place: str) -> None:
    """Why ``x-prefix-tools`` exists: the template has the tools at the other place."""
    rows = await sharing(stage, "tools not", place, tools_first=place != "first")

    _, system, tools = rows
    promised, found = (system, tools) if place == "after_system" else (tools, system)
    assert promised.answer.predicted > MUCH
    assert promised.answer.usage.cached <= BLOCK_TOKENS
    assert found.answer.usage.cached > MUCH
    assert found.answer.predicted <= found.within


async def test_an_answer_that_comes_back_is_cached_and_not_predicted(stage: Stage) -> None:
    """The engine keeps what it generated, too. The router does not read responses."""
    rng = random.Random("answers")
    someone = agent(rng)
    messages = next(turns(someone, rng, 1))
    first = await stage.ask(
        "after_system", "answer", 0, someone, messages, answer_tokens=LONG_ANSWER
    )
    messages = [*messages, {"role": "assistant", "content": first.answer.text}, question(rng)]
    second = await stage.ask("after_system", "answer", 1, someone, messages)

    assert first.is_explained
    # What comes back may be spelt in other tokens: then the cache ends in the answer.
    assert -second.within <= second.difference - second.explained <= second.within + LONG_ANSWER


async def test_thoughts_that_the_template_drops_are_promised_in_vain(stage: Stage) -> None:
    """Templates show what the model thought until the next question, and then no more.

    From the first thought that is dropped the engine computes anew. The prompt bytes keep
    thoughts, as other templates do: so the prediction is too high by what follows them.
    """
    rng = random.Random("thoughts")
    someone = agent(rng)
    asked, called = turns(someone, rng, 2)
    call = called[-3] | {"reasoning": question(rng)["content"]}
    in_loop = [*asked, call, *called[-2:]]
    sequence = [asked, in_loop, [*in_loop, question(rng)]]
    before, during, after = [
        await stage.ask("after_system", "thoughts", turn, someone, messages)
        for turn, messages in enumerate(sequence)
    ]

    assert before.is_explained
    assert during.is_explained
    assert after.is_explained
    assert abs(after.answer.usage.cached - before.answer.usage.prompt) <= BLOCK_TOKENS
    assert after.answer.predicted > after.answer.usage.cached + after.within
