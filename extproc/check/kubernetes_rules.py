"""Rules on the meshes' own resources, which say less than Envoy's YAML does."""

from collections.abc import Iterable

from extproc.check.layout import Deployment
from extproc.check.nodes import Node


def policies(documents: Iterable[Node]) -> list[Deployment]:
    """TODO."""
    return []
