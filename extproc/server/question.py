"""What the store is asked for one request: its fingerprint, its session, and who may be chosen."""

from dataclasses import replace
from functools import lru_cache
from random import randbytes

from xxhash import xxh3_128_digest

from extproc.pool_settings import PoolSettings
from extproc.processing.events import DecisionDue, RequestHead
from extproc.processing.wire import content_length
from extproc.prompt import fingerprint, read_prompt
from extproc.prompt.model import Fingerprint, Prompt, Unreadable
from extproc.routing import Strategy, limit_of, priority_of, rendezvous

AWARE_ID_HEADERS = ("x-prefix-aware-id", "x-amzn-sagemaker-prefix-aware-id")
_MOST_BYTES = 64 * 1024 * 1024
"""A declared length is believed up to here: it is the client's word, and weighs on a replica."""


def prompt_of(due: DecisionDue, settings: PoolSettings, window: int) -> Prompt | Unreadable:
    """Read the prompt of a request, at most a window of its body."""
    head = due.head
    return read_prompt(
        head.header(":path"),
        head.header("content-type"),
        head.header("content-encoding"),
        due.body,
        complete=due.complete,
        text_limit=settings.length,
        tools_place=settings.tools,
        session_field=settings.session_field,
        unpacked_limit=window,
    )


def fingerprint_of(
    prompt: Prompt, due: DecisionDue, settings: PoolSettings, pool: str
) -> Fingerprint:
    """The checkpoints of a request's prompt in a pool."""
    head = due.head
    declared = None if due.complete else content_length(head)
    found = fingerprint(
        prompt,
        pool=pool,
        tenant=_value(head, settings.tenant_header),
        bytes_per_token=settings.bytes_per_token,
        media_tokens=settings.media_tokens,
        prefix_length=settings.length,
        aware_id=next(filter(None, map(head.header, AWARE_ID_HEADERS)), ""),
        total_bytes=None if declared is None else min(declared, _MOST_BYTES),
    )
    session = session_key(prompt, head, settings, pool)
    return with_session(found, session) if session else found


def session_key(
    prompt: Prompt | None, head: RequestHead, settings: PoolSettings, pool: str
) -> bytes:
    """The key of a request's session in a pool: of its header, else of its body's field."""
    session = _value(head, settings.session_header) or (prompt.session if prompt else "")
    if not session:
        return b""
    names = (pool, _value(head, settings.tenant_header), session)
    return xxh3_128_digest(repr(names).encode("utf-8", "surrogateescape"), seed=1)


def with_session(found: Fingerprint, session: bytes) -> Fingerprint:
    """Tie a fingerprint to a session: its first request goes where all routers would send it."""
    return replace(found, tie=session, sticky=session)


def limit_for(head: RequestHead, settings: PoolSettings) -> int:
    """Requests in flight at which a replica is full for this one; 0 for no limit."""
    priority = priority_of(_value(head, settings.priority_header))
    return limit_of(settings.max_in_flight, priority)


_ranked = lru_cache(maxsize=4096)(rendezvous)


def in_order(
    addresses: tuple[str, ...],
    strategy: Strategy,
    found: Fingerprint | None,
    session: bytes = b"",
) -> tuple[str, ...]:
    """The candidates in the order in which the strategy breaks ties.

    Every router sorts the same prompt's or session's candidates the same way; where neither counts,
    the order is random, so that equally busy replicas share the load.
    """
    if strategy is Strategy.ROUND_ROBIN:
        return tuple(sorted(addresses))
    if found is not None and strategy is Strategy.KV_AWARE:
        return _ranked(found.tie, addresses)
    if found is not None and strategy is Strategy.PREFIX_AWARE:
        return _ranked(found.sticky, addresses)
    if session and strategy is Strategy.KV_AWARE:
        return _ranked(session, addresses)
    return rendezvous(randbytes(8), addresses)  # noqa: S311  # shares load, hides nothing


def _value(head: RequestHead, header: str) -> str:
    return head.header(header) if header else ""
