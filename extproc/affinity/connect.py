"""From a store's URL to a client of the right topology."""

import re
from collections.abc import Sequence
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from redis.asyncio import BlockingConnectionPool, Redis, RedisCluster
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff

_MEMORY = re.compile(r"memory://(separate(\?routers=(?P<routers>[1-9][0-9]{0,3}))?)?")
SEVERAL = 2
"""Routers that share nothing, where nobody says how many there are."""

SCHEMES = tuple(
    f"{scheme}{topology}"
    for scheme in ("redis", "rediss")
    for topology in ("", "+sentinel", "+cluster")
)
_TLS_OPTIONS = frozenset(
    {"ssl_ca_certs", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"}
)
_SENTINEL_OPTIONS = frozenset({"sentinel_username", "sentinel_password"})
_SOCKET_TIMEOUT_S = 2.0
_CONNECTIONS = 16
"""A pool's limit: more would only queue in the server, which runs one script at a time."""


_QUERY = re.compile(r"\?(?=\w+=)")
"""Where options begin; any other question mark is a mistake, perhaps in a password."""


class StoreUrlError(ValueError):
    """A store URL that cannot be understood. The message shows no credentials."""


class _ThroughSentinels(Redis):
    """A client of the master that closes its connections to the sentinels with its own."""

    sentinels: Sequence[Redis] = ()

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        for each in self.sentinels:
            await each.aclose()


def memory_routers(url: str) -> int | None:
    """How many routers there are, by the URL of a store of this process; None for other URLs.

    Args:
        url: ``memory://`` for the only router, ``memory://separate?routers=3`` for one of several
            that share nothing.
    """
    found = _MEMORY.fullmatch(url)
    if found is None:
        return None
    return int(found["routers"] or SEVERAL) if found[1] else 1


def redact(url: str) -> str:
    """The URL without user, password and query, fit for logs.

    Drops all before the last ``@``, also where a ``/``, ``?`` or ``#`` that is not written in
    percent makes the URL so wrong that no parser sees a password in it.
    """
    base = _QUERY.split(url, maxsplit=1)[0]
    scheme, found, rest = base.partition("://") if "://" in base else ("", "", base)
    host = re.split(r"[?#]", rest.rpartition("@")[2], maxsplit=1)[0]
    return f"{scheme}{found}{'' if host.startswith(':') else host}"


def connect(url: str, *, connect_timeout_s: float = 1.0) -> Any:
    """Make a ``redis.asyncio`` client; nothing is sent yet.

    Args:
        url: ``redis://[user:password@]host[:6379][/db]``, ``rediss://`` for TLS,
            ``redis+sentinel://[user:password@]host[:26379],host.../service[/db]``,
            ``redis+cluster://[user:password@]host[:6379],host...``, and ``rediss+`` of both.
            TLS files and modes come in the query: ``?ssl_ca_certs=/etc/ca.pem``.
        connect_timeout_s: Seconds for a new connection.

    Raises:
        StoreUrlError: The URL is none of these.
    """
    try:
        parts = urlsplit(url)
    except ValueError:  # its text may hold the password
        raise StoreUrlError(f"store {redact(url)!r}: this is no URL") from None
    if parts.netloc and "@" in _QUERY.split(url, maxsplit=1)[0].partition(parts.netloc)[2]:
        raise StoreUrlError(
            f"store {redact(url)!r}: in user and password write / as %2F, ? as %3F and # as %23"
        )
    if parts.scheme == "memory":
        raise StoreUrlError(
            f"store {redact(url)!r}: write memory://, or memory://separate?routers=3 for one of "
            "three routers that share nothing"
        )
    if parts.scheme not in SCHEMES:
        raise StoreUrlError(
            f"store {redact(url)!r}: unknown scheme; "
            "use memory:// or one of "
            f"{', '.join(f'{scheme}://' for scheme in SCHEMES)}"
        )
    # The client's own retries are off: a call that timed out may still have run.
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "socket_connect_timeout": connect_timeout_s,
        # Callers have deadlines of their own; this one ends a call that lost its cancellation.
        "socket_timeout": _SOCKET_TIMEOUT_S,
        "socket_keepalive": True,
        "username": unquote(parts.username) if parts.username else None,
        "password": unquote(parts.password) if parts.password else None,
    }
    tls = parts.scheme.startswith("rediss")
    query = _query(url, parts, tls=tls)
    if tls:
        options |= {key: value for key, value in query.items() if key in _TLS_OPTIONS}
    path = [unquote(each) for each in parts.path.split("/") if each]
    topology = parts.scheme.partition("+")[2]
    if topology == "cluster":
        return _cluster(url, parts, options, tls=tls)
    if topology == "sentinel":
        sentinel = {
            key.removeprefix("sentinel_"): value
            for key, value in query.items()
            if key in _SENTINEL_OPTIONS
        }
        return _sentinel(url, parts, path, options, sentinel, tls=tls)
    return _standalone(url, parts, path, options, connect_timeout_s)


