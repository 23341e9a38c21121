from pathlib import Path

import pytest

from extproc.lab.overhead.peers import KNOWN, Known, find, folder_of

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path / "path"))
    monkeypatch.setattr("sys.executable", str(tmp_path / "python" / "bin" / "python"))


def program(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_a_peer_is_found_where_make_installs_it_beside_python_or_on_path(
    known: Known, tmp_path: Path
) -> None:
    assert find(known) is None
    for folder in (tmp_path / "path", tmp_path / "python" / "bin", folder_of(known) / "bin"):
        expected = program(folder, known.name).absolute()
        found = find(known)
        assert found is not None
        assert found.program == expected


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: known.name)
def test_make_installs_the_version_that_is_compared_with(known: Known) -> None:
    assert f" {folder_of(known)}/.{known.version} " in (ROOT / "Makefile").read_text()


def test_a_peer_runs_before_the_replicas_by_prefix() -> None:
    program(folder_of(KNOWN[0]) / "bin", KNOWN[0].name)
    peer = find(KNOWN[0])
    assert peer is not None
    argv = peer.command("127.0.0.1", 1, 2, ["http://127.0.0.1:3", "http://127.0.0.1:4"])
    assert argv[1:7] == ["launch", "--host", "127.0.0.1", "--port", "1", "--policy"]
    workers = argv.index("--worker-urls")
    assert argv[workers + 1 : workers + 3] == ["http://127.0.0.1:3", "http://127.0.0.1:4"]
    assert "cache_aware" in argv
