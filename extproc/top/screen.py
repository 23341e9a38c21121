"""What ``/overview`` tells, as something for a terminal to show. Pure: values in, a picture out."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

Facts = Mapping[str, Any]

UNKNOWN = "-"
_PREFIXES = 5
_BARS = "▁▂▃▄▅▆▇█"
_POINTS = 40
_HEALTH = {"healthy": "green", "warming": "yellow", "needed": "yellow", "ejected": "bold red"}


def screen(overview: Facts, *, pool: str = "") -> RenderableType:
    """Everything at once: the router's state, then each pool, the busiest first.

    Args:
        overview: As the router's ``/overview`` has it.
        pool: The one to show; empty for all.
    """
    pools: Mapping[str, Facts] = overview["pools"]
    names = sorted(pools, key=lambda name: (-pools[name]["recent"]["per_s"], name))
    shown = [name for name in names if not pool or name == pool]
    parts: list[RenderableType] = [_state(overview)]
    for name in shown:
        parts += _pool(name, pools[name])
    if not shown:
        known = f"; there are {', '.join(map(clean, names))}" if names else ""
        told = f"No request came for the pool {clean(pool)} yet{known}."
        parts.append(Text(told if pool else "No request came yet."))
    return Group(*parts)


def clean(text: str) -> str:
    """A name as a terminal may have it: clients may choose some, and put control sequences in."""
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)


def line(points: Iterable[float | None], highest: float) -> str:
    """A line of bars, one for each point: 0 is the lowest, ``highest`` the highest, None a gap."""
    last = len(_BARS) - 1
    return "".join(
        " " if point is None else _BARS[min(last, int(point / highest * len(_BARS)))]
        for point in points
    )


def _state(overview: Facts) -> Text:
    store, faults = overview["store"], overview["faults"]
    kind = store["kind"]
    words = Text.assemble(
        ("prefix-extproc ", "bold"),
        clean(overview["version"]),
        "  ",
        (f"{kind} store", "green")
        if store["shared"]
        else (f"{kind} store lost: deciding alone", "bold red"),
        "  ",
        (f"breaker {store['breaker']}", "green" if store["breaker"] == "closed" else "bold red"),
        f"  {overview['open_streams']:,} open  {overview['streams']:,} since start",
    )
    if overview["draining"]:
        words.append("  draining", "bold yellow")
    for name, told in (
        ("decided alone", {"": store["fallbacks"]} if store["fallbacks"] else {}),
        ("failed calls", store["failures"]),
        ("faults of ours", faults["errors"]),
        ("bad settings", faults["setting_errors"]),
        ("violations", faults["violations"]),
    ):
        if told:
            words.append(f"\n{name}: ", "yellow")
            words.append(_listed(told))
    return words


def _pool(name: str, pool: Facts) -> Iterable[RenderableType]:
    recent = pool["recent"]
    yield Rule(Text(clean(name), "bold"), align="left", style="dim")
    yield Text(
        f"{pool['strategy']}, {pool['mode']}; replicas from {clean(pool['source']) or UNKNOWN}",
        "dim",
    )
    yield _figures(recent)
    yield _replicas(pool["replicas"])
    if recent["reasons"]:
        yield Text.assemble(("reasons  ", "dim"), _listed(recent["reasons"]))
    if pool["prefixes"]:
        yield _prefixes(pool["prefixes"])


def _figures(recent: Facts) -> Table:
    series = recent["series"][-_POINTS:]
    highest = max((each["per_s"] for each in series), default=0.0) or 1.0
    grid = Table.grid(padding=(0, 2))
    grid.add_row(
        Text(f"last {recent['seconds'] / 60:.0f} min", "dim"),
        Text(line((each["per_s"] for each in series), highest), "cyan"),
        f"{recent['per_s']:.1f}/s, {recent['decisions']:,} requests",
    )
    grid.add_row(
        Text("hit rate", "dim"),
        Text(line((each["hit_rate"] for each in series), 1.0), "cyan"),
        f"{_percent(recent['hit_rate'])}, {_percent(recent['best_rate'])} had load not counted",
    )
    grid.add_row(Text("response starts", "dim"), "", _time(recent["start"]))
    grid.add_row(Text("whole response", "dim"), "", _time(recent["whole"]))
    return grid


def _replicas(replicas: Sequence[Facts] | None) -> RenderableType:
    if not replicas:
        unknown = replicas is None
        return Text("The store does not answer." if unknown else "No replica is known.", "yellow")
    columns = [
        (title, [told(each) for each in replicas])
        for title, told in _COLUMNS.items()
        if any(told(each) for each in replicas)
    ]
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("replica", no_wrap=True)
    for title, _ in columns:
        table.add_column(title, justify="right")
    table.add_column("health")
    for at, each in enumerate(replicas):
        cells = (values[at] or UNKNOWN for _, values in columns)
        table.add_row(clean(each["address"]), *cells, _health(each))
    return table


def _passed_over(replica: Facts) -> str:
    return f"{replica['passed_over']:,}" if replica["passed_over"] else ""


def _in_use(replica: Facts) -> str:
    engine = replica.get("engine") or {}
    return _percent(engine["kv_permille"] / 1000) if engine.get("queried_tokens") else ""


_COLUMNS: Mapping[str, Callable[[Facts], str]] = {
    "in flight": lambda each: f"{each['in_flight']:,}",
    "pending tokens": lambda each: f"{each['pending_tokens']:,}",
    "share": lambda each: _percent(each["share"]),
    "not followed": _passed_over,
    "KV in use": _in_use,
}
"""Of the table of replicas; one in which nobody has anything to tell is left out."""


def _health(replica: Facts) -> Text:
    words = [replica["health"]]
    if replica.get("weight", 1) < 1:
        words.append(_percent(replica["weight"]))
    if "fault" in replica:
        words.append(f"{replica['fault']} x {replica['strikes']}")
    return Text(", ".join(words), _HEALTH.get(replica["health"], ""))


def _prefixes(prefixes: Sequence[Facts]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("hottest prefixes", no_wrap=True)
    table.add_column("tokens", justify="right")
    table.add_column("found", justify="right")
    table.add_column("at")
    for each in prefixes[:_PREFIXES]:
        where = " ".join(map(clean, each["replicas"]))
        table.add_row(each["hash"][:12], f"{each['tokens']:,}", f"{each['requests']:,}", where)
    return table


def _listed(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    return ", ".join(f"{clean(name)} {count:,}".strip() for name, count in ordered)


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share:.1%}"


def _time(times: Facts) -> str:
    half, most = (
        UNKNOWN if value is None else f"{value:,} ms"
        for value in (times["p50_ms"], times["p90_ms"])
    )
    return f"P50 {half}, P90 {most}"
