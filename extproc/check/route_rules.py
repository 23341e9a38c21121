"""Rules on routes: timeouts and retries."""

from collections.abc import Iterator

from extproc.check.edits import assign
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import Deployment, Route
from extproc.check.mode_rules import LONGEST_BODY
from extproc.check.nodes import Node

RETRY_ON = "connect-failure,refused-stream,reset"
RETRIES = 2
_BROAD = {"reset", "5xx", "gateway-error"}
_LIST_LENGTH = 3
_SHORTEST_TIMEOUT_S, _SHORTEST_TRY_S = 300.0, 60.0
_LIMITS = ("request_body_buffer_limit", "per_request_buffer_limit_bytes")


def _policies(deployment: Deployment) -> Iterator[tuple[Route, Node]]:
    for route in deployment.routes:
        policy = route.nearest("retry_policy")
        if policy.present:
            yield route, policy


@rule(
    "route-timeout",
    Severity.ERROR,
    why="Envoy ends a request after the route's timeout, 15 s unless it says otherwise, also "
    "in the middle of an answer: long answers become 504s or are cut.",
    cure="Write timeout: 0s in the route.",
)
def _route_timeout(deployment: Deployment) -> Iterator[Problem]:
    for route in deployment.routes:
        timeout = route.action.at("timeout")
        edits = assign(route.action, ("timeout",), "0s")
        if not timeout.present:
            if not deployment.istio:  # there, routes have none by default
                yield Problem(timeout, "the route has Envoy's timeout of 15 s", edits=edits)
        elif timeout.seconds and timeout.seconds < _SHORTEST_TIMEOUT_S:
            yield Problem(timeout, f"the route's timeout is {timeout.text}", edits=edits)


@rule(
    "no-retries",
    Severity.WARNING,
    why="A first choice that refuses or resets is a 503 for the client, instead of a request "
    "to the next replica of the router's list.",
    cure='Write retry_policy: {retry_on: "connect-failure,refused-stream,reset", num_retries: 2}.',
)
def _no_retries(deployment: Deployment) -> Iterator[Problem]:
    if deployment.pieces:
        return
    for route in deployment.routes:
        policy = route.nearest("retry_policy")
        if not policy.present:
            value = {"retry_on": RETRY_ON, "num_retries": RETRIES}
            edits = assign(route.action, ("retry_policy",), value)
            yield Problem(policy, "the route has no retry_policy", edits=edits)
        elif policy.at("num_retries").number == 0:
            edits = assign(policy, ("num_retries",), RETRIES)
            yield Problem(policy.at("num_retries"), "num_retries is 0", edits=edits)


@rule(
    "retry-conditions",
    Severity.WARNING,
    why="A replica that dies after it took the request resets the stream; without `reset` that "
    "is a 503, though the next replica of the list could serve.",
    cure='Write retry_on: "connect-failure,refused-stream,reset".',
)
def _retry_conditions(deployment: Deployment) -> Iterator[Problem]:
    for _, policy in _policies(deployment):
        conditions = {word.strip() for word in policy.at("retry_on").text.split(",")}
        if not conditions & _BROAD:
            words = [word for word in policy.at("retry_on").text.split(",") if word.strip()]
            missing = [word for word in RETRY_ON.split(",") if word not in words]
            edits = assign(policy, ("retry_on",), ",".join([*words, *missing]))
            yield Problem(policy.at("retry_on"), "retry_on lacks reset", edits=edits)


@rule(
    "retries-beyond-list",
    Severity.WARNING,
    why="The router names three replicas. Retries beyond them are the fallback policy's, which may "
    "choose one that has failed already.",
    cure="Write num_retries: 2, or add the retry_host_predicate "
    "envoy.retry_host_predicates.previous_hosts.",
)
def _retries_beyond_list(deployment: Deployment) -> Iterator[Problem]:
    for _, policy in _policies(deployment):
        retries = policy.at("num_retries")
        names = [item.at("name").text for item in policy.at("retry_host_predicate").items]
        excluded = any("previous_hosts" in name for name in names)
        if retries.number is not None and retries.number >= _LIST_LENGTH and not excluded:
            edits = assign(policy, ("num_retries",), RETRIES)
            yield Problem(
                retries, f"{retries.text} retries and no previous_hosts predicate", edits=edits
            )


@rule(
    "retry-of-slow-answers",
    Severity.WARNING,
    why="A try that takes longer, as prefilling a long prompt does, is given up and begun anew "
    "elsewhere: load grows exactly when there is too much of it.",
    cure="Remove per_try_timeout, per_try_idle_timeout and hedging.",
)
def _retry_of_slow_answers(deployment: Deployment) -> Iterator[Problem]:
    for route, policy in _policies(deployment):
        for name in ("per_try_timeout", "per_try_idle_timeout"):
            limit = policy.at(name)
            if limit.seconds and limit.seconds < _SHORTEST_TRY_S:
                edits = assign(policy, (name,), "0s")
                yield Problem(limit, f"{name} is {limit.text}", edits=edits)
        hedge = route.nearest("hedge_policy").at("hedge_on_per_try_timeout")
        if hedge.flag:
            yield Problem(hedge, "hedge_on_per_try_timeout is true")


@rule(
    "retry-buffer-small",
    Severity.WARNING,
    why="Envoy can repeat only a body that it has kept: retries of bodies over about 1 MiB "
    "fail with 503 or 507.",
    cure="Write per_request_buffer_limit_bytes: 67108864 in the route "
    "(request_body_buffer_limit from Envoy 1.36 on).",
)
def _retry_buffer_small(deployment: Deployment) -> Iterator[Problem]:
    if deployment.pieces:
        return
    for route, policy in _policies(deployment):
        limits = [level.at(name) for level in (route.node, *route.levels) for name in _LIMITS]
        largest = max((limit.number or 0 for limit in limits), default=0)
        own = deployment.listener.at("per_connection_buffer_limit_bytes").number or 0
        if deployment.buffer_filter is not None:  # keeps as much for retries too
            kept = deployment.buffer_filter.at("typed_config", "max_request_bytes")
            own = max(own, kept.number or 0)
        if max(largest, own) <= 1_048_576 and policy.at("num_retries").number != 0:
            present = next((limit for limit in limits if limit.present), None)
            name = str(present.key) if present else _LIMITS[1]
            owner = present.parent if present and present.parent else route.node
            edits = assign(owner, (name,), LONGEST_BODY)
            message = "retries, and bodies over 1 MiB are not kept"
            yield Problem(present or route.node.at(name), message, edits=edits)
