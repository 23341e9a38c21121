"""The same rules on Envoy Gateway's and kgateway's resources, which Envoy's YAML is made from.

What these make of their resources: Envoy Gateway 1.9 and kgateway's API of 2026.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from extproc.check.edits import assign
from extproc.check.findings import RULES, Problem, Rule, Severity
from extproc.check.layout import DESTINATION
from extproc.check.nodes import Node

Found = Iterator[tuple[str, Problem]]

_GATEWAY = "gateway.envoyproxy.io"
_BODY_MODES = {
    "Streamed": "body-after-headers",
    "Buffered": "body-limit-413",
    "FullDuplexStreamed": "full-duplex",
}
_MODES = {
    "STREAMED": "body-after-headers",
    "BUFFERED": "body-limit-413",
    "FULL_DUPLEX_STREAMED": "full-duplex",
}
_LEAST_REQUESTS, _LIMIT = 10_000, 100_000

RULES["choice-not-followed"] = Rule(
    "choice-not-followed",
    Severity.ERROR,
    why="kgateway's clusters have no policy that follows the router's choice, and its filter "
    "tells no attributes: the router would work for nothing.",
    cure="Put an Envoy of its own between kgateway and the model servers (envoy/kgateway), or "
    "use an InferencePool.",
)


class Manifests(NamedTuple):
    """The resources of some documents that matter here, by kind."""

    extensions: list[Node]
    backends: list[Node]
    clients: list[Node]
    patches: list[Node]
    kgateway: list[Node]

    @property
    def filters(self) -> list[Node]:
        """Each ``extProc`` that calls the router; where none has our name, all."""
        entries = [item for each in self.extensions for item in each.at("spec", "extProc").items]
        ours = [entry for entry in entries if "prefix-extproc" in _names(entry)]
        return ours or entries

    @property
    def provider_filters(self) -> list[Node]:
        """Each ``extProc`` of kgateway's that calls the router, likewise."""
        entries = [each.at("spec", "extProc") for each in self.kgateway]
        entries = [entry for entry in entries if entry.present]
        path = ("grpcService", "backendRef", "name")
        return [entry for entry in entries if "prefix-extproc" in entry.at(*path).text] or entries


def manifests(documents: Iterable[Node]) -> Manifests:
    """Sort out resources, also those in a ``List``."""
    found = Manifests([], [], [], [], [])
    kinds = {
        "EnvoyExtensionPolicy": found.extensions,
        "BackendTrafficPolicy": found.backends,
        "ClientTrafficPolicy": found.clients,
        "EnvoyPatchPolicy": found.patches,
        "GatewayExtension": found.kgateway,
    }
    for document in documents:
        for node in (document, *document.at("items").items):
            if node.at("kind").text in kinds:
                kinds[node.at("kind").text].append(node)
    return found


def problems(found: Manifests) -> Iterator[tuple[Rule, Problem]]:
    """What is wrong with them, and the rule that says so."""
    for entry in found.filters:
        for check in (_filter, _modes, _attributes, _surroundings):
            yield from ((RULES[name], problem) for name, problem in check(entry, found))
    if found.filters:
        for policy in found.backends:
            yield from ((RULES[name], problem) for name, problem in _backend(policy))
    for entry in found.provider_filters:
        yield from ((RULES[name], problem) for name, problem in _provider(entry))


def _names(entry: Node) -> str:
    return " ".join(each.at("name").text for each in entry.at("backendRefs").items)


def _filter(entry: Node, _: Manifests) -> Found:
    if not entry.at("failOpen").flag:
        edits = assign(entry, ("failOpen",), value=True)
        yield (
            "fails-closed",
            Problem(entry.at("failOpen"), "failOpen is not true", "Write failOpen: true.", edits),
        )
    timeout = entry.at("messageTimeout")
    if not timeout.present or not 0.2 <= (timeout.seconds or 0) <= 5:
        message = f"messageTimeout is {timeout.text}" if timeout.present else "no messageTimeout"
        edits = assign(entry, ("messageTimeout",), "1s")
        yield "message-timeout", Problem(timeout, message, "Write messageTimeout: 1s.", edits)
    if entry.at("shadowMode").flag:
        edits = assign(entry, ("shadowMode",), value=False)
        cure = "Remove shadowMode. To watch without a say, set x-prefix-mode: shadow."
        yield "observability-mode", Problem(entry.at("shadowMode"), "shadowMode", cure, edits)
    names = entry.at("metadata", "writableNamespaces")
    if missing := [each for each in ("envoy.lb", "prefix_extproc") if each not in names.texts()]:
        edits = assign(entry, ("metadata", "writableNamespaces"), [*names.texts(), *missing])
        message = f"writableNamespaces lack {', '.join(missing)}"
        cure = "Add envoy.lb and prefix_extproc to metadata.writableNamespaces."
        yield "metadata-dropped", Problem(names, message, cure, edits)


def _modes(entry: Node, _: Manifests) -> Found:
    mode = entry.at("processingMode")
    body = mode.at("request", "body")
    cure = "Write processingMode.request.body: BufferedPartial."
    edits = assign(entry, ("processingMode", "request", "body"), "BufferedPartial")
    if not body.present:
        yield "body-not-sent", Problem(body, "no processingMode.request.body", cure, edits)
    elif body.text in _BODY_MODES:
        yield _BODY_MODES[body.text], Problem(body, f"body is {body.text}", cure, edits)
    if mode.at("response").raw is None:
        yield (
            "response-headers-skipped",
            Problem(
                mode.at("response"), "no processingMode.response", "Add processingMode.response."
            ),
        )
    if (sent := mode.at("response", "body")).present:
        cure = "Remove processingMode.response.body."
        yield "response-body-sent", Problem(sent, f"response.body is {sent.text}", cure)
    if not mode.at("allowModeOverride").flag:
        edits = assign(entry, ("processingMode", "allowModeOverride"), value=True)
        cure = "Write processingMode.allowModeOverride: true."
        place = mode.at("allowModeOverride")
        yield "mode-override", Problem(place, "allowModeOverride is not true", cure, edits)


