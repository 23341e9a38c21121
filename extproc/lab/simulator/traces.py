"""Recorded traffic: Mooncake-format traces, and a user's own logs."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extproc.lab.replica.cache import BLOCK_TOKENS, BYTES_PER_TOKEN, chain_hashes
from extproc.lab.simulator.calls import Call, Workload
from extproc.prompt import read_prompt
from extproc.prompt.model import Unreadable

HASH_TOKENS = 512
"""Tokens of a block of a Mooncake-format trace."""

ANSWER_TOKENS = 200
"""Tokens of an answer where nothing tells them: about the mean of published chats."""

_PARTS = HASH_TOKENS // BLOCK_TOKENS
_BLOCK_BITS = 24
_OUTPUT_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class TraceError(Exception):
    """A trace that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at_s: float
    fields: Mapping[str, Any]


def read_trace(
    path: Path,
    *,
    rate_scale: float = 1.0,
    limit: int = 0,
    pool: str = "",
    output_tokens: int = ANSWER_TOKENS,
) -> Workload:
    """Read a JSONL file: one request per line, each with ``timestamp`` in milliseconds.

    A line is one of these, and a file may mix them:

    - Mooncake's: ``input_length``, ``output_length`` and ``hash_ids``, one per block of 512 tokens.
    - a log's: ``path`` and ``body`` (the request's JSON, as an object or a string), and if known
      ``output_length``.
    - the router's decision log's (see ``extproc.server.decision_log``): ``total_tokens``,
      ``tokens`` and ``hashes``, and if known ``output_length``. Requests without a prompt are
      passed over.

    Args:
        path: The file.
        rate_scale: How many times faster to send than recorded.
        limit: Read so many requests only; 0: all.
        pool: Of a decision log, read only this pool's requests.
        output_tokens: Of an answer where neither ``output_length`` nor the body's limit tells.

    Raises:
        TraceError: If a line is none of these, naming it, or there are several pools.
        OSError: If the file cannot be read.
    """
    reader = _Reader(path, pool, output_tokens)
    lines = sorted(reader.lines(limit), key=lambda line: line.at_s)
    if not lines:
        of_pool = f" of pool {pool!r}" if pool else ""
        raise TraceError(f"{path} has no requests{of_pool}")
    start = lines[0].at_s

    def calls() -> Iterator[Call]:
        for line in lines:
            yield reader.call(line, (line.at_s - start) / rate_scale)

    # The first is read at once, so that a file of another kind is refused before anything runs.
    reader.call(lines[0], 0.0)
    return Workload(path.name, calls(), len(lines))


class _Reader:
    """Reads one file."""

    def __init__(self, path: Path, pool: str, output_tokens: int) -> None:
        self._path = path
        self._pool = pool
        self._output_tokens = output_tokens

    def lines(self, limit: int) -> Iterator[_Line]:
        """The lines to simulate, in their order in the file."""
        pools: set[str] = set()
        found = 0
        with self._path.open(encoding="utf-8") as file:
            for number, text in enumerate(file, 1):
                if not text.strip():
                    continue
                line = self._line(number, text)
                if not self._wanted(line.fields):
                    continue
                if "pool" in line.fields:
                    pools.add(str(line.fields["pool"]))
                if len(pools) > 1:
                    names = ", ".join(map(repr, sorted(pools)))
                    raise TraceError(
                        f"{self._path}, line {number}: pools {names} are not one; "
                        "choose one with --pool"
                    )
                yield line
                found += 1
                if found == limit:
                    return

    def _line(self, number: int, text: str) -> _Line:
        try:
            fields = json.loads(text)
            return _Line(number, float(fields["timestamp"]) / 1000, fields)
        except (ValueError, TypeError, KeyError) as error:
            raise TraceError(
                f"{self._path}, line {number}: not a JSON object with a number in 'timestamp'"
            ) from error

    def _wanted(self, fields: Mapping[str, Any]) -> bool:
        if "hashes" in fields and not fields.get("total_tokens"):
            return False
        return not self._pool or fields.get("pool", self._pool) == self._pool

    def call(self, line: _Line, at_s: float) -> Call:
        """A line as what is sent."""
        where, fields = f"{self._path}, line {line.number}", line.fields
        try:
            if "hash_ids" in fields:
                return _hashed(fields, at_s)
            if "body" in fields:
                return _logged(fields, at_s, self._output_tokens)
            if "hashes" in fields:
                return _decided(fields, at_s, self._output_tokens)
        except (ValueError, TypeError, KeyError) as error:
            raise TraceError(f"{where}: {error!r}") from error
        raise TraceError(
            f"{where}: neither 'hash_ids' (with 'input_length', 'output_length') nor 'body' (with "
            "'path') nor 'hashes' (of a decision log)"
        )


def _hashed(fields: Mapping[str, Any], at_s: float) -> Call:
    tokens = max(1, int(fields["input_length"]))
    chain = [
        value * _PARTS + part for value in map(int, fields["hash_ids"]) for part in range(_PARTS)
    ][: tokens // BLOCK_TOKENS]
    missing = tokens // BLOCK_TOKENS - len(chain)
    if missing:
        raise ValueError(f"hash_ids lack {missing} blocks of {BLOCK_TOKENS} tokens")
    return Call(at_s, chain, tokens, max(1, int(fields["output_length"])))


def _logged(fields: Mapping[str, Any], at_s: float, output_tokens: int) -> Call:
    body = fields["body"]
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    prompt = read_prompt(str(fields["path"]), "application/json", "", data, complete=True)
    output = _output_tokens(fields, data, output_tokens)
    if isinstance(prompt, Unreadable):
        # Routed by load alone, and no engine finds anything of it in its cache.
        return Call(at_s, (), max(1, len(data) // BYTES_PER_TOKEN), output)
    chain = chain_hashes(prompt.content, prompt.salt)
    tokens = max(1, len(prompt.content) // BYTES_PER_TOKEN)
    return Call(at_s, chain[: tokens // BLOCK_TOKENS], tokens, output)


def _decided(fields: Mapping[str, Any], at_s: float, output_tokens: int) -> Call:
    """A prompt of which only the checkpoints are known.

    The blocks up to a checkpoint are those of every prompt that has this checkpoint too, and of no
    other; behind the last one nothing is known to be shared.
    """
    chain: list[int] = []
    for tokens, value in zip(fields["tokens"], fields["hashes"], strict=True):
        blocks = range(len(chain), int(tokens) // BLOCK_TOKENS)
        chain += [int(value, 16) << _BLOCK_BITS | block for block in blocks]
    total = int(fields["total_tokens"])
    if len(chain) > total // BLOCK_TOKENS:
        raise ValueError(f"checkpoints lie behind the prompt's {total} tokens")
    output = int(fields.get("output_length", output_tokens))
    return Call(at_s, chain, max(1, total), max(1, output))


def _output_tokens(fields: Mapping[str, Any], data: bytes, otherwise: int) -> int:
    if "output_length" in fields:
        return max(1, int(fields["output_length"]))
    with suppress(ValueError, TypeError):
        request = json.loads(data)
        for name in _OUTPUT_FIELDS:
            if request.get(name):
                return max(1, int(request[name]))
    return otherwise
