"""Real vLLM servers as replicas: one CPU core each, and a model made on the spot."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from pathlib import Path

import aiohttp

from extproc.lab.processes import Part, PortPool, StackError
from extproc.lab.vllm_model import MAX_MODEL_LEN, WORDS, write_model

MODEL_NAME = "tiny-llama"
DEFAULT_PYTHON = Path(".venv-vllm/bin/python")
BLOCK_TOKENS = 32
KV_CACHE_GIB = 1
"""Room for 131,072 tokens of the tiny model, so that nothing of a short run is evicted."""

START_S = 600.0
"""A start takes half a minute, but a first one on a busy machine reads 2 GB from its disk."""
STOP_S = 20.0

_LOCAL = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
}


class Server(Part):
    """A vLLM server.

    Attributes:
        address: ``127.0.0.1:port``.
        events_port: Where it publishes its cache's events; 0 where it does not.
        replay_port: Where missed ones can be had again.
    """

    address: str
    events_port: int = 0
    replay_port: int = 0

    async def stop(self, grace_s: float = STOP_S) -> None:
        """Stop it, and the worker processes that it may have left."""
        await super().stop(grace_s)
        with suppress(StackError, ProcessLookupError):  # never started; none left
            os.killpg(self.pid, signal.SIGKILL)


@asynccontextmanager
async def vllm_servers(
    count: int,
    folder: Path,
    python: Path = DEFAULT_PYTHON,
    start_s: float = START_S,
    arguments: Sequence[str] = (),
    *,
    events: bool = False,
) -> AsyncIterator[list[Server]]:
    """Run vLLM servers while the context lasts.

    Args:
        count: How many.
        folder: For the model and the servers' logs, ``vllm-<n>.log``.
        python: The interpreter that can import vLLM. It lives in a virtual environment of its
            own, since it pins hundreds of packages.
        start_s: Seconds that each has to start, all at once.
        arguments: Added to each server's command line.
        events: Whether they publish their caches' events, and may be told to clear their caches.

    Yields:
        The servers, which can be restarted.

    Raises:
        StackError: If one does not come up.
    """
    if not await asyncio.to_thread(python.exists):
        raise StackError(
            f"{python} does not exist. `make demo-vllm` makes it; or name the Python of an "
            "environment that has vLLM with --vllm-python."
        )
    model = await asyncio.to_thread(write_model, folder / "model")
    cores = sorted(os.sched_getaffinity(0))
    ports = PortPool()
    mode = {"VLLM_SERVER_DEV_MODE": "1"} if events else {}
    async with aiohttp.ClientSession() as http:
        servers = []
        for number in range(count):
            address = f"127.0.0.1:{ports.take()}"
            own = (ports.take(), ports.take()) if events else (0, 0)
            server = Server(
                f"vllm-{number}",
                [str(python), *_arguments(model, address), *_publishing(*own), *arguments],
                log=folder / f"vllm-{number}.log",
                ready=_answers(http, address),
                environment=os.environ | _environment(cores[number % len(cores)]) | mode,
            )
            server.address = address
            server.events_port, server.replay_port = own
            servers.append(server)
        try:
            await _start_all(servers, start_s)
            yield servers
            for server in servers:
                server.check()
        except BaseException as error:
            if not isinstance(error, StackError):  # which has the end of the log already
                error.add_note("\n".join(server.tail() for server in servers))
            raise
        finally:
            await asyncio.gather(*(server.stop() for server in servers))


def _arguments(model: Path, address: str) -> list[str]:
    host, _, port = address.rpartition(":")
    return [
        *("-m", "vllm.entrypoints.openai.api_server", "--host", host, "--port", port),
        *("--model", str(model), "--served-model-name", MODEL_NAME),
        *("--load-format", "dummy", "--dtype", "float32", "--enforce-eager"),
        *("--max-model-len", str(MAX_MODEL_LEN), "--block-size", str(BLOCK_TOKENS)),
        *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    ]


def _publishing(port: int, replay_port: int) -> list[str]:
    if not port:
        return []
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": f"tcp://*:{port}",  # vLLM binds wildcards, and connects to the rest
        "replay_endpoint": f"tcp://127.0.0.1:{replay_port}",
        "topic": "kv-events",
    }
    return ["--kv-events-config", json.dumps(config)]


def _environment(core: int) -> dict[str, str]:
    return _LOCAL | {
        "VLLM_CPU_OMP_THREADS_BIND": str(core),
        "VLLM_CPU_KVCACHE_SPACE": str(KV_CACHE_GIB),
    }


async def _start_all(servers: list[Server], start_s: float) -> None:
    try:
        async with asyncio.TaskGroup() as group:
            for server in servers:
                group.create_task(server.start(start_s))
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from None


def _answers(http: aiohttp.ClientSession, address: str) -> Callable[[], Awaitable[bool]]:
    """Healthy, and has given an answer: the first one sets up what vLLM sets up lazily."""
    prompt = {"model": MODEL_NAME, "prompt": WORDS[0], "max_tokens": 2}

    async def ready() -> bool:
        try:
            async with http.get(f"http://{address}/health") as health:
                if health.status != HTTPStatus.OK:
                    return False
            async with http.post(f"http://{address}/v1/completions", json=prompt) as answer:
                return answer.status == HTTPStatus.OK
        except aiohttp.ClientError:
            return False

    return ready
