"""What the store is asked for one request: its fingerprint, and the order of the candidates."""

from dataclasses import replace
from functools import lru_cache
from random import randbytes

from xxhash import xxh3_128_digest

from extproc.pool_settings import PoolSettings
from extproc.processing.events import DecisionDue, RequestHead
from extproc.processing.wire import content_length
from extproc.prompt import fingerprint, read_prompt
from extproc.prompt.model import Fingerprint, Prompt, Unreadable
from extproc.routing import Strategy, rendezvous

AWARE_ID_HEADERS = ("x-prefix-aware-id", "x-amzn-sagemaker-prefix-aware-id")
_MOST_BYTES = 64 * 1024 * 1024
"""A declared length is believed up to here: it is the client's word, and weighs on a replica."""


def prompt_of(due: DecisionDue, settings: PoolSettings) -> Prompt | Unreadable:
    """Read the prompt of a request."""
    head = due.head
    return read_prompt(
        head.header(":path"),
        head.header("content-type"),
        head.header("content-encoding"),
        due.body,
        complete=due.complete,
        text_limit=settings.length,
        tools_place=settings.tools,
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
    session = _value(head, settings.session_header)
    return with_session(found, session, pool) if session else found


def with_session(found: Fingerprint, session: str, pool: str) -> Fingerprint:
    """Tie a fingerprint to a session.

    The session becomes the deepest checkpoint: who served it last counts as holding all of the
    prompt, as an engine does that keeps the conversation itself. Load can still outweigh it.
    """
    key = xxh3_128_digest(repr((pool, session)).encode("utf-8", "surrogateescape"), seed=1)
    return replace(
        found,
        positions=(*found.positions, found.positions[-1] + 1 if found.positions else 1),
        hashes=(*found.hashes, key),
        tokens=(*found.tokens, found.total_tokens),
        tie=key,
        sticky=key,
    )


_ranked = lru_cache(maxsize=4096)(rendezvous)


def in_order(
    addresses: tuple[str, ...], strategy: Strategy, found: Fingerprint | None
) -> tuple[str, ...]:
    """The candidates in the order in which the strategy breaks ties.

    Every router sorts the same prompt's candidates the same way; where no prompt counts, the order
    is random, so that equally busy replicas share the load.
    """
    if strategy is Strategy.ROUND_ROBIN:
        return tuple(sorted(addresses))
    if found is not None and strategy is Strategy.KV_AWARE:
        return _ranked(found.tie, addresses)
    if found is not None and strategy is Strategy.PREFIX_AWARE:
        return _ranked(found.sticky, addresses)
    return rendezvous(randbytes(8), addresses)  # noqa: S311  # shares load, hides nothing


def _value(head: RequestHead, header: str) -> str:
    return head.header(header) if header else ""
