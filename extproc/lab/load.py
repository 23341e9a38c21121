"""An open-loop client: it sends each request at its time, however slow the answers are."""

import asyncio
import json
import time
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from extproc.lab.workload import Conversation, Workload


@dataclass(frozen=True, slots=True)
class Record:
    """What became of one request.

    Attributes:
        sent_s: When it was sent, in seconds from the start.
        ttft_s: From sending to the first data token of the stream; -1 if none came.
        ended_s: When its response ended, in seconds from the start.
        status: The HTTP status; 0 if there was no response.
        prompt_tokens: As the replica counted.
        cached_tokens: As the replica counted.
        replica: The response header ``x-replica``, or empty.
        error: What went wrong, or empty.
        place: Which conversation of the workload, and which of its turns, both from 0.
    """

    sent_s: float
    ttft_s: float
    ended_s: float
    status: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    replica: str = ""
    error: str = ""
    place: tuple[int, int] = (0, 0)

    @property
    def ok(self) -> bool:
        """Whether a whole answer came."""
        return self.status == 200 and self.ttft_s >= 0 and not self.error

    @property
    def hit(self) -> bool:
        """Whether the replica had most of the prompt in its cache."""
        return 2 * self.cached_tokens > self.prompt_tokens


async def run(
    workload: Workload,
    url: str,
    *,
    on_record: Callable[[Record], None] = lambda _: None,
    timeout_s: float = 60.0,
) -> list[Record]:
    """Send a workload.

    Args:
        workload: What to send.
        url: Base URL; requests go to its ``/v1/chat/completions``.
        on_record: Called at each request's end.
        timeout_s: For each request.

    Returns:
        One record per request that was sent, in order of their ends. A conversation stops at its
        first failed turn.
    """
    client = _Client(workload, url + "/v1/chat/completions", on_record)
    async with (
        aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(total=timeout_s),
            headers={"content-type": "application/json"},
        ) as session,
        asyncio.TaskGroup() as group,
    ):
        for number, conversation in enumerate(workload.conversations):
            group.create_task(client.converse(session, conversation, number))
    return client.records


class _Client:
    def __init__(self, workload: Workload, url: str, on_record: Callable[[Record], None]) -> None:
        self.records: list[Record] = []
        self._workload = workload
        self._url = url
        self._on_record = on_record
        self._started = time.perf_counter()
        self._slots = asyncio.Semaphore(workload.concurrency or len(workload.conversations))

    async def converse(
        self, session: aiohttp.ClientSession, conversation: Conversation, number: int
    ) -> None:
        await asyncio.sleep(self._started + conversation.at_s - time.perf_counter())
        async with self._slots:
            await self._converse(session, conversation, number)

    async def _converse(
        self, session: aiohttp.ClientSession, conversation: Conversation, number: int
    ) -> None:
        answers: list[str] = []
        for turn in range(len(conversation.turns)):
            if turn:
                await asyncio.sleep(conversation.think_s)
            body = self._workload.body(conversation, turn, answers)
            record, answer = await self._ask(session, body, (number, turn))
            self.records.append(record)
            self._on_record(record)
            if not record.ok:
                return
            answers.append(answer)

    async def _ask(
        self, session: aiohttp.ClientSession, body: bytes, place: tuple[int, int]
    ) -> tuple[Record, str]:
        answer = _Answer()
        status = 0
        replica = error = ""
        sent = time.perf_counter()
        try:
            async with session.post(self._url, data=body) as response:
                status = response.status
                replica = response.headers.get("x-replica", "")
                if status == 200:
                    async for line in response.content:
                        answer.take(line)
                else:
                    error = (await response.text())[:200]
        except (aiohttp.ClientError, TimeoutError) as problem:
            error = repr(problem)
        if status == 200 and not error and not answer.done:
            error = "the stream ended early"
        record = Record(
            sent_s=sent - self._started,
            ttft_s=answer.first - sent if answer.first else -1.0,
            ended_s=time.perf_counter() - self._started,
            status=status,
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            replica=replica,
            error=error,
            place=place,
        )
        return record, "".join(answer.parts)


class _Answer:
    """Reads server-sent events line by line."""

    def __init__(self) -> None:
        self.first = 0.0
        self.parts: list[str] = []
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.done = False

    def take(self, line: bytes) -> None:
        if not line.startswith(b"data:"):
            return
        data = line[5:].strip()
        if data == b"[DONE]":
            self.done = True
            return
        fields = json.loads(data)
        for choice in fields.get("choices") or ():
            # vLLM opens a chat's stream with an empty piece, at the first token.
            if not self.first:
                self.first = time.perf_counter()
            self.parts.append(choice.get("delta", {}).get("content") or "")
        if usage := fields.get("usage"):
            self.prompt_tokens = usage["prompt_tokens"]
            details = usage.get("prompt_tokens_details") or {}
            self.cached_tokens = details.get("cached_tokens") or 0
