"""A load generator that costs little: raw sockets, requests that are ready, one thread.

It takes about half of what Envoy alone takes for a request, and runs in the caller's process: on
nobody's account but its own. A client in C would need a program that not every machine has.
"""

import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

_END_OF_HEAD = b"\r\n\r\n"
_LENGTH = b"content-length:"
_RECEIVE = 1 << 18


class LoadError(Exception):
    """The load could not be put on: what answered, or that nothing did."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to send.

    Attributes:
        port: On 127.0.0.1.
        requests: How many.
        clients: Connections, each with one request under way at any time.
        parts: What precedes and follows the serial number that makes each request's prompt
            its own.
        path: Of the requests.
        timeout_s: Longest wait for an answer.
    """

    port: int
    requests: int
    clients: int
    parts: tuple[bytes, bytes]
    path: str = "/v1/chat/completions"
    timeout_s: float = 60.0


class _Connection:
    """One client: sends a request, waits for the whole answer, sends the next."""

    __slots__ = ("_answer", "_expected", "_unsent", "socket", "started")

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.started = 0.0
        self._unsent: list[memoryview] = []
        self._answer = b""
        self._expected = 0

    def begin(self, parts: list[bytes]) -> None:
        """Start a request."""
        self._unsent = [memoryview(part) for part in parts]
        self._answer, self._expected = b"", 0
        self.started = perf_counter()

    def send(self) -> bool:
        """Send what the socket takes; whether all is sent."""
        unsent = self._unsent
        while unsent:
            try:
                sent = self.socket.sendmsg(unsent)
            except BlockingIOError:
                return False
            while unsent and sent >= len(unsent[0]):
                sent -= len(unsent.pop(0))
            if sent:
                unsent[0] = unsent[0][sent:]
        return True

    def receive(self) -> bool:
        """Read what there is; whether the answer is whole.

        Raises:
            LoadError: If it is no answer with a length and status 200.
        """
        try:
            data = self.socket.recv(_RECEIVE)
        except BlockingIOError:
            return False
        if not data:
            raise LoadError("the connection was closed before the answer was whole")
        self._answer += data
        if not self._expected:
            end = self._answer.find(_END_OF_HEAD)
            if end < 0:
                return False
            self._expected = end + len(_END_OF_HEAD) + _length(self._answer[:end])
        return len(self._answer) >= self._expected


def _length(head: bytes) -> int:
    head = head.lower()
    start = head.find(_LENGTH)
    if not head.startswith(b"http/1.1 200") or start < 0:
        raise LoadError(f"unexpected answer: {head.decode(errors='replace')[:300]}")
    return int(head[start + len(_LENGTH) :].partition(b"\r\n")[0])


def run(load: Load, serials: Iterator[int]) -> list[float]:
    """Put the load on, until all is answered.

    Args:
        load: What to send.
        serials: Numbers of which each makes another prompt.

    Returns:
        Seconds from each request's first byte sent to its answer's last one received.

    Raises:
        LoadError: If an answer is missing or not 200.
        OSError: If nobody listens.
    """
    requests = _requests(load, serials)
    connections: dict[int, _Connection] = {}
    poll = select.epoll()
    times: list[float] = []
    try:
        for _, request in zip(range(min(load.clients, load.requests)), requests, strict=False):
            connection = _Connection(load.port)
            connections[connection.socket.fileno()] = connection
            poll.register(connection.socket, select.EPOLLIN)
            _start(connection, request, poll)
        while len(times) < load.requests:
            ready = poll.poll(load.timeout_s)
            if not ready:
                raise LoadError(f"no answer in {load.timeout_s:g} s")
            for number, events in ready:
                connection = connections[number]
                if events & select.EPOLLOUT and connection.send():
                    poll.modify(number, select.EPOLLIN)
                if events & ~select.EPOLLOUT and connection.receive():
                    times.append(perf_counter() - connection.started)
                    if (following := next(requests, None)) is not None:
                        _start(connection, following, poll)
    finally:
        poll.close()
        for connection in connections.values():
            connection.socket.close()
    return times


def _start(connection: _Connection, request: list[bytes], poll: select.epoll) -> None:
    connection.begin(request)
    if not connection.send():
        poll.modify(connection.socket, select.EPOLLIN | select.EPOLLOUT)


SERIAL = 12
"""Digits of a serial number."""


def _requests(load: Load, serials: Iterator[int]) -> Iterator[list[bytes]]:
    before, after = load.parts
    head = (
        f"POST {load.path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\n"
        f"content-length: {len(before) + SERIAL + len(after)}\r\n\r\n"
    ).encode()
    opening = head + before
    for _, serial in zip(range(load.requests), serials, strict=False):
        yield [b"%s%0*d" % (opening, SERIAL, serial), after]
