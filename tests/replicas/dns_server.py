"""A small DNS server on loopback, of dnspython's message classes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import dns.flags
import dns.message
import dns.name
import dns.rcode
import dns.rdatatype
import dns.rrset

from extproc.lab.processes import PortPool


class DnsServer:
    """Answers from ``records``, over UDP, and over TCP where an answer is truncated.

    Attributes:
        records: Name and type to its time to live and its records' texts.
        questions: What was asked, as name and type.
        rcode: Answered to everything, if set.
        mute: Whether to answer nothing at all.
        most_by_udp: How many records an answer over UDP has at most, as if there were no others.
        truncate: Whether answers over UDP come without records, so that clients ask over TCP.
    """

    def __init__(self, port: int) -> None:
        self.address = f"127.0.0.1:{port}"
        self.records: dict[tuple[str, str], tuple[int, list[str]]] = {}
        self.questions: list[tuple[str, str]] = []
        self.rcode: dns.rcode.Rcode | None = None
        self.mute = False
        self.truncate = False
        self.most_by_udp = 1000

    def put(self, name: str, kind: str, *texts: str, ttl: int = 1) -> None:
        self.records[name, kind] = (ttl, list(texts))

    def answer(self, wire: bytes, *, tcp: bool) -> bytes | None:
        query = dns.message.from_wire(wire)
        question = query.question[0]
        name, kind = str(question.name).rstrip("."), dns.rdatatype.to_text(question.rdtype)
        self.questions.append((name, kind))
        if self.mute:
            return None
        response = dns.message.make_response(query)
        if self.rcode is not None:
            response.set_rcode(self.rcode)
        elif not any(known == name for known, _ in self.records):
            response.set_rcode(dns.rcode.NXDOMAIN)
        elif self.truncate and not tcp:
            response.flags |= dns.flags.TC
        else:
            self._fill(response, name, kind, 1000 if tcp else self.most_by_udp)
        return response.to_wire()

    def _fill(self, response: dns.message.Message, name: str, kind: str, most: int) -> None:
        alias = self.records.get((name, "CNAME"))
        if alias is not None:
            _add(response, name, "CNAME", alias)
            name = alias[1][0].rstrip(".")
        if (name, kind) in self.records:
            ttl, texts = self.records[name, kind]
            _add(response, name, kind, (ttl, texts[:most]))


def _add(
    response: dns.message.Message, name: str, kind: str, records: tuple[int, list[str]]
) -> None:
    ttl, texts = records
    response.answer.append(dns.rrset.from_text_list(name + ".", ttl, "IN", kind, texts))


class _Udp(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = self._server.answer(data, tcp=False)
        if reply is not None:
            self._transport.sendto(reply, addr)


@asynccontextmanager
async def serving() -> AsyncIterator[DnsServer]:
    """A server on a free port."""
    port = PortPool().take()
    server = DnsServer(port)

    async def tcp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while size := await reader.read(2):
                reply = server.answer(
                    await reader.readexactly(int.from_bytes(size, "big")), tcp=True
                )
                if reply is None:
                    break
                writer.write(len(reply).to_bytes(2, "big") + reply)
        finally:
            writer.close()

    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(
        lambda: _Udp(server), local_addr=("127.0.0.1", port)
    )
    try:
        async with await asyncio.start_server(tcp, "127.0.0.1", port):
            yield server
    finally:
        transport.close()
