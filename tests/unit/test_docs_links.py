"""Each link in the documentation leads to an existing file, and to an existing heading in it."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")})

_FENCE = re.compile(r"^ *(```|~~~).*?^ *\1", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
_NOT_IN_ANCHORS = re.compile(r"[^\w\- ]")


@cache
def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The anchors that GitHub makes of the page's headings."""
    found: list[str] = []
    for heading in _HEADING.findall(prose(page)):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = _NOT_IN_ANCHORS.sub("", text.strip().lower()).replace(" ", "-")
        again = sum(each == anchor or re.fullmatch(rf"{re.escape(anchor)}-\d+", each) is not None for each in found)
        found.append(f"{anchor}-{again}" if again else anchor)
    return frozenset(found)


def broken(page: Path, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists():
        return True
    return bool(anchor) and target.suffix == ".md" and anchor not in anchors(target)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    assert [link for link in _LINK.findall(_CODE.sub("", prose(page))) if broken(page, link)] == []


def test_a_link_to_a_page_or_a_heading_that_does_not_exist_is_broken() -> None:
    page = ROOT / "docs" / "operate.md"
    assert broken(page, "nowhere.md")
    assert broken(page, "concepts.md#nothing-like-it")
    assert broken(page, "#nothing-like-it")
    assert not broken(page, "concepts.md#phases")
    assert not broken(page, "https://example.com/nowhere.md")
