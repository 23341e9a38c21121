"""Rules on the pool's settings: gRPC initial metadata of the filter and its routes."""

import re
from collections.abc import Iterator

from extproc.check.edits import Edit, assign
from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import PREFIX, Deployment
from extproc.check.nodes import Node
from extproc.pool_settings import KEYS, parse

_COMMAND = re.compile(r"(?<!%)(?:%%)*%[A-Z_]+(?:\([^)]*\))?(?::\d+)?%")


def settings(deployment: Deployment) -> Iterator[Node]:
    """Each item of initial metadata with one of our keys."""
    found = [deployment.filter.at("grpc_service", "initial_metadata")]
    name = deployment.entry.at("name").text
    for route in deployment.routes:
        for level in (route.node, *route.levels):
            overrides = level.at("typed_per_filter_config", name, "overrides")
            found.append(overrides.at("grpc_initial_metadata"))
            found.append(overrides.at("grpc_service", "initial_metadata"))
    for metadata in found:
        for item in metadata.items:
            if item.at("key").text.startswith(PREFIX):
                yield item


@rule(
    "client-controlled-setting",
    Severity.ERROR,
    why="Envoy fills in the value from each request, so that clients decide how they are routed.",
    cure="Write a fixed value; a percent sign that is meant as such is written twice.",
)
def _client_controlled_setting(deployment: Deployment) -> Iterator[Problem]:
    for item in settings(deployment):
        value = item.at("value")
        if match := _COMMAND.search(value.text):
            yield Problem(value, f"{item.at('key').text} takes {match[0]} from the request")


@rule(
    "bad-setting",
    Severity.ERROR,
    why="The router refuses the value with one line in its log, and the default holds.",
    cure="See `prefix-extproc settings` for every key, its values and its default.",
)
def _bad_setting(deployment: Deployment) -> Iterator[Problem]:
    for item in settings(deployment):
        key, value = item.at("key"), item.at("value")
        if _COMMAND.search(value.text):
            continue
        for error in parse([(key.text, value.text.replace("%%", "%"))]).errors:
            known = error.key in KEYS
            edits = () if known else _renamed(item, error.cure)
            yield Problem(
                value if known else key,
                f"{error.key}: {error.value}" if known else f"unknown key {error.key}",
                error.cure,
                edits,
            )


@rule(
    "setting-twice",
    Severity.WARNING,
    why="Of a repeated key only one value counts.",
    cure="Remove all but one.",
)
def _setting_twice(deployment: Deployment) -> Iterator[Problem]:
    seen: dict[tuple[int, str], Node] = {}
    for item in settings(deployment):
        place = (id(item.parent.raw) if item.parent else 0, item.at("key").text)
        first = seen.setdefault(place, item)
        if first.raw is not item.raw:
            yield Problem(item.at("key"), f"{place[1]} is set in line {first.line} already")


def _renamed(item: Node, cure: str) -> tuple[Edit, ...]:
    match = re.search(r"did you mean ([a-z-]+)\?", cure)
    return assign(item, ("key",), match[1]) if match else ()
