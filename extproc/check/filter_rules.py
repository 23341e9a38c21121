"""Rules on the router's filter: what it sends, how long it waits, what it takes back."""

import re
from collections.abc import Iterator

from extproc.check.edits import Edit, assign, insert
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import DESTINATION, METADATA_NAMESPACE, PREFIX, Deployment
from extproc.check.nodes import Node
from extproc.check.pool_rules import header_names

MESSAGE_TIMEOUT = "1s"
_SHORTEST_S, _LONGEST_S = 0.2, 5.0

REQUEST_ATTRIBUTES = ["xds.cluster_name", "xds.route_name"]
OTHER_RESPONSE_ATTRIBUTES = [
    "upstream.request_attempt_count",
    "response.code_details",
    "response.flags",
]
_NEEDED_HEADERS = ("content-type", "content-length", "content-encoding", ":path", ":method")


@rule(
    "no-grpc-service",
    Severity.ERROR,
    why="The router speaks Envoy's gRPC protocol; over http_service it gets nothing, and so do "
    "requests.",
    cure="Name the router's cluster in grpc_service.envoy_grpc.cluster_name.",
)
def _no_grpc_service(deployment: Deployment) -> Iterator[Problem]:
    processor = deployment.filter
    if processor.present and not processor.at("grpc_service").present:
        yield Problem(processor, "the filter has no grpc_service")


@rule(
    "fails-closed",
    Severity.ERROR,
    why="A router that is dead, slow or restarted must cost the choice, never the request: "
    "without it clients get a 500.",
    cure="Write failure_mode_allow: true.",
)
def _fails_closed(deployment: Deployment) -> Iterator[Problem]:
    allow = deployment.filter.at("failure_mode_allow")
    if deployment.filter.present and not allow.flag:
        edits = assign(deployment.filter, ("failure_mode_allow",), value=True)
        yield Problem(allow, "failure_mode_allow is not true", edits=edits)


@rule(
    "observability-mode",
    Severity.ERROR,
    why="Envoy then sends copies and does not listen to the answers: no choice is ever followed.",
    cure="Remove observability_mode. To watch without a say, set x-prefix-mode: shadow.",
)
def _observability_mode(deployment: Deployment) -> Iterator[Problem]:
    mode = deployment.filter.at("observability_mode")
    if mode.flag:
        edits = assign(deployment.filter, ("observability_mode",), value=False)
        yield Problem(mode, "observability_mode is true", edits=edits)


@rule(
    "message-timeout",
    Severity.WARNING,
    why="It is how long a request waits for a router that hangs. Envoy's 200 ms is less than a "
    "busy machine may take; more than some seconds makes clients wait for nothing.",
    cure="Write message_timeout: 1s.",
)
def _message_timeout(deployment: Deployment) -> Iterator[Problem]:
    if not deployment.filter.present:
        return
    timeout = deployment.filter.at("message_timeout")
    edits = assign(deployment.filter, ("message_timeout",), MESSAGE_TIMEOUT)
    if not timeout.present:
        yield Problem(timeout, "message_timeout is missing: Envoy waits 200 ms", edits=edits)
    elif timeout.seconds is not None and not _SHORTEST_S <= timeout.seconds <= _LONGEST_S:
        yield Problem(timeout, f"message_timeout is {timeout.text}", edits=edits)


@rule(
    "mode-override",
    Severity.WARNING,
    why="The router lets go of bodies without a prompt (uploads, upgrades) by overriding the body "
    "mode. Where it may not, WebSockets wait for an end that never comes, and large uploads fail.",
    cure="Write allow_mode_override: true.",
)
def _mode_override(deployment: Deployment) -> Iterator[Problem]:
    allow = deployment.filter.at("allow_mode_override")
    if deployment.filter.present and not allow.flag:
        edits = assign(deployment.filter, ("allow_mode_override",), value=True)
        yield Problem(allow, "allow_mode_override is not true", edits=edits)


@rule(
    "upstream-address-missing",
    Severity.ERROR,
    why="Without it the router never learns who served: pools that it learns by watching stay "
    "empty, and after a retry it believes the prompt to be where it is not.",
    cure="Add upstream.address to response_attributes.",
)
def _upstream_address_missing(deployment: Deployment) -> Iterator[Problem]:
    attributes = deployment.filter.at("response_attributes")
    if deployment.filter.present and "upstream.address" not in attributes.texts():
        edits = _add(deployment.filter, "response_attributes", ["upstream.address"])
        yield Problem(attributes, "response_attributes lack upstream.address", edits=edits)


