"""Rules on a pool's settings beside each other, and beside what surrounds the filter."""

import re
from collections.abc import Iterator

from extproc.check.edits import assign
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import METADATA_NAMESPACE, PREFIX, Deployment
from extproc.check.nodes import Node
from extproc.pool_settings import KEYS

SUBSET_NAMESPACE = "envoy.lb.subset_hint"

_TOOLS_AFTER_SYSTEM = re.compile(
    r"llama-?[34]|qwen-?2[.-]?5|qwen-?3(?![.-]?[5-9])|deepseek|gemma|minimax|nemotron|seed-oss|gpt-oss",
    re.IGNORECASE,
)
"""Names of models whose chat templates have tools behind the system message: docs/engines.md."""

Pool = dict[str, Node]
"""The settings of one pool: key, without its prefix, to value."""


def pools(deployment: Deployment) -> list[Pool]:
    """The filter's settings, and those of each route that has others."""
    own = _settings(deployment.filter.at("grpc_service", "initial_metadata"))
    found = [own] if deployment.filter.present else []
    name = deployment.entry.at("name").text
    for route in deployment.routes:
        others: Pool = {}
        for level in reversed((route.node, *route.levels)):
            overrides = level.at("typed_per_filter_config", name, "overrides")
            others |= _settings(overrides.at("grpc_initial_metadata"))
        if others:
            found.append(own | others)
    return found


def header_names(deployment: Deployment) -> list[str]:
    """The request headers that settings name, in lower case."""
    named = (
        pool[key].text.strip().lower()
        for pool in pools(deployment)
        for key in pool
        if key.endswith("-header") and f"{PREFIX}{key}" in KEYS
    )
    return list(dict.fromkeys(filter(None, named)))


def picks(pool: Pool) -> bool:
    """Whether the router is a gateway's endpoint picker for a pool."""
    return "protocol" in pool and pool["protocol"].text.strip() == "epp"


@rule(
    "picker-without-members",
    Severity.WARNING,
    why="An endpoint picker refuses a request with 503 as long as it knows nobody of the pool; it "
    "cannot learn who serves from requests that it refuses.",
    cure="Set x-prefix-discovery or x-prefix-replicas, unless the gateway sends with each request "
    "a subset hint of addresses with ports.",
)
def _picker_without_members(deployment: Deployment) -> Iterator[Problem]:
    for pool in pools(deployment):
        if picks(pool) and not {"replicas", "discovery"} & pool.keys():
            yield Problem(pool["protocol"], "nobody tells who is in the pool")


@rule(
    "picker-in-shadow",
    Severity.WARNING,
    why="In shadow mode every choice is Envoy's: there is no pick, and nothing is refused.",
    cure="Write x-prefix-mode: enforce, or leave x-prefix-protocol: epp until then.",
)
def _picker_in_shadow(deployment: Deployment) -> Iterator[Problem]:
    for pool in pools(deployment):
        if picks(pool) and "mode" in pool and pool["mode"].text.strip() == "shadow":
            yield Problem(pool["mode"], "x-prefix-mode is shadow under x-prefix-protocol: epp")


@rule(
    "refusal-forbidden",
    Severity.ERROR,
    why="Where the router refuses a request, Envoy takes the answer for a fault of the router "
    "instead, and the request goes unrouted or becomes a 500.",
    cure="Remove disable_immediate_response.",
)
def _refusal_forbidden(deployment: Deployment) -> Iterator[Problem]:
    forbidden = deployment.filter.at("disable_immediate_response")
    if forbidden.flag and any(map(picks, pools(deployment))):
        edits = assign(deployment.filter, ("disable_immediate_response",), value=False)
        yield Problem(forbidden, "disable_immediate_response is true", edits=edits)


@rule(
    "hint-withheld",
    Severity.WARNING,
    why="Envoy forwards no metadata that it is not told to: the gateway's subset hint does not "
    "reach the router, which may pick a replica that the gateway forbids.",
    cure=f"Add {METADATA_NAMESPACE} and {SUBSET_NAMESPACE} to "
    "metadata_options.forwarding_namespaces.untyped.",
)
def _hint_withheld(deployment: Deployment) -> Iterator[Problem]:
    if not any(map(picks, pools(deployment))):
        return
    path = ("metadata_options", "forwarding_namespaces", "untyped")
    names = deployment.filter.at(*path)
    wanted = (METADATA_NAMESPACE, SUBSET_NAMESPACE)
    if missing := [name for name in wanted if name not in names.texts()]:
        edits = assign(deployment.filter, path, [*names.texts(), *missing])
        yield Problem(names, f"forwarding_namespaces lack {', '.join(missing)}", edits=edits)


@rule(
    "priority-without-limit",
    Severity.WARNING,
    why="Priorities decide who is shed first; without a limit nobody is shed.",
    cure="Set x-prefix-max-in-flight, or remove x-prefix-priority-header.",
)
def _priority_without_limit(deployment: Deployment) -> Iterator[Problem]:
    for pool in pools(deployment):
        limit = pool["max-in-flight"].number if "max-in-flight" in pool else 0
        if "priority-header" in pool and limit == 0:
            yield Problem(pool["priority-header"], "there is no x-prefix-max-in-flight")


@rule(
    "tools-place",
    Severity.WARNING,
    why="By its name, the pool has a model whose chat template puts tools behind the system "
    "message. The router takes them to be in front, and finds less in caches than there is.",
    cure="Set x-prefix-tools: after_system, or first if the model's chat_template has them there "
    "(docs/engines.md).",
)
def _tools_place(deployment: Deployment) -> Iterator[Problem]:
    for pool in pools(deployment):
        names = [pool["pool"]] if "pool" in pool else []
        names += [cluster.at("name") for cluster in deployment.replica_clusters]
        model = next((name for name in names if _TOOLS_AFTER_SYSTEM.search(name.text)), None)
        if model is not None and "tools" not in pool:
            yield Problem(model, f"{model.text}, and x-prefix-tools is not set")


def _settings(metadata: Node) -> Pool:
    named = {item.at("key").text: item.at("value") for item in metadata.items}
    return {
        key.removeprefix(PREFIX): value for key, value in named.items() if key.startswith(PREFIX)
    }
