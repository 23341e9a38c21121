"""What the headers alone tell."""

import pytest

from extproc.prompt import read_prompt, unreadable
from extproc.prompt.model import Unreadable

CHAT = "/v1/chat/completions"


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS", "CONNECT", "TRACE", "DELETE", ""])
def test_methods_without_a_prompt(method: str) -> None:
    assert unreadable(method, CHAT, "application/json", "", "") is Unreadable.NO_BODY


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/vnd.api+json",
        "text/json",
        "application/json, application/json",
        "",
    ],
)
def test_json_is_readable(content_type: str) -> None:
    assert unreadable("POST", CHAT, content_type, "", "") is None


@pytest.mark.parametrize(
    "content_type",
    [
        "multipart/form-data; boundary=x",
        "application/grpc",
        "application/grpc+json",
        "application/grpc-web+json",
        "text/plain",
        "application/octet-stream",
        "application/x-www-form-urlencoded",
        "application/x-ndjson",
        ";",
        "\udcff",
    ],
)
def test_other_content_types_are_not(content_type: str) -> None:
    expected = None if content_type == ";" else Unreadable.CONTENT_TYPE
    assert unreadable("POST", CHAT, content_type, "", "") is expected
    if expected:
        assert read_prompt(CHAT, content_type, "", b"{}", complete=True) is expected


def test_an_unknown_path_needs_a_content_type() -> None:
    assert unreadable("POST", "/upload", "", "", "") is Unreadable.CONTENT_TYPE
    assert unreadable("POST", "/upload", "application/json", "", "") is None


def test_ollama_reads_json_under_the_content_type_of_curl() -> None:
    form = "application/x-www-form-urlencoded"
    assert unreadable("POST", "/api/generate", form, "", "") is None
    assert unreadable("POST", "/api/chat?x=1", form, "", "") is None


@pytest.mark.parametrize("encoding", ["compress", "gzip, gzip", "aes128gcm", "dcb"])
def test_codings_that_nobody_unpacks(encoding: str) -> None:
    assert unreadable("POST", CHAT, "application/json", encoding, "") is Unreadable.COMPRESSED
    found = read_prompt(CHAT, "application/json", encoding, b"\x1f\x8b", complete=True)
    assert found is Unreadable.COMPRESSED


@pytest.mark.parametrize("encoding", ["gzip", "X-GZIP", " br ", "zstd", "identity, deflate"])
def test_codings_that_are_read(encoding: str) -> None:
    assert unreadable("POST", CHAT, "application/json", encoding, "") is None


def test_identity_is_no_compression() -> None:
    assert unreadable("POST", CHAT, "application/json", "Identity", "") is None


def test_upgrades_have_no_prompt() -> None:
    assert unreadable("POST", CHAT, "application/json", "", "websocket") is Unreadable.NO_BODY
    assert unreadable("POST", CHAT, "application/json", "", "h2c") is None
