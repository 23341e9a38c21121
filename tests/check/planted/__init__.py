"""Files with mistakes. A line's arrow (``# <- rule, rule``) tells the rules that it breaks."""

from collections import Counter
from pathlib import Path

FOLDER = Path(__file__).parent
ENVOY_TAKES = ["first_try.yaml", "modes.yaml", "chain.yaml", "picker.yaml"]
"""Files that Envoy accepts without a word of what check finds."""

_ARROW = "# <- "


def expected(text: str) -> Counter[tuple[int, str]]:
    """The lines and rules that a file's arrows tell, with how often."""
    return Counter(
        (number, rule)
        for number, line in enumerate(text.splitlines(), start=1)
        if _ARROW in line
        for rule in line.split(_ARROW)[1].split(", ")
    )


def all_files() -> list[str]:
    """The names of the files."""
    return sorted(path.name for path in FOLDER.glob("*.yaml"))
