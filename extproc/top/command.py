"""The command ``top``."""

import asyncio
import sys
from typing import Annotated, Any

import aiohttp
import typer
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from extproc.server.probe import target_of
from extproc.top.screen import screen

app = typer.Typer(rich_markup_mode=None)

_TIMEOUT = aiohttp.ClientTimeout(total=5)


@app.callback()
def _group() -> None:
    """Makes a group of the one command."""


class OverviewError(Exception):
    """A router does not tell how it fares. The message says which, why, and what to do."""


@app.command(name="top")
def _top(
    admin: Annotated[
        str,
        typer.Option(
            metavar="URL", envvar="PREFIX_EXTPROC_ADMIN", help="The router's admin address."
        ),
    ] = "http://127.0.0.1:9003",
    pool: Annotated[str, typer.Option(metavar="NAME", help="Show this pool alone.")] = "",
    once: Annotated[
        bool, typer.Option("--once", help="Print it once and end, as without a terminal.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 2.0,
) -> None:
    """Show what a router does now, in the terminal: the dashboard's figures. Ctrl-C ends it."""
    console = Console()
    url = (admin if "://" in admin else f"http://{target_of(admin)}").rstrip("/")
    try:
        asyncio.run(_show(url, pool, console, 0 if once or not console.is_terminal else interval))
    except OverviewError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        sys.exit(0)


async def _show(url: str, pool: str, console: Console, interval: float) -> None:
    """Show it, and again after each interval; once where that is 0.

    Raises:
        OverviewError: The first look fails. Later ones show what was seen last.
    """
    async with aiohttp.ClientSession(timeout=_TIMEOUT) as session:
        shown = screen(await _overview(session, url), pool=pool)
        if not interval:
            console.print(shown)
            return
        with Live(shown, console=console, screen=True, auto_refresh=False) as live:
            while True:
                await asyncio.sleep(interval)
                try:
                    shown = screen(await _overview(session, url), pool=pool)
                    live.update(shown, refresh=True)
                except OverviewError as error:
                    old = Text(f"What is shown is old: {error}", "bold red")
                    live.update(Group(old, shown), refresh=True)


async def _overview(session: aiohttp.ClientSession, url: str) -> dict[str, Any]:
    try:
        async with session.get(f"{url}/overview") as reply:
            if reply.status != 200:
                raise OverviewError(
                    f"{url} answers with status {reply.status}: "
                    "name a router's admin address with --admin"
                )
            found: dict[str, Any] = await reply.json()
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as error:
        raise OverviewError(
            f"no router answers at {url} ({type(error).__name__}): "
            "name its admin address with --admin"
        ) from None
    if "pools" not in found:
        raise OverviewError(f"{url} is no router: name its admin address with --admin")
    return found