@rule(
    "attributes-missing",
    Severity.WARNING,
    why="They tell the pool's name, the attempt that served, and why a replica did not: "
    "without them pools share one name and a refused request counts as served.",
    cure="Add the missing attributes.",
)
def _attributes_missing(deployment: Deployment) -> Iterator[Problem]:
    if not deployment.filter.present:
        return
    for name, wanted in (
        ("request_attributes", REQUEST_ATTRIBUTES),
        ("response_attributes", OTHER_RESPONSE_ATTRIBUTES),
    ):
        attributes = deployment.filter.at(name)
        present = [*attributes.texts(), *(["xds.cluster_name"] if _names_pool(deployment) else [])]
        if missing := [each for each in wanted if each not in present]:
            yield Problem(
                attributes,
                f"{name} lack {', '.join(missing)}",
                edits=_add(deployment.filter, name, missing),
            )


@rule(
    "metadata-dropped",
    Severity.WARNING,
    why="Envoy drops the router's dynamic metadata silently unless its namespaces may be received: "
    "clusters that read the choice from metadata, and access logs, see nothing.",
    cure="Add envoy.lb and prefix_extproc to metadata_options.receiving_namespaces.untyped.",
)
def _metadata_dropped(deployment: Deployment) -> Iterator[Problem]:
    processor = deployment.filter
    if not processor.present:
        return
    names = processor.at("metadata_options", "receiving_namespaces", "untyped")
    wanted = [METADATA_NAMESPACE, "prefix_extproc"]
    if missing := [name for name in wanted if name not in names.texts()]:
        edits = assign(
            processor,
            ("metadata_options", "receiving_namespaces", "untyped"),
            [*names.texts(), *missing],
        )
        yield Problem(names, f"receiving_namespaces lack {', '.join(missing)}", edits=edits)


@rule(
    "mutation-forbidden",
    Severity.ERROR,
    why="Envoy throws away what mutation_rules forbid, and the router's choice is a header: "
    "every request goes where it went before.",
    cure="Let x-gateway-destination-endpoint pass: in allow_expression, and not in "
    "disallow_expression.",
)
def _mutation_forbidden(deployment: Deployment) -> Iterator[Problem]:
    rules = deployment.filter.at("mutation_rules")
    if _matches(rules.at("disallow_expression", "regex")):
        yield Problem(rules.at("disallow_expression"), f"disallow_expression forbids {DESTINATION}")
    elif rules.at("disallow_all").flag and not _matches(rules.at("allow_expression", "regex")):
        expression = {"regex": re.escape(DESTINATION).replace("\\-", "-")}
        unset = not rules.at("allow_expression").present
        edits = assign(rules, ("allow_expression",), expression) if unset else ()
        yield Problem(rules.at("disallow_all"), f"disallow_all forbids {DESTINATION}", edits=edits)


@rule(
    "headers-withheld",
    Severity.ERROR,
    why="The router tells an API by path and content type, and a body's end by its length. Without "
    "them it routes by load alone; without those that the pool's settings name, there are no "
    "tenants, sessions or priorities.",
    cure="Let content-type, content-length, content-encoding, :path and :method, and the headers "
    "that the pool's settings name, be forwarded.",
)
def _headers_withheld(deployment: Deployment) -> Iterator[Problem]:
    forward = deployment.filter.at("forward_rules")
    allowed, denied = forward.at("allowed_headers"), forward.at("disallowed_headers")
    needed = [*_NEEDED_HEADERS, *header_names(deployment)]
    missing = [name for name in needed if not _listed(allowed, name)]
    if allowed.present and missing:
        yield Problem(allowed, f"allowed_headers lack {', '.join(missing)}")
    if held := [name for name in needed if _listed(denied, name)]:
        yield Problem(denied, f"disallowed_headers hold back {', '.join(held)}")


def _names_pool(deployment: Deployment) -> bool:
    metadata = deployment.filter.at("grpc_service", "initial_metadata").items
    return any(item.at("key").text == f"{PREFIX}pool" for item in metadata)


def _matches(regex: Node) -> bool:
    try:
        return regex.present and re.fullmatch(regex.text, DESTINATION) is not None
    except re.error:  # RE2 knows what Python does not; Envoy is the judge
        return False


def _listed(matchers: Node, name: str) -> bool:
    return any(_hits(pattern, name) for pattern in matchers.at("patterns").items)


def _hits(pattern: Node, name: str) -> bool:
    exact, prefix = pattern.at("exact"), pattern.at("prefix")
    if exact.present:
        return exact.text == name
    if prefix.present:
        return name.startswith(prefix.text)
    return bool(pattern.at("safe_regex").present)  # who writes one means to be understood


def _add(processor: Node, name: str, values: list[str]) -> tuple[Edit, ...]:
    present = processor.at(name)
    if not present.items:
        return assign(processor, (name,), values)
    return tuple(e for value in values for e in insert(present, len(present.items), value))
