"""Recorded traffic: Mooncake-format traces, and a user's own log."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from extproc.lab.replica.cache import BLOCK_TOKENS, BYTES_PER_TOKEN, chain_hashes
from extproc.lab.replica.openai import DEFAULT_OUTPUT_TOKENS
from extproc.lab.simulator.calls import Call, Workload
from extproc.prompt import read_prompt
from extproc.prompt.model import Unreadable

HASH_TOKENS = 512
"""Tokens of a block of a Mooncake-format trace."""

_PARTS = HASH_TOKENS // BLOCK_TOKENS
_OUTPUT_FIELDS = ("max_completion_tokens", "max_tokens", "max_output_tokens")


class TraceError(Exception):
    """A trace that cannot be read; the message says where and why."""


@dataclass(frozen=True, slots=True)
class _Line:
    number: int
    at_s: float
    fields: Mapping[str, Any]


def read_trace(path: Path, *, rate_scale: float = 1.0, limit: int = 0) -> Workload:
    """Read a JSONL file: one request per line, each with ``timestamp`` in milliseconds.

    A line is one of these, and a file may mix them:

    - Mooncake's: ``input_length``, ``output_length`` and ``hash_ids``, one per block of 512 tokens.
    - a log's: ``path`` and ``body`` (the request's JSON, as an object or a string), and if known
      ``output_length``.

    Args:
        path: The file.
        rate_scale: How many times faster to send than recorded.
        limit: Read so many requests only; 0: all.

    Raises:
        TraceError: If a line is none of these, naming it.
        OSError: If the file cannot be read.
    """
    lines = sorted(_lines(path, limit), key=lambda line: line.at_s)
    if not lines:
        raise TraceError(f"{path} has no requests")
    start = lines[0].at_s

    def calls() -> Iterator[Call]:
        for line in lines:
            yield _call(path, line, (line.at_s - start) / rate_scale)

    # The first is read at once, so that a file of another kind is refused before anything runs.
    _call(path, lines[0], 0.0)
    return Workload(path.name, calls(), len(lines))


def _lines(path: Path, limit: int) -> Iterator[_Line]:
    with path.open(encoding="utf-8") as file:
        found = 0
        for number, text in enumerate(file, 1):
            if not text.strip():
                continue
            try:
                fields = json.loads(text)
                at_s = float(fields["timestamp"]) / 1000
            except (ValueError, TypeError, KeyError) as error:
                raise TraceError(
                    f"{path}, line {number}: not a JSON object with a number in 'timestamp'"
                ) from error
            yield _Line(number, at_s, fields)
            found += 1
            if found == limit:
                return


def _call(path: Path, line: _Line, at_s: float) -> Call:
    fields = line.fields
    try:
        if "hash_ids" in fields:
            return _hashed(fields, at_s)
        if "body" in fields:
            return _logged(fields, at_s)
    except (ValueError, TypeError, KeyError) as error:
        raise TraceError(f"{path}, line {line.number}: {error!r}") from error
    raise TraceError(
        f"{path}, line {line.number}: neither 'hash_ids' (with 'input_length', 'output_length') "
        "nor 'body' (with 'path')"
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


def _logged(fields: Mapping[str, Any], at_s: float) -> Call:
    body = fields["body"]
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    prompt = read_prompt(str(fields["path"]), "application/json", "", data, complete=True)
    if isinstance(prompt, Unreadable):
        # Routed by load alone, and no engine finds anything of it in its cache.
        return Call(at_s, (), max(1, len(data) // BYTES_PER_TOKEN), _output_tokens(fields, data))
    chain = chain_hashes(prompt.content, prompt.salt)
    tokens = max(1, len(prompt.content) // BYTES_PER_TOKEN)
    return Call(at_s, chain[: tokens // BLOCK_TOKENS], tokens, _output_tokens(fields, data))


def _output_tokens(fields: Mapping[str, Any], data: bytes) -> int:
    if "output_length" in fields:
        return max(1, int(fields["output_length"]))
    with suppress(ValueError, TypeError):
        request = json.loads(data)
        for name in _OUTPUT_FIELDS:
            if request.get(name):
                return max(1, int(request[name]))
    return DEFAULT_OUTPUT_TOKENS
