"""The command ``serve``: one flag for each setting of the process."""

import inspect
import os
from typing import Any

import typer

from extproc.pool_settings import show
from extproc.settings import ENV_PREFIX, Settings, SettingsError, load, strangers

app = typer.Typer(rich_markup_mode=None)


@app.callback()
def _group() -> None:
    """Makes a group of the one command."""


def _serve(**flags: str | None) -> None:
    """Serve Envoy until SIGTERM; a second one ends at once."""
    try:
        settings = load(flags)
    except SettingsError as error:
        raise _failed(error, 2) from None

    # Here, so that neither ``--help`` nor a wrong flag waits for gRPC.
    from extproc.server.app import ServeError, serve  # noqa: PLC0415
    from extproc.server.logging import configure  # noqa: PLC0415
    from extproc.server.workers import Supervisor  # noqa: PLC0415

    for line in strangers(os.environ):
        typer.echo(f"warning: {line}", err=True)
    configure(settings.log_level, settings.log_format)
    try:
        if settings.workers > 1:
            raise typer.Exit(Supervisor(settings).run())
        serve(settings)
    except ServeError as error:
        raise _failed(error, 1) from None


def _failed(error: Exception, code: int) -> typer.Exit:
    for line in str(error).splitlines():
        typer.echo(f"error: {line}", err=True)
    return typer.Exit(code)


def _flag(name: str, field: Any) -> inspect.Parameter:
    """The flag of one field: text, as in the environment, and unset unless given."""
    text = f"{field.description} [default: {show(field.default)}; env: {ENV_PREFIX}{name.upper()}]"
    option: Any = typer.Option(
        None, f"--{name.replace('_', '-')}", help=text, metavar="VALUE", show_default=False
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=str | None, default=option)


_signature = inspect.Signature([_flag(*each) for each in Settings.model_fields.items()])
_serve.__signature__ = _signature  # type: ignore[attr-defined]  # where ``inspect`` looks
app.command(name="serve")(_serve)
