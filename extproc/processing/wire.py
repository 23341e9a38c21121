"""Reading Envoy's messages: headers, attributes, metadata, addresses."""

import math
import re
import socket
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from extproc.processing.events import BodyMode, RequestHead, Responded

Headers = dict[str, list[str]]


def headers_of(header_map: Any) -> Headers:
    """Names (lower case) to values in order of arrival, from a ``HeaderMap``.

    Envoy puts the value into ``raw_value`` (bytes) by default and into ``value`` on request.
    """
    headers: Headers = {}
    for header in header_map.headers:
        name = header.key.lower()
        value = header.raw_value.decode("utf-8", "surrogateescape") or header.value
        if name in headers:
            headers[name].append(value)
        else:
            headers[name] = [value]
    return headers


class HeaderView(Mapping[str, Sequence[str]]):
    """What ``headers_of`` reads, but only as far as somebody looks.

    Args:
        header_map: The message; it must not change.
    """

    __slots__ = ("_headers",)

    def __init__(self, header_map: Any) -> None:
        self._headers = header_map.headers

    def __getitem__(self, name: str) -> Sequence[str]:
        """All values of a header, in order of arrival."""
        values = [_value(header) for header in self._headers if header.key.lower() == name]
        if not values:
            raise KeyError(name)
        return values

    def __iter__(self) -> Iterator[str]:
        """The names, each once."""
        return iter(dict.fromkeys(header.key.lower() for header in self._headers))

    def __len__(self) -> int:
        """How many names."""
        return sum(1 for _ in self)


def _value(header: Any) -> str:
    return header.raw_value.decode("utf-8", "surrogateescape") or str(header.value)


def struct_of(struct: Any) -> dict[str, Any]:
    """A ``google.protobuf.Struct`` as a plain dictionary; numbers stay doubles."""
    return {name: _plain(value) for name, value in struct.fields.items()}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("kind")
    if kind == "struct_value":
        return struct_of(value.struct_value)
    if kind == "list_value":
        return [_plain(item) for item in value.list_value.values]
    return None if kind in {None, "null_value"} else getattr(value, kind)


def attributes_of(message: Any) -> dict[str, Any]:
    """The attributes of a ``ProcessingRequest``, flattened over namespaces.

    Envoy sends one ``Struct`` per namespace, which is the filter's name, and in it one field per
    attribute, by its full name (``xds.cluster_name``).
    """
    attributes: dict[str, Any] = {}
    for struct in message.attributes.values():
        for name, value in struct.fields.items():
            kind = value.WhichOneof("kind")
            attributes[name] = getattr(value, kind) if kind in _SCALARS else _plain(value)
    return attributes


_SCALARS = frozenset({"string_value", "number_value", "bool_value"})


def metadata_of(message: Any) -> dict[str, dict[str, Any]]:
    """Namespace to fields of the untyped metadata that Envoy forwards with a message."""
    if not message.HasField("metadata_context"):
        return {}
    metadata = message.metadata_context.filter_metadata
    return {namespace: struct_of(struct) for namespace, struct in metadata.items()}


def head_of(message: Any, mode: BodyMode) -> RequestHead:
    """The head of a request, from the first ``ProcessingRequest`` of its stream."""
    headers = message.request_headers
    return RequestHead(
        headers_of(headers.headers),
        attributes_of(message),
        metadata_of(message),
        mode,
        headers.end_of_stream,
    )


SERVED = "x-gateway-destination-endpoint-served"
"""Where a gateway tells who served: a field of the response's metadata in ``envoy.lb``. Source: the
endpoint-picker protocol of the Gateway API Inference Extension (proposal 004)."""


def served_of(message: Any) -> str:
    """Who served, as a gateway tells it in a response's metadata; empty where it does not."""
    if not message.HasField("metadata_context"):
        return ""
    fields = message.metadata_context.filter_metadata.get("envoy.lb")
    return str(fields.fields[SERVED].string_value) if fields and SERVED in fields.fields else ""


def responded_of(
    attributes: Mapping[str, Any], headers: Mapping[str, Sequence[str]], served: str = ""
) -> Responded:
    """What a response tells of who served, and how.

    Args:
        attributes: Envoy's.
        headers: The response's. Their word counts last: a replica can write what it likes.
        served: What ``served_of`` found. It counts first: behind a second hop, attributes tell
            only of the hop.
    """
    get, status = attributes.get, headers.get(":status")
    return Responded(
        canonical_address(served)
        or canonical_address(_text(get("upstream.address")))
        or canonical_address(next(iter(headers.get(SERVED, ())), "")),
        _whole(get("upstream.request_attempt_count")),
        _digits(status[0]) if status else _whole(get("response.code")),
        _whole(get("response.flags")),
        _text(get("response.code_details")),
        headers,
    )


def content_length(head: RequestHead) -> int | None:
    """The declared length of a request's body in bytes, or None where there is no valid one."""
    text = head.header("content-length")
    return int(text) if _NUMBER.fullmatch(text) else None


# More digits than any length needs, and far fewer than ``int`` refuses to read.
_NUMBER = re.compile(r"[0-9]{1,18}")


def _digits(text: str) -> int:
    return int(text) if _NUMBER.fullmatch(text) else 0


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _whole(value: Any) -> int:
    """An attribute's number as an integer: they come as doubles, some proxies write strings."""
    if isinstance(value, str):
        return _digits(value)
    return int(value) if isinstance(value, float) and math.isfinite(value) else 0


@lru_cache(maxsize=4096)
def canonical_address(text: str) -> str:
    """An ``ip:port`` in the one form in which replicas are compared, or an empty string.

    IPv6 addresses stand in brackets, in their shortest form, as Envoy writes them.

    Args:
        text: ``10.0.0.2:8080`` or ``[2001:db8::1]:8080``, blanks around it allowed.
    """
    host, _, port = text.strip().rpartition(":")
    number = _digits(port)
    if not 0 < number < 1 << 16 or (":" in host and not host.startswith("[")):
        return ""
    host = canonical_host(host)
    return f"{host}:{number}" if host else ""


def canonical_host(text: str) -> str:
    """An IP address as it stands in a canonical address, or an empty string.

    Args:
        text: ``10.0.0.2``, ``[2001:db8::1]`` or ``2001:db8::1``.
    """
    bracketed = text.startswith("[") and text.endswith("]")
    host = text[1:-1] if bracketed else text
    six = bracketed or ":" in host
    family = socket.AF_INET6 if six else socket.AF_INET
    try:
        # Not ``ipaddress``: it and Envoy differ on IPv4-mapped addresses.
        host = socket.inet_ntop(family, socket.inet_pton(family, host))
    except (OSError, ValueError):
        return ""
    return f"[{host}]" if six else host
