"""Two real vLLM servers, and Envoy, Valkey and two routers before them."""

import json
import os
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from extproc.lab.envoy_config import ListenerConfig
from extproc.lab.stack import LocalStack
from extproc.lab.vllm import Server, vllm_servers
from extproc.prompt import read_prompt
from extproc.prompt.model import Prompt, ToolsPlace
from tests.vllm.chats import Agent, Json, agent, chat_body, turns
from tests.vllm.client import ANSWER_TOKENS, CHAT, COMPLETIONS, FACTS, Dialect, ask
from tests.vllm.measured import Row, longest_shared, table

PYTHON = "VLLM_PYTHON"
"""Names the interpreter that can import vLLM."""

SERVERS_START_S = 1800.0
METRICS = {"x-prefix-metrics": "/metrics", "x-prefix-metrics-interval": "1s"}
ROWS = pytest.StashKey[list[Row]]()


@dataclass(frozen=True, slots=True)
class Pool:
    """A listener, and the pool behind it.

    Attributes:
        name: Of both.
        replicas: Their addresses.
        tools: ``x-prefix-tools``.
        bytes_per_token: ``x-prefix-bytes-per-token``: what its prompts were measured to have.
        more: Further settings.
    """

    name: str
    replicas: list[str]
    tools: ToolsPlace
    bytes_per_token: float
    more: Mapping[str, str] = field(default_factory=dict)

    def listener(self) -> ListenerConfig:
        metadata = {
            "x-prefix-pool": self.name,
            "x-prefix-replicas": ",".join(self.replicas),
            "x-prefix-tools": self.tools.value,
            "x-prefix-bytes-per-token": f"{self.bytes_per_token:.3f}",
            "x-prefix-ttl": "6h",
            **self.more,
        }
        return ListenerConfig(
            self.name, metadata=metadata, message_timeout_s=30.0, response_headers=FACTS
        )


@dataclass(slots=True)
class Stage:
    """What the tests share.

    Attributes:
        stack: Envoy, Valkey and the routers.
        servers: The vLLM servers.
        pools: By name. Each has its own, so that no test meets another's affinity.
        http: To send with.
        rows: What was measured.
    """

    stack: LocalStack
    servers: list[Server]
    pools: dict[str, Pool]
    http: aiohttp.ClientSession
    rows: list[Row] = field(default_factory=list)
    _seen_by_router: dict[tuple[str, str], list[bytes]] = field(
        default_factory=lambda: defaultdict(list)
    )
    _seen_by_engine: dict[str, list[list[int]]] = field(default_factory=lambda: defaultdict(list))

    async def ask(
        self,
        pool: str,
        conversation: str,
        turn: int,
        someone: Agent,
        messages: list[Json],
        dialect: Dialect = CHAT,
        *,
        stream: bool = False,
        answer_tokens: int = ANSWER_TOKENS,
        tools_first: bool = False,
    ) -> Row:
        """Send a request and note what came of it.

        Args:
            pool: Of ``pools``.
            conversation: For the table.
            turn: For the table.
            someone: The agent.
            messages: All messages so far.
            dialect: The API.
            stream: Whether the answer comes as events.
            answer_tokens: The answer's length.
            tools_first: Whether the template is to have the tools in front.
        """
        template = {"chat_template_kwargs": {"tools_first": True}} if tools_first else {}
        body = dialect.body(someone, messages) | template
        url = self.stack.url(pool)
        answer = await ask(
            self.http, url, dialect, body, stream=stream, answer_tokens=answer_tokens
        )
        content = prompt_bytes(dialect, body, self.pools[pool].tools)
        same = completion if dialect is COMPLETIONS else chat_body
        tokens = await tokenize(
            self.http, self.servers[0].address, same(someone, messages) | template
        )
        assert answer.usage.prompt == len(tokens)
        of_router = self._seen_by_router[pool, answer.served_by]
        of_engine = self._seen_by_engine[answer.served_by]
        row = Row(
            conversation,
            turn,
            answer,
            shared_bytes=longest_shared(content, of_router),
            shared_tokens=longest_shared(tokens, of_engine),
            bytes_per_token=self.pools[pool].bytes_per_token,
        )
        of_router.append(content)
        of_engine.append(tokens)
        self.rows.append(row)
        return row

    def forgot(self, server: Server) -> None:
        """Take note that a server lost its cache."""
        self._seen_by_engine[server.address].clear()


