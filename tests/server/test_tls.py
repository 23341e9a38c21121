"""TLS between Envoy and the router, with keys made at test time."""

import asyncio
import ssl
from pathlib import Path

import pytest
from structlog.testing import capture_logs
from typer.testing import CliRunner

from extproc.cli import app
from extproc.server.app import ServeError
from extproc.server.probe import Tls, ask
from extproc.settings import SettingsError, load
from tests.certificates import NAME, Authority
from tests.server.conftest import Serve, Served

SERVING = "SERVING"


def flags(authority: Authority, *, client_ca: Path | None = None) -> dict[str, str]:
    cert, key = authority.sign("router")
    found = {"tls_cert": str(cert), "tls_key": str(key)}
    return found | ({"tls_client_ca": str(client_ca)} if client_ca else {})


async def status(served: Served, tls: Tls | None) -> str:
    target = f"127.0.0.1:{served.app.port}"
    return await asyncio.to_thread(ask, target, "readiness", 60.0 if tls else 5.0, tls, NAME)


def shown(port: int, ca: Path) -> bytes:
    """The certificate of a server."""
    return ssl.get_server_certificate(("127.0.0.1", port), ca_certs=str(ca)).encode()


async def test_who_trusts_the_signer_is_served(serve: Serve, tmp_path: Path) -> None:
    ours, others = Authority(tmp_path / "ours"), Authority(tmp_path / "others")
    served = await serve(**flags(ours))

    assert await status(served, Tls(ours.ca.read_bytes())) == SERVING
    assert (await status(served, Tls(others.ca.read_bytes()))).startswith("no answer")
    assert (await status(served, None)).startswith("no answer")


async def test_who_shows_no_certificate_of_ours_is_turned_away(
    serve: Serve, tmp_path: Path
) -> None:
    ours, envoys = Authority(tmp_path / "ours"), Authority(tmp_path / "envoys")
    served = await serve(**flags(ours, client_ca=envoys.ca))
    ca = ours.ca.read_bytes()
    good, bad = envoys.sign("envoy"), ours.sign("stranger")

    assert await status(served, Tls(ca, *(each.read_bytes() for each in good))) == SERVING
    assert (await status(served, Tls(ca, *(each.read_bytes() for each in bad)))) != SERVING
    assert (await status(served, Tls(ca))) != SERVING
    cli = ["health", "--address", f"127.0.0.1:{served.app.port}", "--ca", str(ours.ca)]
    cli += ["--cert", str(good[0]), "--key", str(good[1]), "--name", NAME, "--timeout", "60"]
    assert (await asyncio.to_thread(CliRunner().invoke, app, cli)).exit_code == 0


async def test_a_renewed_certificate_is_shown_without_a_restart(
    serve: Serve, tmp_path: Path
) -> None:
    ours = Authority(tmp_path / "ours")
    served = await serve(**flags(ours))
    port, ca = served.app.port, ours.ca
    first = await asyncio.to_thread(shown, port, ca)

    cert, key = ours.sign("router")
    second = await asyncio.to_thread(shown, port, ca)
    assert first != second
    assert second.strip() in cert.read_bytes()

    with capture_logs() as lines:  # half of a renewal, or a broken one, changes nothing
        key.write_text("nonsense")
        assert await asyncio.to_thread(shown, port, ca) == second
        assert await asyncio.to_thread(shown, port, ca) == second
    assert [line["error"] for line in lines] == [f"{key}: no PEM with private key"]
    ours.sign("router")
    assert await asyncio.to_thread(shown, port, ca) not in {first, second}


async def test_files_that_cannot_be_used_are_named(serve: Serve, tmp_path: Path) -> None:
    good = flags(Authority(tmp_path))
    (tmp_path / "empty").touch()
    for wrong, reason in (
        ({"tls_cert": f"{tmp_path}/none"}, f"{tmp_path}/none: no such file or directory"),
        ({"tls_key": f"{tmp_path}/empty"}, f"{tmp_path}/empty: no PEM with private key"),
        ({"tls_client_ca": f"{tmp_path}/empty"}, f"{tmp_path}/empty: no PEM with certificate"),
    ):
        with pytest.raises(ServeError, match=f"^cannot use TLS: {reason}; see --tls-cert"):
            await serve(**(good | wrong))


def test_half_of_tls_is_an_error() -> None:
    for given in ({"tls_cert": "a"}, {"tls_key": "a"}, {"tls_client_ca": "a"}):
        with pytest.raises(SettingsError, match="--tls-cert"):
            load(given)
