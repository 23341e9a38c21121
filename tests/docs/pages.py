"""The pages of the documentation, read as Markdown: links, headings, and what they tell to run."""

import re
import shlex
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]

_TOOLS = ("prefix-extproc", "make")
_MARKDOWN = MarkdownIt("gfm-like", {"linkify": False})


class Place(NamedTuple):
    """A text, and where it is."""

    page: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Page:
    """One Markdown file.

    Attributes:
        path: Where it is.
    """

    path: Path

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    @cached_property
    def text(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def _tokens(self) -> list[Token]:
        return _MARKDOWN.parse(self.text)

    def _inlines(self) -> Iterator[tuple[int, Token]]:
        line = 1
        for token in self._tokens:
            line = token.map[0] + 1 if token.map else line  # cells of a table have none
            for child in token.children or ():
                yield line, child

    def links(self) -> Iterator[Place]:
        """Targets of links and pictures."""
        for line, token in self._inlines():
            target = token.attrGet("href" if token.type == "link_open" else "src")
            if token.type in {"link_open", "image"}:
                yield Place(self.name, line, str(target))

    @cached_property
    def anchors(self) -> frozenset[str]:
        """The names by which GitHub makes headings reachable."""
        seen: Counter[str] = Counter()
        found = set()
        for opening, heading in zip(self._tokens, self._tokens[1:], strict=False):
            if opening.type != "heading_open":
                continue
            words = "".join(child.content for child in heading.children or ())
            slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
            found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
            seen[slug] += 1
        return frozenset(found)

    def blocks(self, *languages: str) -> Iterator[Place]:
        """Blocks of code in one of some languages; an empty one is for those that name none."""
        for token in self._tokens:
            if token.type in {"fence", "code_block"} and token.info.strip() in languages:
                assert token.map is not None
                first = token.map[0] + 1 + (token.type == "fence")
                yield Place(self.name, first, token.content)

    def spans(self) -> Iterator[Place]:
        """Code within sentences and tables."""
        for line, token in self._inlines():
            if token.type == "code_inline":
                yield Place(self.name, line, token.content)

    def commands(self) -> Iterator[Place]:
        """Calls of the program and of make in blocks of code."""
        for block in self.blocks("", "sh"):
            text = re.sub(r"\\\n", lambda _: " ", block.text)
            for number, line in enumerate(text.splitlines()):
                for call in calls(line):
                    yield Place(self.name, block.line + number, call)

    def mentions(self) -> Iterator[Place]:
        """The same within sentences, where what the reader knows is left out."""
        for span in self.spans():
            for call in calls(span.text):
                yield span._replace(text=call)


def calls(line: str) -> Iterator[str]:
    """The calls of our tools in a line for the shell."""
    try:
        words = shlex.split(line.strip().removeprefix("$ "), comments=True)
    except ValueError:
        return  # prose in a block without a language
    call: list[str] = []
    for word in [*words, ";"]:
        if word in {"|", "&&", "||", ";", "&", ">", ">>", "2>", "<"}:
            while call and re.fullmatch(r"\w+=.*", call[0]):
                del call[0]
            if call and call[0].rpartition("/")[2] in _TOOLS:
                yield shlex.join([call[0].rpartition("/")[2], *call[1:]])
            call = []
        else:
            call.append(word)


@lru_cache(maxsize=1)
def pages() -> tuple[Page, ...]:
    """Every page of the repository, the README first."""
    found = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md"]
    for folder in ("docs", "envoy", "compose"):
        found += sorted((ROOT / folder).rglob("*.md"))
    return tuple(map(Page, found))
