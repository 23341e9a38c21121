"""From files to findings, and to mended files."""

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import NamedTuple

from extproc.check import (  # noqa: F401  # their rules register themselves, in this order
    cluster_rules,
    field_rules,
    filter_rules,
    kubernetes_rules,
    listener_rules,
    mode_rules,
    pool_rules,
    route_rules,
    setting_rules,
)
from extproc.check.edits import apply
from extproc.check.findings import Finding, finding, problems
from extproc.check.layout import Layout
from extproc.check.nodes import Node, Source, embedded, read

_ROUNDS = 60
"""More edits than files have mistakes; a mending that needs more does not end."""


class Checked(NamedTuple):
    """What was found.

    Attributes:
        findings: In the order of files and lines.
        filters: How many filters of ours there are, whatever the meshes call them.
    """

    findings: list[Finding]
    filters: int


def check(texts: Mapping[str, str]) -> Checked:
    """Check files that make up one configuration.

    Args:
        texts: The files' texts by path.

    Raises:
        UnreadableError: If one is no YAML or JSON.
    """
    documents = [document for path, text in texts.items() for document in _read(path, text)]
    deployments = Layout(documents).deployments()
    resources = kubernetes_rules.manifests(documents)
    said = chain(problems(deployments), kubernetes_rules.problems(resources))
    found = list(dict.fromkeys(finding(each, problem) for each, problem in said))
    order = {path: number for number, path in enumerate(texts)}
    found.sort(key=lambda each: (order[each.file], each.line, each.column))
    filters = sum(each.filter.present for each in deployments)
    return Checked(found, filters + len(resources.filters) + len(resources.provider_filters))


def mend(texts: Mapping[str, str], *, only: Iterable[str] = ()) -> dict[str, str]:
    """The files with everything mended that can be without asking.

    Args:
        texts: The files' texts by path.
        only: Names of rules; none means all.
    """
    mended = dict(texts)
    wanted = set(only)
    for _ in range(_ROUNDS):
        edits = [
            edit
            for finding in check(mended).findings
            if not wanted or finding.rule in wanted
            for edit in finding.edits
        ]
        if not edits:
            break
        for path in {edit.path for edit in edits}:
            mended[path] = apply(mended[path], (edit for edit in edits if edit.path == path))
    return mended


def _read(path: str, text: str) -> list[Node]:
    found = read(Source(path, text))
    for document in list(found):
        if document.at("kind").text == "ConfigMap":
            for value in document.at("data").fields.values():
                source = embedded(value)
                if source is not None and "http_filters" in source.text:
                    found += read(source)
    return found