def _attributes(entry: Node, _: Manifests) -> Found:
    path = ("processingMode", "response", "attributes")
    answered = entry.at(*path)
    wanted = ["upstream.request_attempt_count", "response.code_details", "response.flags"]
    every = ["upstream.address", *wanted]
    present = answered.texts()
    edits = assign(entry, path, [*present, *(each for each in every if each not in present)])
    if "upstream.address" not in present:
        message = "response.attributes lack upstream.address"
        cure = "Add upstream.address to processingMode.response.attributes."
        yield "upstream-address-missing", Problem(answered, message, cure, edits)
    if missing := [each for each in wanted if each not in present]:
        message = f"response.attributes lack {', '.join(missing)}"
        yield "attributes-missing", Problem(answered, message, edits=edits)


def _surroundings(entry: Node, found: Manifests) -> Found:
    """What one policy cannot say, and another must."""
    patched = [node.text for patch in found.patches for node in patch.walk()]
    if "response_trailer_mode" not in " ".join(patched):
        cure = "An EnvoyExtensionPolicy cannot say it: take envoy/envoy-gateway's EnvoyPatchPolicy."
        place = entry.at("processingMode", "response")
        yield "load-ends-early", Problem(place, "no response trailers", cure)
    removed = [
        name.lower()
        for client in found.clients
        for name in client.at("spec", "headers", "earlyRequestHeaders", "remove").texts()
    ]
    if DESTINATION not in removed:
        cure = (
            f"Add a ClientTrafficPolicy with headers.earlyRequestHeaders.remove: [{DESTINATION}]."
        )
        yield "client-chooses-replica", Problem(entry, f"clients can send {DESTINATION}", cure)
    if not any(
        each.at("spec", "loadBalancer", "endpointOverride").present for each in found.backends
    ):
        cure = "Add a BackendTrafficPolicy with loadBalancer.endpointOverride."
        yield (
            "no-override-host",
            Problem(entry, "no BackendTrafficPolicy has endpointOverride", cure),
        )


def _backend(policy: Node) -> Found:
    spec = policy.at("spec")
    sources = spec.at("loadBalancer", "endpointOverride", "extractFrom")
    headers = [item.at("header").text.lower() for item in sources.items]
    if sources.present and DESTINATION not in headers:
        edits = assign(
            spec,
            ("loadBalancer", "endpointOverride", "extractFrom"),
            [{"header": DESTINATION}, *(item.data for item in sources.items)],
        )
        message = f"the choice is looked for in {', '.join(headers)}"
        cure = f"Name the header {DESTINATION} in extractFrom."
        yield "override-header", Problem(sources, message, cure, edits)
    if spec.at("retry").present and not spec.at("requestBuffer").present:
        edits = assign(spec, ("requestBuffer", "limit"), "64Mi")
        cure = "Write requestBuffer: {limit: 64Mi}, which puts the buffer filter before ext_proc."
        yield (
            "retries-double-bytes",
            Problem(spec.at("retry"), "retry without requestBuffer", cure, edits),
        )
    timeout = spec.at("timeout", "http", "requestTimeout")
    if sources.present and (not timeout.present or 0 < (timeout.seconds or 0) < 300):
        edits = assign(spec, ("timeout", "http", "requestTimeout"), "0s")
        message = f"requestTimeout is {timeout.text or 'that of Envoy, 15 s'}"
        cure = "Write timeout.http.requestTimeout: 0s."
        yield "route-timeout", Problem(timeout, message, cure, edits)
    breaker = spec.at("circuitBreaker")
    names = ("maxConnections", "maxPendingRequests", "maxParallelRequests")
    low = [name for name in names if (breaker.at(name).number or 0) < _LEAST_REQUESTS]
    if sources.present and low:
        edits = tuple(
            edit for name in low for edit in assign(spec, ("circuitBreaker", name), _LIMIT)
        )
        cure = f"Set {', '.join(low)} of circuitBreaker to {_LIMIT}."
        yield "replica-breaker", Problem(breaker, f"{', '.join(low)} below {_LIMIT}", cure, edits)


def _provider(entry: Node) -> Found:
    yield "choice-not-followed", Problem(entry, "an ext_proc filter of kgateway calls the router")
    fails = entry.at("failOpen")
    if fails.present and not fails.flag:
        edits = assign(entry, ("failOpen",), value=True)
        yield "fails-closed", Problem(fails, "failOpen is false", "Write failOpen: true.", edits)
    mode = entry.at("processingMode", "requestBodyMode")
    cure = "Write processingMode.requestBodyMode: BUFFERED_PARTIAL."
    edits = assign(entry, ("processingMode", "requestBodyMode"), "BUFFERED_PARTIAL")
    if mode.text in ("", "NONE"):
        yield "body-not-sent", Problem(mode, "no requestBodyMode", cure, edits)
    elif mode.text in _MODES:
        yield _MODES[mode.text], Problem(mode, f"requestBodyMode is {mode.text}", cure, edits)
    trailers = entry.at("processingMode", "responseTrailerMode")
    if trailers.text != "SEND":
        edits = assign(entry, ("processingMode", "responseTrailerMode"), "SEND")
        cure = "Write processingMode.responseTrailerMode: SEND."
        yield "load-ends-early", Problem(trailers, "responseTrailerMode is not SEND", cure, edits)
