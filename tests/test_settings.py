import re
from pathlib import Path

import pytest

from extproc.pool_settings import KEYS
from extproc.settings import (
    LogFormat,
    LogLevel,
    Settings,
    SettingsError,
    load,
    markdown,
    plain,
    strangers,
)

ROOT = Path(__file__).parent.parent


def test_defaults() -> None:
    settings = load({})

    assert settings.listen == "127.0.0.1:9002"
    assert settings.store == "memory://"
    assert settings.admin == "127.0.0.1:9003"
    assert settings.workers == 1
    assert settings.store_deadline_ms == 10
    assert settings.inspect_window == 512 * 1024
    assert settings.max_message_size == 64 * 1024 * 1024


def test_flags_come_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX_EXTPROC_LISTEN", "[::1]:1")
    monkeypatch.setenv("PREFIX_EXTPROC_LOG_FORMAT", "json")
    monkeypatch.setenv("PREFIX_EXTPROC_DRAIN_DEADLINE", "2m")

    settings = load({"listen": "unix:/run/router.sock", "workers": None, "inspect_window": "64KiB"})

    assert settings.listen == "unix:/run/router.sock"
    assert settings.log_format is LogFormat.JSON
    assert settings.drain_deadline == 120
    assert settings.inspect_window == 65_536


def test_the_logs_settings_may_be_in_capitals() -> None:
    settings = load({"log_level": "WARNING", "log_format": "JSON"})

    assert (settings.log_level, settings.log_format) == (LogLevel.WARNING, LogFormat.JSON)


def test_no_admin() -> None:
    assert load({"admin": ""}).admin == ""


@pytest.mark.parametrize(("workers", "admin"), [("1", "127.0.0.1:9003"), ("4", "127.0.0.1:9006")])
def test_the_admin_pages_stay_clear_of_the_workers(
    workers: str, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load({"workers": workers}).admin == admin
    assert load({"workers": workers, "admin": ""}).admin == ""

    monkeypatch.setenv("PREFIX_EXTPROC_WORKERS", workers)
    assert load({}).admin == admin
    monkeypatch.setenv("PREFIX_EXTPROC_ADMIN", "127.0.0.1:80")
    assert load({}).admin == "127.0.0.1:80"


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ({"listen": "9002"}, "--listen '9002': write host:port, or [ipv6]:port"),
        ({"listen": "::1:9002"}, "--listen '::1:9002': write host:port, or [ipv6]:port"),
        ({"listen": "unix:run"}, "--listen 'unix:run': write host:port, or unix:/absolute/path"),
        (
            {"admin": "localhost:70000"},
            "--admin 'localhost:70000': the port must be a number from 0 to 65535",
        ),
        ({"workers": "0"}, "--workers '0': Input should be greater than or equal to 1"),
        (
            {"workers": "9", "listen": "h:65530"},
            "h:65530 leaves no ports for 9 workers: choose a lower one",
        ),
        (
            {"workers": "3", "admin": "127.0.0.1:9004"},
            (
                "--listen 127.0.0.1:9002 and --admin 127.0.0.1:9004 need 3 ports each, one for "
                "each worker, and these overlap: put them 3 apart or more"
            ),
        ),
    ],
)
def test_a_wrong_flag_is_one_line(flags: dict[str, str], line: str) -> None:
    with pytest.raises(SettingsError) as error:
        load(flags)
    assert str(error.value) == line


def test_a_wrong_variable_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIX_EXTPROC_WORKERS", "many")

    with pytest.raises(SettingsError, match=r"^PREFIX_EXTPROC_WORKERS 'many': "):
        load({})


@pytest.mark.parametrize(
    "url", ["redis://:secret@", "http://u:secret@host", "redis+sentinel://u:secret@h"]
)
def test_a_wrong_store_is_named_without_its_password(url: str) -> None:
    with pytest.raises(SettingsError, match=r"^--store") as error:
        load({"store": url})
    assert "secret" not in str(error.value)


def test_two_wrong_settings_are_two_lines() -> None:
    with pytest.raises(SettingsError) as error:
        load({"listen": "x", "workers": "0"})
    assert len(str(error.value).splitlines()) == 2


def test_a_misspelt_variable_is_noticed_and_what_kubernetes_sets_is_not() -> None:
    names = ["PREFIX_EXTPROC_LISTN", "PREFIX_EXTPROC_PORT", "PREFIX_EXTPROC_SERVICE_HOST", "HOME"]

    assert list(strangers(names)) == [
        "PREFIX_EXTPROC_LISTN in the environment is no setting: did you mean PREFIX_EXTPROC_LISTEN?"
    ]


def test_the_tables_have_every_setting_once() -> None:
    names = [f"--{name.replace('_', '-')}" for name in Settings.model_fields]
    for text in (markdown(), plain()):
        lines = [line.lstrip("| `") for line in text.splitlines()]
        for name in (*names, *KEYS):
            assert len([line for line in lines if re.match(rf"{name}[`, ]", line)]) == 1


def test_every_row_has_a_default_and_a_sentence() -> None:
    for row in markdown().splitlines()[2:]:
        _, name, where, default, meaning, _ = (cell.strip() for cell in row.split("|"))
        assert name
        assert where in {"process", "pool"}
        assert default
        assert meaning


@pytest.mark.parametrize("page", ["README.md", "docs/settings.md"])
def test_the_pages_have_the_table(page: str) -> None:
    before, begin, rest = (ROOT / page).read_text().partition("<!-- settings:begin -->\n")
    table, end, _ = rest.partition("<!-- settings:end -->")

    assert before
    assert begin
    assert end
    assert table.strip() == markdown().strip()


def test_a_short_key_is_not_shown() -> None:
    with pytest.raises(SettingsError) as error:
        load({"decision_log_key": "hunter2"})
    assert str(error.value) == (
        "--decision-log-key: too short to be a secret: take 16 characters or more"
    )
    assert load({"decision_log_key": ""}).decision_log_key is None
    assert "hunter2" not in repr(load({"decision_log_key": "hunter2" * 3}))


def test_the_defaults_of_pools_are_read_at_the_start() -> None:
    text = "x-prefix-protocol=epp; x-prefix-ttl=10m"
    assert load({"pool_defaults": text}).pool_defaults == text

    with pytest.raises(SettingsError, match="x-prefix-ttl: soon: write seconds"):
        load({"pool_defaults": "x-prefix-ttl=soon"})