def _standalone(
    url: str, parts: SplitResult, path: list[str], options: dict[str, Any], timeout_s: float
) -> Any:
    if len(path) > 1:
        raise StoreUrlError(f"store {redact(url)!r}: expected at most a database behind the host")
    hosts = _hosts(url, parts, 6379)
    if len(hosts) != 1:
        raise StoreUrlError(
            f"store {redact(url)!r}: several hosts need {parts.scheme}+cluster:// or "
            f"{parts.scheme}+sentinel://"
        )
    pool = BlockingConnectionPool.from_url(
        f"{parts.scheme}://{_join(hosts[0])}/{_database(url, path[:1])}",
        max_connections=_CONNECTIONS,
        timeout=timeout_s,
        **options,
    )
    return Redis.from_pool(pool)  # which closes the pool with the client


def _cluster(url: str, parts: SplitResult, options: dict[str, Any], *, tls: bool) -> Any:
    if parts.path.strip("/"):
        raise StoreUrlError(f"store {redact(url)!r}: a cluster has no databases; remove the path")
    nodes = [ClusterNode(host, port) for host, port in _hosts(url, parts, 6379)]
    return RedisCluster(startup_nodes=nodes, ssl=tls, max_connections=_CONNECTIONS, **options)


def _sentinel(
    url: str,
    parts: SplitResult,
    path: list[str],
    options: dict[str, Any],
    sentinel: dict[str, Any],
    *,
    tls: bool,
) -> Any:
    if not 1 <= len(path) <= 2:
        raise StoreUrlError(
            f"store {redact(url)!r}: name the service that the sentinels watch: "
            f"{parts.scheme}://host:26379/SERVICE"
        )
    shared = {key: value for key, value in options.items() if key not in {"username", "password"}}
    finder: Any = Sentinel(  # type: ignore[no-untyped-call] # redis-py leaves it untyped
        _hosts(url, parts, 26379),
        sentinel_kwargs={**shared, **sentinel, "ssl": tls},
        ssl=tls,
        **options,
    )
    client: _ThroughSentinels = finder.master_for(
        path[0], redis_class=_ThroughSentinels, db=_database(url, path[1:])
    )
    client.sentinels = finder.sentinels
    return client


def _query(url: str, parts: SplitResult, *, tls: bool) -> dict[str, Any]:
    allowed = (_TLS_OPTIONS if tls else frozenset()) | (
        _SENTINEL_OPTIONS if parts.scheme.endswith("+sentinel") else frozenset()
    )
    query: dict[str, Any] = dict(parse_qsl(parts.query))
    for key in query:
        if key not in allowed:
            raise StoreUrlError(
                f"store {redact(url)!r}: unknown option {key!r}; "
                f"known here: {', '.join(sorted(allowed)) or 'none'}"
            )
    if "ssl_check_hostname" in query:
        query["ssl_check_hostname"] = query["ssl_check_hostname"].lower() in {"1", "true", "yes"}
    return query


def _hosts(url: str, parts: SplitResult, default_port: int) -> list[tuple[str, int]]:
    hosts = []
    for each in parts.netloc.rpartition("@")[2].split(","):
        try:
            one = urlsplit(f"//{each.strip()}")
            host, port = one.hostname, one.port
        except ValueError:
            host, port = None, None
        if not host:
            raise StoreUrlError(f"store {redact(url)!r}: write host or host:port")
        hosts.append((host, port or default_port))
    return hosts


def _join(host: tuple[str, int]) -> str:
    name, port = host
    return f"[{name}]:{port}" if ":" in name else f"{name}:{port}"


def _database(url: str, path: list[str]) -> int:
    try:
        return int(path[0]) if path else 0
    except ValueError:
        raise StoreUrlError(
            f"store {redact(url)!r}: the database {path[0]!r} is no number"
        ) from None
