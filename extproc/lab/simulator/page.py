"""One HTML page that tells what a simulation found, and needs nothing beside itself."""

from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from extproc import __version__
from extproc.lab.replica.latency import PROFILES
from extproc.lab.simulator.charts import Chart
from extproc.lab.simulator.findings import Findings
from extproc.lab.simulator.headline import duration, headline
from extproc.lab.simulator.references import PEERS
from extproc.lab.simulator.workloads import WORKLOADS

_TEMPLATES = Environment(
    loader=PackageLoader("extproc.lab.simulator", ""),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)


def write_page(path: Path, findings: Findings, drawn: Sequence[Chart], made: date) -> None:
    """Write the page; folders are made as needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(findings, drawn, made), encoding="utf-8")


def page(findings: Findings, drawn: Sequence[Chart], made: date) -> str:
    """The page.

    Args:
        findings: What it tells.
        drawn: Its charts.
        made: The day that stands on it.
    """
    rows = [outcome.row for outcome in findings.ranked]
    return _TEMPLATES.get_template("page.html.jinja").render(
        findings=findings,
        headline=headline(rows),
        rows=rows,
        some_failed=any(row.failed for row in rows),
        of=lambda name: PEERS.get(name, "sees all" if name == "oracle" else ""),
        charts=[(chart, Markup(chart.svg())) for chart in drawn],  # noqa: S704  # made by us alone
        setup=list(_setup(findings)),
        duration=duration,
        made=made.isoformat(),
        version=__version__,
    )


def _setup(findings: Findings) -> Iterator[tuple[str, str]]:
    setup, seeds = findings.setup, findings.seeds
    profile = PROFILES[setup.profile]
    recorded = setup.source not in WORKLOADS
    kind = "recorded traffic" if recorded else "built-in workload"
    yield "Traffic", f"{findings.workload} ({kind})"
    if setup.pool:
        yield "Pool", setup.pool
    yield "Requests", f"{findings.requests:,} with each seed"
    if recorded:
        yield "Answers", f"{setup.output_tokens} tokens where the record does not tell"
    if setup.rate_scale != 1:
        yield "Speed", f"sent {setup.rate_scale:g} times as fast as recorded or usual"
    yield "Replicas", f"{setup.replicas}, each {setup.profile}"
    yield "KV cache", f"{setup.cache_tokens or profile.kv_tokens:,} tokens in each replica"
    yield "Routers", findings.routers
    for key, value in setup.settings.items():
        yield f"Setting {key}", value
    yield "Seeds", ", ".join(map(str, seeds)) + ("; figures are their means" if seeds[1:] else "")
