"""What is found: rules, and the places that break them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from extproc.check.edits import Edit
from extproc.check.layout import Deployment
from extproc.check.nodes import Node


class Severity(StrEnum):
    """How bad it is."""

    ERROR = "error"
    """Requests fail, are routed blindly, or a client gets a say."""
    WARNING = "warning"
    """It works, until load, failure or size shows otherwise."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that can be wrong.

    Attributes:
        name: Unique, for people and for ``--json``.
        severity: How bad it is.
        why: What comes of it, in one or two sentences.
        cure: What to do.
    """

    name: str
    severity: Severity
    why: str
    cure: str


@dataclass(frozen=True, slots=True)
class Problem:
    """A place that breaks a rule.

    Attributes:
        node: Where.
        message: What stands (or is missing) there.
        cure: In place of the rule's.
        edits: What mends it; empty where a person must decide.
    """

    node: Node
    message: str
    cure: str = ""
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem as it is shown. Lines and columns count from 1."""

    rule: str
    severity: Severity
    file: str
    line: int
    column: int
    message: str
    why: str
    cure: str
    edits: tuple[Edit, ...] = field(default=(), compare=False)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        fields = asdict(self)
        del fields["edits"]
        return fields | {"fixable": bool(self.edits)}


Check = Callable[[Deployment], Iterator[Problem]]

RULES: dict[str, Rule] = {}
"""All rules by name, in the order of their modules."""

_CHECKS: list[tuple[Rule, Check]] = []


def rule(name: str, severity: Severity, *, why: str, cure: str) -> Callable[[Check], Check]:
    """Make a rule of a function that finds where a deployment breaks it."""

    def register(check: Check) -> Check:
        RULES[name] = Rule(name, severity, why, cure)
        _CHECKS.append((RULES[name], check))
        return check

    return register


def problems(deployments: Iterable[Deployment]) -> Iterator[tuple[Rule, Problem]]:
    """What all rules say."""
    for deployment in deployments:
        for each, check in _CHECKS:
            for problem in check(deployment):
                yield each, problem


def finding(each: Rule, problem: Problem) -> Finding:
    """A problem as it is shown."""
    return Finding(
        each.name,
        each.severity,
        problem.node.source.path,
        problem.node.line,
        problem.node.column,
        problem.message,
        each.why,
        problem.cure or each.cure,
        problem.edits,
    )
