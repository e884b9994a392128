"""Hooks of mkdocs for `make docs`: what the site has beside the pages of docs/.

README.md is its home page, and CHANGELOG.md and CONTRIBUTING.md are pages. Files of the repository that a page links
to, such as a policy, come along, so that the links work on the site as they do in the repository. A folder becomes a
list of its files.
"""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
FROM_ROOT = {"index.md": "README.md", "contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
"""Page of the site -> page of the repository's root."""
REPOSITORY_FILES = "repository"
"""Folder of the site for what lies outside of docs/."""

_LINK = re.compile(r"(\]\()([^)\s#:]+)((?:#[^)\s]*)?\))")
_FENCE = re.compile(r"```+|~~~+")
_ITEM = re.compile(r"(?:[-*+]|\d+\.) +")
_NAME_IN_TABLE = re.compile(r"<td><code>[^<]+</code>")
_CODE = re.compile(r"(^ *```.*?^ *```|`[^`\n]*`)", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Writes out the folders in the navigation, their README.md first."""
    config.nav = [_written_out(entry) for entry in config.nav or []]
    return config


def _written_out(entry: object) -> object:
    match entry:
        case dict():
            return {title: _of_title(below) for title, below in entry.items()}
        case _:
            return entry


def _of_title(below: object) -> object:
    match below:
        case str() if below.endswith("/"):
            pages = sorted((ROOT / "docs" / below).glob("*.md"), key=lambda page: (page.name != "README.md", page.name))
            return [f"{below}{page.name}" for page in pages]
        case list():
            return [_written_out(entry) for entry in below]
        case _:
            return below


def on_files(files: Files, config: MkDocsConfig) -> Files:
    for page, source in FROM_ROOT.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    linked: set[Path] = set()
    for file in files.documentation_pages():
        for _, link, _ in _LINK.findall(_CODE.sub("", file.content_string)):
            target = _target(file.src_uri, link)
            if not _page_of(target):
                linked.add(target)
    for target in sorted(linked):
        _add(files, config, target)
    return files


def _add(files: Files, config: MkDocsConfig, target: Path) -> None:
    address = _address(target)
    if target.is_dir():
        inside = sorted(path for path in target.iterdir() if path.suffix in {".yaml", ".py", ".md"})
        rows = "\n".join(f"- [{path.name}]({path.name})" for path in inside)
        files.append(File.generated(config, address, content=f"# {target.relative_to(ROOT)}\n\n{rows}\n"))
        for path in inside:
            _add(files, config, path)
    elif target.is_file() and files.get_file_from_path(address) is None:
        files.append(File.generated(config, address, abs_src_path=str(target)))


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links are written for the repository, and lead to the same things on the site."""

    def to_site(found: re.Match[str]) -> str:
        before, link, after = found.groups()
        target = _target(page.file.src_uri, link)
        if not target.exists():
            raise PluginError(f"{page.file.src_uri}: there is no {link}")
        address = _page_of(target) or _address(target)
        return before + posixpath.relpath(address, posixpath.dirname(page.file.src_uri) or ".") + after

    # Every second part is code.
    parts = enumerate(_CODE.split(markdown))
    return indented_by_four("".join(part if n % 2 else _LINK.sub(to_site, part) for n, part in parts))


def indented_by_four(markdown: str) -> str:
    """What belongs to an item of a list, indented as Python-Markdown needs it.

    On GitHub it begins in the column of the item's text: two behind `- `, three behind `1. `. Here it would stand
    behind the list.
    """
    lines = []
    columns: list[int] = []  # where the text of each open item begins
    fence = ""
    for line in markdown.splitlines():
        text = line.lstrip(" ")
        indent = len(line) - len(text)
        while text and not fence and columns and indent < columns[-1]:
            columns.pop()
        inside = indent - columns[-1] if columns else indent
        lines.append(" " * (4 * len(columns) + max(inside, 0)) + text)
        if found := _FENCE.match(text):
            fence = "" if fence == found[0] else fence or found[0]
        elif not fence and (item := _ITEM.match(text)):
            columns.append(indent + len(item[0]))
    return "\n".join(lines) + "\n"


def on_page_content(html: str, **_: object) -> str:
    """Long names of fields may be broken behind a dot; docs/site.css breaks them nowhere else."""
    return _NAME_IN_TABLE.sub(lambda found: found[0].replace(".", ".<wbr>"), html)


def _target(page: str, link: str) -> Path:
    if page in FROM_ROOT:
        folder = ROOT
    elif page.startswith(f"{REPOSITORY_FILES}/"):
        folder = (ROOT / page.removeprefix(f"{REPOSITORY_FILES}/")).parent
    else:
        folder = (ROOT / "docs" / page).parent
    return (folder / link).resolve()


def _page_of(target: Path) -> str:
    """Of the site. Empty: it is none, but a file of the repository."""
    for page, source in FROM_ROOT.items():
        if target == ROOT / source:
            return page
    docs = ROOT / "docs"
    return target.relative_to(docs).as_posix() if target.is_relative_to(docs) and target.is_file() else ""


def _address(target: Path) -> str:
    path = f"{REPOSITORY_FILES}/{target.relative_to(ROOT).as_posix()}"
    return f"{path}/index.md" if target.is_dir() else path
