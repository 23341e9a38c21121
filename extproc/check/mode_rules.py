"""Rules on what of a request and its response the router gets, and when."""

from collections.abc import Callable, Iterator

from extproc.check.edits import Edit, assign, insert
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import Deployment, Route
from extproc.check.nodes import Node, camel
from extproc.check.pool_rules import picks, pools

LONGEST_BODY = 67_108_864
_NEVER_SAFE_TO_REPEAT = ("STREAMED", "FULL_DUPLEX_STREAMED")

BUFFER_FILTER = {
    "name": "envoy.filters.http.buffer",
    "typed_config": {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
        "max_request_bytes": LONGEST_BODY,
    },
}

BUFFER_OFF = {
    "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute",
    "disabled": True,
}


def modes(deployment: Deployment) -> Iterator[tuple[Node, Node]]:
    """Each ``processing_mode`` of the filter and its routes, with the message that it is in."""
    if deployment.filter.present:
        yield deployment.filter, deployment.filter.at("processing_mode")
    name = deployment.entry.at("name").text
    for route in deployment.routes:
        overrides = route.per_filter(name).at("overrides")
        if overrides.at("processing_mode").present:
            yield overrides, overrides.at("processing_mode")


def body_mode(deployment: Deployment) -> Node:
    """The filter's request body mode."""
    return deployment.filter.at("processing_mode", "request_body_mode")


def _mode_rule(
    name: str,
    severity: Severity,
    field: str,
    wrong: tuple[str, ...],
    right: str,
    *,
    why: str,
    cure: str = "",
    unless: Callable[[Deployment], bool] = lambda _: False,
) -> None:
    """Make a rule on one field of ``processing_mode``.

    Args:
        name: The rule's.
        severity: How bad it is.
        field: The field.
        wrong: The values that break the rule; empty for a field that is missing.
        right: The value that mends it.
        why: What comes of it.
        cure: What to do; empty for writing the right value.
        unless: Whether a deployment may have such a value all the same.
    """

    @rule(name, severity, why=why, cure=cure or f"Write {field}: {right}.")
    def _(deployment: Deployment) -> Iterator[Problem]:
        for owner, mode in modes(deployment):
            value = mode.at(field)
            if value.text in wrong and not unless(deployment):
                message = f"{field} is {value.text}" if value.present else f"no {field}"
                edits = assign(owner, ("processing_mode", field), right)
                yield Problem(value, message, edits=edits)


def _is_picker(deployment: Deployment) -> bool:
    return any(map(picks, pools(deployment)))


def _does_not_wait(deployment: Deployment) -> bool:
    return deployment.filter.at("send_body_without_waiting_for_header_response").flag


_mode_rule(
    "request-headers-skipped",
    Severity.ERROR,
    "request_header_mode",
    ("SKIP",),
    "SEND",
    why="The router gets to know of a request by its headers; without them it cannot tell the API "
    "or the pool, and has no place for its answer.",
)

_mode_rule(
    "body-not-sent",
    Severity.ERROR,
    "request_body_mode",
    ("", "NONE"),
    "BUFFERED_PARTIAL",
    why="The router never sees a prompt, and routes by load alone.",
)

_mode_rule(
    "body-after-headers",
    Severity.ERROR,
    "request_body_mode",
    ("STREAMED",),
    "BUFFERED_PARTIAL",
    why="Envoy sends no body before the headers are answered, so the choice is made without it.",
    cure="Write request_body_mode: BUFFERED_PARTIAL, or add "
    "send_body_without_waiting_for_header_response: true.",
    unless=_does_not_wait,
)

_mode_rule(
    "body-limit-413",
    Severity.WARNING,
    "request_body_mode",
    ("BUFFERED",),
    "BUFFERED_PARTIAL",
    why="BUFFERED answers 413 to every body above the buffer limit (Envoy's default is 1 MiB), "
    "which on Envoy 1.36 is the connection's 1 MiB.",
)

_mode_rule(
    "full-duplex",
    Severity.WARNING,
    "request_body_mode",
    ("FULL_DUPLEX_STREAMED",),
    "BUFFERED_PARTIAL",
    why="In FULL_DUPLEX_STREAMED a dead router is a 500 whatever failure_mode_allow says, and "
    "a silent one hangs the client: there is no message timeout.",
    cure="Write request_body_mode: BUFFERED_PARTIAL, unless the Gateway API Inference Extension "
    "asks for full duplex; then say so by x-prefix-protocol: epp.",
    unless=_is_picker,
)

_mode_rule(
    "response-headers-skipped",
    Severity.ERROR,
    "response_header_mode",
    ("SKIP",),
    "SEND",
    why="The response headers tell who served and with which status: without them the router does "
    "not know which replica has the prompt.",
)

