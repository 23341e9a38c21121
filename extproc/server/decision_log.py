"""A log of what was decided and who served: hashes of prompts, never their text.

Written by a thread, from a bounded queue: a disk that is slow or full costs lines of the log, never
a request its time.
"""

import json
import os
import secrets
import threading
from collections import Counter, deque
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import structlog

from extproc.pool_settings import PoolSettings
from extproc.prompt.model import Fingerprint
from extproc.routing import Decision

_log = structlog.get_logger(__name__)

WAITING = 10_000
"""Lines that may wait to be written; those that come on top are dropped."""

_PAUSE_S = 0.2
_PATIENCE_S = 5.0
_AT_ONCE = 4
_BREATH_S = 0.0005
"""The writer makes so many lines, in about a tenth of a millisecond, and then lets requests on."""

WRITTEN, DROPPED, FAILED = "written", "dropped", "failed"


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, from its decision to the end of its response.

    Attributes:
        at_s: When it was decided, in Unix time.
        pool: The pool's name.
        settings: The pool's.
        decision: Of the strategy, also where ``shadow`` mode left the choice to Envoy.
        fingerprint: Of its prompt, or None where there was none to read.
        served: Who served, or empty where that is not known.
        status: Of the response; 0 where there was none.
        duration_s: From the decision to the end.
    """

    at_s: float
    pool: str
    settings: PoolSettings
    decision: Decision
    fingerprint: Fingerprint | None
    served: str
    status: int
    duration_s: float


class DecisionLog:
    """Appends entries to a file as lines of JSON.

    Every hash is written as a keyed hash of it, so that whoever reads the log without the key can
    see which prompts begin alike, but cannot try whether one begins with a text that he guesses.

    Args:
        path: The file. If it is renamed or removed, a new one is begun in its place.
        key: Logs that are written under one key can be read together; empty: one that nobody
            knows, not even the next start.
        lines: Counts lines as ``written``, ``dropped`` (the queue was full) or ``failed``.
    """

    def __init__(self, path: Path, key: str, lines: Counter[str]) -> None:
        self._path = path
        self._lines = lines
        secret = blake2b((key or secrets.token_hex()).encode()).digest()
        self._keyed = blake2b(key=secret, digest_size=8)
        self._waiting: deque[Entry] = deque()
        self._file = -1
        self._failing = False
        self._ending = threading.Event()
        self._writer = threading.Thread(target=self._write_all, name="decision-log", daemon=True)

    def start(self) -> None:
        """Open the file and begin to write.

        Raises:
            OSError: If the file cannot be written.
        """
        self._open()
        self._writer.start()

    def add(self, entry: Entry) -> None:
        """Queue an entry; never waits, never fails."""
        if len(self._waiting) >= WAITING:
            self._lines[DROPPED] += 1
        else:
            self._waiting.append(entry)

    def close(self) -> None:
        """Write what is queued, and end. Waits for the disk, but not for one that hangs."""
        self._ending.set()
        if self._writer.is_alive():
            self._writer.join(_PATIENCE_S)
        if self._file >= 0 and not self._writer.is_alive():
            os.close(self._file)
            self._file = -1

    def line(self, entry: Entry) -> bytes:
        """An entry as it is written."""
        decision, found = entry.decision, entry.fingerprint
        content: dict[str, Any] = {
            "timestamp": round(entry.at_s * 1000, 3),
            "pool": entry.pool,
            "mode": entry.settings.mode.value,
            "strategy": entry.settings.strategy.value,
            "total_tokens": found.total_tokens if found else 0,
            "tokens": [],
            "hashes": [],
            "ranked": list(decision.ranked),
            "reason": decision.reason.value,
            "matched_tokens": decision.matched_tokens,
            "served": entry.served or None,
            "status": entry.status or None,
            "duration_ms": round(entry.duration_s * 1000, 3),
        }
        if found is not None:
            content["tokens"] = found.tokens
            content["hashes"] = [self._hidden(value) for value in found.hashes]
        return json.dumps(content, separators=(",", ":")).encode() + b"\n"

    def _hidden(self, value: bytes) -> str:
        keyed = self._keyed.copy()
        keyed.update(value)
        return keyed.hexdigest()

    def _write_all(self) -> None:
        while not self._ending.wait(_PAUSE_S):
            while self._write_some():
                self._ending.wait(_BREATH_S)
        while self._write_some():
            pass

    def _write_some(self) -> bool:
        entries = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting)))]
        if not entries:
            return False
        try:
            self._append(b"".join(map(self.line, entries)))
        except OSError as error:
            self._lines[FAILED] += len(entries)
            if not self._failing:
                _log.error(
                    "decision log cannot be written",
                    path=str(self._path),
                    error=os.strerror(error.errno) if error.errno else str(error),
                    cure="make room, or let this process write there; requests go on without it",
                )
            self._failing = True
        else:
            self._lines[WRITTEN] += len(entries)
            if self._failing:
                _log.info("decision log is written again", path=str(self._path))
            self._failing = False
        return True

    def _append(self, data: bytes) -> None:
        if not self._is_ours():
            self._open()
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[os.write(self._file, rest) :]
        except OSError:
            done = len(data) - len(rest)
            if done:  # half a line would spoil the whole file for its readers
                with suppress(OSError):
                    os.ftruncate(self._file, os.fstat(self._file).st_size - done)
            raise

    def _is_ours(self) -> bool:
        """Whether the file that is open is still the one of this name."""
        try:
            return os.path.samestat(os.fstat(self._file), self._path.stat())
        except OSError:
            return False

    def _open(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self._path, flags, 0o640)
