"""What a replica received, byte for byte, for tests to read."""

import hashlib
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from multidict import CIMultiDictProxy

MAX_ENTRIES = 4096


@dataclass(slots=True)
class ReceivedRequest:
    """One request as it arrived.

    Attributes:
        method: The HTTP method.
        path: With the query string, as it stood in the request line.
        headers: Pairs in order of arrival.
        size: Bytes of the body so far.
        complete: Whether the body's end arrived.
        aborted: Whether the client left before the response's end.
    """

    method: str
    path: str
    headers: list[tuple[str, str]]
    size: int = 0
    complete: bool = False
    aborted: bool = False
    _digest: Any = field(default_factory=hashlib.sha256)

    def update(self, data: bytes) -> None:
        """Take in the next bytes of the body."""
        self._digest.update(data)
        self.size += len(data)

    @property
    def sha256(self) -> str:
        """Hexadecimal digest of the body bytes so far."""
        return str(self._digest.hexdigest())

    def as_json(self) -> dict[str, Any]:
        """The entry as ``/lab/requests`` shows it."""
        return {
            "method": self.method,
            "path": self.path,
            "headers": self.headers,
            "sha256": self.sha256,
            "size": self.size,
            "complete": self.complete,
            "aborted": self.aborted,
        }


class RequestLog:
    """The last requests, oldest first, at most ``MAX_ENTRIES``."""

    def __init__(self) -> None:
        self._entries: deque[ReceivedRequest] = deque(maxlen=MAX_ENTRIES)

    def begin(self, method: str, path: str, headers: CIMultiDictProxy[str]) -> ReceivedRequest:
        """Add a request whose head arrived."""
        entry = ReceivedRequest(method, path, list(headers.items()))
        self._entries.append(entry)
        return entry

    def clear(self) -> None:
        """Forget all entries."""
        self._entries.clear()

    def as_json(self) -> list[dict[str, Any]]:
        """All entries."""
        return [entry.as_json() for entry in self._entries]