_mode_rule(
    "load-ends-early",
    Severity.ERROR,
    "response_trailer_mode",
    ("", "DEFAULT", "SKIP"),
    "SEND",
    why="It keeps the gRPC stream open to the response's end, at no cost per token. Without it a "
    "request stops counting as load at its first token, and busy replicas look idle.",
)

_mode_rule(
    "response-body-sent",
    Severity.WARNING,
    "response_body_mode",
    ("STREAMED", "BUFFERED", "BUFFERED_PARTIAL", "FULL_DUPLEX_STREAMED"),
    "NONE",
    why="The router does not read responses; every token would go through it for nothing, and a "
    "buffered mode would hold streamed answers back.",
    cure="Remove response_body_mode, or write NONE.",
    unless=_is_picker,
)


@rule(
    "retries-double-bytes",
    Severity.ERROR,
    why="Where a router dies while a body still comes in, or trailers follow it, Envoy (1.36 "
    "to 1.40) retries with the body's first part sent twice, at status 200: the replica gets a "
    "broken prompt. Envoy 1.36 does so with every body over its buffer limit.",
    cure="BUFFERED_PARTIAL with envoy.filters.http.buffer before the ext_proc filter is exact. "
    "Streaming modes need routes without a retry_policy.",
)
def _retries_double_bytes(deployment: Deployment) -> Iterator[Problem]:
    body = body_mode(deployment)
    if not (policy := _retries(deployment)):
        return
    if body.text in _NEVER_SAFE_TO_REPEAT:
        path = ("processing_mode", "request_body_mode")
        edits = assign(deployment.filter, path, "BUFFERED_PARTIAL")
        yield Problem(body, f"{body.text} with {policy}", edits=edits)
    elif body.text == "BUFFERED_PARTIAL" and deployment.buffer_filter is None:
        yield Problem(
            body,
            f"BUFFERED_PARTIAL with {policy} and no buffer filter before it",
            edits=_insert_buffer(deployment),
        )


@rule(
    "upgrades-held",
    Severity.WARNING,
    why="An upgraded connection (WebSocket) has no end of body that the buffer filter could wait "
    "for: it hangs until a timeout.",
    cure="Give upgrades a route of their own that matches the header `upgrade` and disables the "
    "buffer filter by BufferPerRoute.",
)
def _upgrades_held(deployment: Deployment) -> Iterator[Problem]:
    buffer = deployment.buffer_filter
    if buffer is None:
        return
    name = buffer.at("name").text
    for route in deployment.routes:
        places = (route.action.at("upgrade_configs"), deployment.manager.at("upgrade_configs"))
        allowed = next((place for place in places if place.items), None)
        if allowed is not None and not _lets_upgrades_pass(route, name, deployment):
            yield Problem(
                allowed,
                f"upgrades are allowed, and the buffer filter holds them on line {route.node.line}",
                edits=_insert_upgrade_route(route, name),
            )


def _lets_upgrades_pass(route: Route, buffer: str, deployment: Deployment) -> bool:
    """Whether the buffer filter is off here, or on a route of the same path for upgrades."""
    if route.per_filter(buffer).at("disabled").flag:
        return True
    match = {**route.node.at("match").data, "headers": None}
    return any(
        {**other.node.at("match").data, "headers": None} == match
        and _matches_upgrades(other)
        and other.per_filter(buffer).at("disabled").flag
        for other in deployment.routes
    )


def _matches_upgrades(route: Route) -> bool:
    headers = route.node.at("match", "headers").items
    return any(header.at("name").text.lower() == "upgrade" for header in headers)


def _insert_upgrade_route(route: Route, buffer: str) -> tuple[Edit, ...]:
    """The same route for upgrades alone, before it."""
    routes, copy = route.node.parent, route.node.data
    if routes is None:
        return ()
    headers = copy["match"].setdefault("headers", [])
    headers.append({"name": "upgrade", "present_match": True})
    copy.pop("name", None)
    name = "typed_per_filter_config"
    spelled = camel(name) if camel(name) in copy else name
    copy.setdefault(spelled, {})[buffer] = BUFFER_OFF
    return insert(routes, int(route.node.key), copy)


def _retries(deployment: Deployment) -> str:
    """What makes Envoy retry, in words; empty if nothing does."""
    for route in deployment.routes:
        policy = route.nearest("retry_policy")
        if policy.present and policy.at("num_retries").number != 0:
            return f"the retry policy of line {policy.line}"
    # Istio gives routes a retry policy that nobody wrote.
    return "Istio's own retries" if deployment.istio else ""


def _insert_buffer(deployment: Deployment) -> tuple[Edit, ...]:
    sequence, place = deployment.entry.parent, deployment.entry.key
    if sequence is None or not sequence.is_sequence or deployment.pieces:
        return ()
    return insert(sequence, int(place), BUFFER_FILTER)
