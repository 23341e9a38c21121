"""``POST /explain``: what the router would do with a request, and why. Changes nothing."""

import json
from collections.abc import Mapping
from typing import Any

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from extproc.affinity.store import StoreError
from extproc.pool_settings import Parsed
from extproc.processing import BodyMode, DecisionDue, RequestHead
from extproc.prompt.model import Prompt
from extproc.routing import Strategy
from extproc.server.exchange import Exchange, Weighing
from extproc.server.explanation import cost_of, ordered
from extproc.server.router import Router

LARGEST = 4 * 1024 * 1024
"""Bytes of a question, beyond which the answer is 413."""


class Question(BaseModel):
    """A request that was never sent.

    Attributes:
        pool: The name of a pool that this router has served.
        route: A route of it, whose settings hold; empty for those of the last request.
        path: The request's path.
        headers: Its headers; ``content-type`` is JSON unless they say otherwise.
        body: Its body.
    """

    model_config = ConfigDict(extra="forbid")

    pool: str
    route: str = ""
    path: str = Field(default="/v1/chat/completions", pattern="^/")
    headers: Mapping[str, str] = Field(default_factory=dict)
    body: str


class PasteBox:
    """Answers questions from what the router knows.

    Neither the question nor the answer is logged or kept.

    Args:
        router: Whose decisions to explain.
    """

    def __init__(self, router: Router) -> None:
        self._router = router

    async def answer(self, request: web.Request) -> web.Response:
        """A question as JSON, and its answer."""
        if request.content_type != "application/json":
            # A page from elsewhere could send any other type without asking first.
            return _refusal(415, "write content-type: application/json")
        try:
            question = Question.model_validate_json(await request.read())
        except ValidationError as error:
            return _refusal(400, "; ".join(map(_cure, error.errors(include_input=False))))
        stats = self._router.stats.pools.get(question.pool)
        if stats is None:
            return _refusal(404, "no request of this pool has come yet: send one through Envoy")
        settings = stats.routes.get(question.route, stats.settings)
        exchange = Exchange(self._router, Parsed(settings))
        body = question.body.encode()
        due = DecisionDue(_head(question), body[: exchange.window], len(body) <= exchange.window)
        try:
            weighing = await exchange.weigh(due)
        except StoreError:
            return _refusal(503, "the store does not answer")
        return web.json_response(
            {"strategy": settings.strategy.value, "mode": settings.mode.value, **_told(weighing)}
            | {"candidates": _candidates(weighing, settings.strategy)}
        )


def _head(question: Question) -> RequestHead:
    headers = {
        ":method": ["POST"],
        ":path": [question.path],
        "content-type": ["application/json"],
        **{name.lower(): [value] for name, value in question.headers.items()},
    }
    attributes = {"xds.cluster_name": question.pool, "xds.route_name": question.route}
    return RequestHead(headers, attributes, {}, BodyMode.BUFFERED_PARTIAL, end_of_stream=False)


def _told(weighing: Weighing) -> dict[str, Any]:
    prompt, found, decision = weighing
    read = prompt if isinstance(prompt, Prompt) else None
    problem = prompt.problem if isinstance(prompt, Prompt) else prompt
    return {
        "reason": decision.reason.value,
        "ranked": list(decision.ranked),
        "matched_tokens": decision.matched_tokens,
        "total_tokens": decision.total_tokens,
        "shared": decision.shared,
        "problem": problem.value if problem else None,
        "api": read.api.value if read else None,
        "model": read.model if read else None,
        "prompt_bytes": len(read.content) if read else 0,
        "checkpoints": [
            {"position": position, "tokens": tokens, "hash": digest.hex()}
            for position, tokens, digest in zip(
                found.positions, found.tokens, found.hashes, strict=True
            )
        ]
        if found
        else [],
    }


def _candidates(weighing: Weighing, strategy: Strategy) -> list[dict[str, Any]]:
    return [
        {**each._asdict(), "cost": cost_of(each.cost, strategy)}
        for each in ordered(weighing.decision)
    ]


def _cure(error: Any) -> str:
    return f"{'.'.join(map(str, error['loc'])) or 'question'}: {error['msg']}"


def _refusal(status: int, cure: str) -> web.Response:
    return web.Response(
        status=status, text=json.dumps({"error": cure}), content_type="application/json"
    )
