"""Links lead somewhere, and what is named exists."""

import re
from urllib.parse import unquote

import pytest

from extproc.pool_settings import KEYS, PREFIX
from extproc.settings import ENV_PREFIX, Settings
from tests.docs.pages import ROOT, Page, pages

_FOREIGN = re.compile(r"[a-z][a-z0-9+.-]*:")
_FOLDERS = r"(?:extproc|envoy|compose|tests|docs)/[\w./-]*\w(?:/|(?=[^\w/*<…{]|$))"
_OTHER_KEYS = {  # headers of requests and replies, and the endpoint picker's
    "x-prefix-aware-id",
    "x-prefix-refused",
}
_OTHER_VARIABLES = {"PREFIX_EXTPROC_LISTN"}


def broken(page: Page, target: str) -> str:
    """What is wrong with a link; empty if nothing is."""
    path, _, anchor = unquote(target).partition("#")
    to = (page.path.parent / path).resolve() if path else page.path
    if not to.is_relative_to(ROOT) or not to.exists():
        return "no such file"
    if anchor and to.suffix == ".md" and anchor not in Page(to).anchors:
        return f"no such heading; there are {', '.join(sorted(Page(to).anchors))}"
    return ""


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links(page: Page) -> None:
    own = [link for link in page.links() if not _FOREIGN.match(link.text)]

    assert [f"{link}: {cure}" for link in own if (cure := broken(page, link.text))] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_paths_that_are_named_exist(page: Page) -> None:
    missing = [
        f"{span}: {path}"
        for span in page.spans()
        for path in re.findall(rf"(?<![\w./-]){_FOLDERS}", span.text)
        if not (ROOT / path).exists() and not (page.path.parent / path).exists()
    ]
    assert missing == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_settings_that_are_named_exist(page: Page) -> None:
    variables = {ENV_PREFIX + name.upper() for name in Settings.model_fields} | _OTHER_VARIABLES
    named = set(re.findall(rf"\b{PREFIX}[a-z-]+[a-z](?![\w*…-])", page.text))
    named |= set(re.findall(rf"\b{ENV_PREFIX}[A-Z_]*[A-Z](?![\w*…])", page.text))

    assert named - set(KEYS) - _OTHER_KEYS - variables == set()


def test_every_page_is_reached_from_the_readme() -> None:
    reached, new = set(), [pages()[0].path]
    while new:
        page = Page(new.pop())
        reached.add(page.path)
        targets = (unquote(link.text).partition("#")[0] for link in page.links())
        files = {(page.path.parent / path).resolve() for path in targets if path}
        new += [to for to in files - reached if to.suffix == ".md" and to.exists()]

    assert {page.path for page in pages()} - reached == set()


def test_the_readme_is_short() -> None:
    assert len(pages()[0].text.splitlines()) < 250


def test_a_broken_link_is_found() -> None:
    page = pages()[0]

    assert broken(page, "docs/check.md#rules") == ""
    assert broken(page, "#settings") == ""
    assert broken(page, "docs/nowhere.md") == "no such file"
    assert broken(page, "../elsewhere.md") == "no such file"
    assert broken(page, "docs/check.md#nowhere").startswith("no such heading")
