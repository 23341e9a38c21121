"""Discovery URLs: what ``x-prefix-discovery`` may say. Pure."""

import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import PurePosixPath
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from extproc.processing.wire import canonical_address
from extproc.replicas.target import (
    NODE,
    AdminTarget,
    Asking,
    DnsTarget,
    EdsTarget,
    Family,
    FileTarget,
    SrvTarget,
    Target,
)

_LONGEST = 2000
_UNFIT = re.compile(r"[\x00-\x20\x7f]")
_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,6})?)(ms|s|m)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_LABEL = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?")


@lru_cache(maxsize=1024)
def parse_target(url: str) -> Target:
    """What a discovery URL means.

    Raises:
        ValueError: It means nothing. The message says what to write instead.
    """
    if len(url) > _LONGEST or _UNFIT.search(url):
        raise ValueError(f"write at most {_LONGEST} characters without blanks, %20 for a blank")
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ValueError("the host or the port is malformed") from None
    reader = _READERS.get(parts.scheme)
    if reader is None or not url.startswith(f"{parts.scheme}://"):
        raise ValueError(f"write one of {', '.join(_EXAMPLES.values())}")
    if "@" in parts.netloc or parts.fragment:
        raise ValueError("leave out user, password and #")
    query = _Query(parts.query)
    target = reader(parts, query)
    query.check_used()
    return target


class _Query:
    """The parameters after the question mark, each to be asked for once."""

    def __init__(self, text: str) -> None:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text))
        except ValueError:
            raise ValueError("write parameters as ?name=value&name=value") from None
        self._values = dict(pairs)
        if len(self._values) < len(pairs):
            raise ValueError("a parameter stands there twice")
        self._known: list[str] = []

    def text(self, name: str, default: str = "") -> str:
        self._known.append(name)
        return self._values.get(name, default)

    def interval(self, default: float) -> float:
        return self.duration("interval", default, least=0.1)

    def duration(self, name: str, default: float, *, least: float) -> float:
        value = self.text(name)
        if not value:
            return default
        match = _DURATION.fullmatch(value)
        seconds = float(match[1]) * _UNITS[match[2]] if match else -1.0
        if not least <= seconds <= 3600:
            raise ValueError(f"write {name}=5s, from {round(least * 1000)}ms to 60m")
        return seconds

    def flag(self, name: str) -> bool:
        value = self.text(name, "false")
        if value not in {"true", "false"}:
            raise ValueError(f"write {name}=true or {name}=false")
        return value == "true"

    def family(self) -> Family:
        try:
            return Family(self.text("family", Family.AUTO))
        except ValueError:
            raise ValueError(f"write family= and one of {', '.join(Family)}") from None

    def server(self) -> str:
        value = self.text("server")
        address = canonical_address(value)
        if value and not address:
            raise ValueError("write server=ip:port")
        return address

    def file(self, name: str) -> str:
        value = self.text(name)
        return _absolute(value) if value else ""

    def check_used(self) -> None:
        for name in self._values:
            if name not in self._known:
                known = ", ".join(self._known)
                raise ValueError(f"unknown parameter {name!r}: known are {known}")


def _admin(parts: SplitResult, query: _Query) -> AdminTarget:
    host, port, cluster = *_endpoint(parts), _name(parts)
    return AdminTarget(host, port, cluster, query.interval(5.0))


def _dns(parts: SplitResult, query: _Query) -> DnsTarget:
    host, port = _endpoint(parts)
    _no_path(parts)
    return DnsTarget(host, port, query.family(), _asking(query))


def _srv(parts: SplitResult, query: _Query) -> SrvTarget:
    _no_path(parts)
    name = parts.hostname or ""
    if parts.port is not None or not _is_name(name):
        raise ValueError(f"write {_EXAMPLES['dns+srv']}: the records tell the ports")
    return SrvTarget(name, query.family(), _asking(query))


def _asking(query: _Query) -> Asking:
    tcp, hold_s = query.flag("tcp"), query.duration("hold", 0.0, least=0.0)
    return Asking(query.server(), tcp, hold_s, query.interval(1.0))


def _file(parts: SplitResult, query: _Query) -> FileTarget:
    cluster = query.text("cluster")
    if parts.netloc or not cluster:
        raise ValueError(f"write {_EXAMPLES['file']}, with three slashes")
    return FileTarget(_absolute(unquote(parts.path)), cluster, query.interval(1.0))


def _eds(parts: SplitResult, query: _Query) -> EdsTarget:
    host, port, resource = *_endpoint(parts), _name(parts)
    protocol = query.text("protocol", "sotw")
    if protocol not in {"sotw", "delta"}:
        raise ValueError("write protocol=sotw or protocol=delta")
    tls = parts.scheme == "eds+tls"
    ca, cert, key = (query.file(name) if tls else "" for name in ("ca", "cert", "key"))
    if bool(cert) != bool(key):
        raise ValueError("cert and key belong together: write both or none")
    node = query.text("node", NODE)
    delta, ads = protocol == "delta", query.flag("ads")
    return EdsTarget(host, port, resource, tls, ca, cert, key, delta, ads, node)


def _endpoint(parts: SplitResult) -> tuple[str, int]:
    host, port = parts.hostname or "", parts.port
    if not port or not (_is_name(host) or _is_ip(host)):
        raise ValueError(f"write host and port: {_EXAMPLES[parts.scheme]}")
    return host, port


def _name(parts: SplitResult) -> str:
    name = unquote(parts.path.removeprefix("/"))
    if not name:
        raise ValueError(f"write a name after the port: {_EXAMPLES[parts.scheme]}")
    return name


def _no_path(parts: SplitResult) -> None:
    if parts.path not in {"", "/"}:
        raise ValueError(f"nothing follows the host: {_EXAMPLES[parts.scheme]}")


def _absolute(path: str) -> str:
    if not path.startswith("/") or "\0" in path or ".." in PurePosixPath(path).parts:
        raise ValueError("a file's path begins with / and has no ..")
    return path


def _is_ip(host: str) -> bool:
    return bool(canonical_address(f"[{host}]:1" if ":" in host else f"{host}:1"))


def _is_name(host: str) -> bool:
    labels = host.removesuffix(".").split(".")
    return len(host) <= 253 and all(_LABEL.fullmatch(label) for label in labels)


_READERS: dict[str, Callable[[SplitResult, _Query], Target]] = {
    "envoy-admin": _admin,
    "dns": _dns,
    "dns+srv": _srv,
    "file": _file,
    "eds": _eds,
    "eds+tls": _eds,
}

_EXAMPLES = {
    "envoy-admin": "envoy-admin://127.0.0.1:9901/cluster",
    "dns": "dns://replicas.example:8000",
    "dns+srv": "dns+srv://_llm._tcp.example",
    "file": "file:///etc/envoy/envoy.yaml?cluster=name",
    "eds": "eds://127.0.0.1:18000/name",
    "eds+tls": "eds+tls://127.0.0.1:18000/name",
}
