"""A rule on names of fields, which fragments get wrong unseen: nobody loads them into Envoy."""

from collections.abc import Iterator
from difflib import get_close_matches
from typing import Any

from extproc.check.findings import Problem, Severity, rule
from extproc.check.layout import Deployment, override_host
from extproc.check.nodes import Node, camel


@rule(
    "unknown-field",
    Severity.ERROR,
    why="Envoy refuses the configuration, or what it is part of.",
    cure="Correct the name; a field of a newer Envoy than this release knows may stay.",
)
def _unknown_field(deployment: Deployment) -> Iterator[Problem]:
    # Here, since only this rule waits for their import.
    from envoy.extensions.filters.http.ext_proc.v3 import ext_proc_pb2  # noqa: PLC0415
    from envoy.extensions.load_balancing_policies.override_host.v3 import (  # noqa: PLC0415
        override_host_pb2,
    )

    yield from _strangers(deployment.filter, ext_proc_pb2.ExternalProcessor.DESCRIPTOR)
    for route in deployment.routes:
        settings = route.per_filter(deployment.entry.at("name").text)
        if settings.message == "ExtProcPerRoute":
            yield from _strangers(settings, ext_proc_pb2.ExtProcPerRoute.DESCRIPTOR)
    for cluster in deployment.replica_clusters:
        if (override := override_host(cluster)) is not None:
            yield from _strangers(override, override_host_pb2.OverrideHost.DESCRIPTOR)


def _strangers(node: Node, descriptor: Any) -> Iterator[Problem]:
    """Fields that a message does not have, in it and in the messages inside."""
    if descriptor.full_name.startswith("google.protobuf."):
        return  # written in ways of their own
    known = {name: each for each in descriptor.fields for name in (each.name, camel(each.name))}
    for name, value in node.fields.items():
        field = known.get(name)
        if name == "@type":
            continue
        if field is None:
            near = get_close_matches(name, [each.name for each in descriptor.fields], n=1)
            cure = f"Did you mean {near[0]}?" if near else ""
            yield Problem(value, f"{descriptor.name} has no field {name}", cure)
        elif field.message_type is not None and not field.message_type.GetOptions().map_entry:
            for item in value.items or [value]:
                yield from _strangers(item, field.message_type)