def completion(someone: Agent, messages: list[Json]) -> Json:
    body = COMPLETIONS.body(someone, messages)
    return {"model": body["model"], "prompt": body["prompt"]}


def prompt_bytes(dialect: Dialect, body: Json, place: ToolsPlace) -> bytes:
    """The prompt as the router has it."""
    prompt = read_prompt(
        dialect.path,
        "application/json",
        "",
        json.dumps(body).encode(),
        complete=True,
        tools_place=place,
    )
    assert isinstance(prompt, Prompt)
    return prompt.content


async def tokenize(http: aiohttp.ClientSession, address: str, body: Json) -> list[int]:
    """The prompt as the engine has it."""
    async with http.post(f"http://{address}/tokenize", json=body) as reply:
        assert reply.status == 200, await reply.text()
        tokens: list[int] = (await reply.json())["tokens"]
        return tokens


async def measured_bytes_per_token(
    http: aiohttp.ClientSession, address: str, someone: Agent
) -> float:
    """Prompt bytes to a token of a chat that has gone on for some turns."""
    body = chat_body(someone, list(turns(someone, random.Random("ratio"), 4))[-1])
    content = prompt_bytes(CHAT, body, ToolsPlace.AFTER_SYSTEM)
    return len(content) / len(await tokenize(http, address, body))


@pytest.fixture(scope="session")
def python() -> Path:
    named = os.environ.get(PYTHON, "")
    if not named:
        pytest.skip(f"{PYTHON} names no Python that has vLLM: `make test-vllm` installs one")
    return Path(named).absolute()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def stage(
    python: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> AsyncIterator[Stage]:
    folder = tmp_path_factory.mktemp("vllm")
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=600)) as http,
        vllm_servers(2, folder, python, SERVERS_START_S, events=True) as servers,
    ):
        addresses = [server.address for server in servers]
        rng = random.Random("ratio")
        with_tools = await measured_bytes_per_token(http, addresses[0], agent(rng))
        of_text = await measured_bytes_per_token(http, addresses[0], agent(rng, tools=0))
        events = METRICS | {
            "x-prefix-kv-events-port": str(servers[0].events_port),
            "x-prefix-kv-events-replay-port": str(servers[0].replay_port),
        }
        pools = [
            Pool("tools", addresses, ToolsPlace.AFTER_SYSTEM, with_tools),
            Pool("text", addresses, ToolsPlace.AFTER_SYSTEM, of_text),
            Pool("after_system", addresses[:1], ToolsPlace.AFTER_SYSTEM, with_tools),
            Pool("first", addresses[:1], ToolsPlace.FIRST, with_tools),
            Pool("restarted", addresses[1:], ToolsPlace.AFTER_SYSTEM, with_tools, METRICS),
            Pool("cleared", addresses[:1], ToolsPlace.AFTER_SYSTEM, with_tools, events),
        ]
        stack = LocalStack(
            [pool.listener() for pool in pools],
            routers=2,
            addresses=addresses,
            router_arguments=["--store-deadline-ms", "5000"],
            folder=folder / "stack",
            deadline_s=120,
        )
        async with stack:
            stage = Stage(stack, servers, {pool.name: pool for pool in pools}, http)
            request.config.stash[ROWS] = stage.rows
            yield stage


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what was predicted and what was cached."""
    rows = terminalreporter.config.stash.get(ROWS, [])
    if rows:
        terminalreporter.section("tokens predicted by the router, and cached by vLLM")
        ratios = {f"{row.bytes_per_token:.2f}" for row in rows}
        terminalreporter.line(f"bytes to a token, by pool: {', '.join(sorted(ratios))}")
        for line in table(rows):
            terminalreporter.line(line)
