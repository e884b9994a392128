"""What strict mkdocs does not see of the site that `make docs` has built."""

import re
from html.parser import HTMLParser

from tests.documentation.commands import PAGES, REPOSITORY

SITE = REPOSITORY / "build" / "site"
ADDRESSES = {"README.md": "index.html", "CONTRIBUTING.md": "contributing.html"}
INDENTED_BLOCK = re.compile(r"^ +(```+|~~~+)[^\n]*\n.*?^ +\1$", re.MULTILINE | re.DOTALL)


class BlocksOfSteps(HTMLParser):
    """Counts the blocks of code that stand in an item of a list."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0
        self._items_open = 0

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._items_open += tag == "li"
        self.count += tag == "pre" and self._items_open > 0

    def handle_endtag(self, tag: str) -> None:
        self._items_open -= tag == "li"


def in_steps(page: str) -> int:
    address = ADDRESSES.get(page) or re.sub(r"README\.md$", "index.md", page.removeprefix("docs/"))
    html = (SITE / address).with_suffix(".html").read_text(encoding="utf-8")
    parser = BlocksOfSteps()
    parser.feed(html.partition("<article")[2].partition("</article>")[0])
    return parser.count


def test_a_block_of_a_step_stands_in_the_step() -> None:
    """As on GitHub. Otherwise the step ends before its command."""
    pages = {path.relative_to(REPOSITORY).as_posix(): path.read_text(encoding="utf-8") for path in PAGES}
    expected = {page: len(INDENTED_BLOCK.findall(text)) for page, text in pages.items()}
    assert sum(expected.values()) > 10
    assert {page: in_steps(page) for page in pages} == expected


def test_the_site_loads_nothing_from_the_network() -> None:
    pages = list(SITE.rglob("*.html"))
    assert len(pages) > 100
    loads = re.compile(
        r'<(?:script|img|iframe)[^>]* src="?(?:https?:)?//|<link[^>]* rel="?(?:stylesheet|preconnect)[^>]*//'
    )
    assert [str(page) for page in pages if loads.search(page.read_text(encoding="utf-8"))] == []
