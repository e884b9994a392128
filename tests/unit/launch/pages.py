"""The pages of docs/lint, and how their examples become manifests: they are merged into the manifests of `bases`."""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from recovery.cli.lint_checks import lint_all
from recovery.launch.documents import documents
from recovery.launch.findings import Code, LintFinding
from tests.unit import fast_yaml

PAGES = Path(__file__).parents[3] / "docs/lint"
BASES = Path(__file__).parent / "bases"
NONE = "none"
"""A value of `base`: the example is the whole text."""

_MERGE_KEYS = ("name", "key", "manager")


class Example(msgspec.Struct, frozen=True):
    """A fenced block of a page."""

    base: str
    text: str

    def manifest(self) -> str:
        """The input of `recovery lint`."""
        return self.text if self.base == NONE else _merged_into_base(self.base, self.text)

    def findings(self) -> tuple[LintFinding, ...]:
        return lint_all(documents(self.manifest()))


@cache
def _merged_into_base(base: str, text: str) -> str:
    objects = [each for each in fast_yaml.load_all((BASES / f"{base}.yaml").read_text()) if each]
    for fragment in fast_yaml.load_all(text):
        at = [number for number, each in enumerate(objects) if each["kind"] == fragment["kind"]]
        assert len(at) == 1, f"the base {base} has no {fragment['kind']}"
        objects[at[0]] = merged(objects[at[0]], fragment)
    return fast_yaml.dump_all(objects, sort_keys=False)


def examples(code: Code) -> dict[str, Example]:
    """The examples `Bad` and `Good` of a page."""
    text = (PAGES / f"{code.name}.md").read_text()
    found: dict[str, Example] = {}
    for title, block in re.findall(r"^#* *(Bad|Good).*?\n+```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        first, _, rest = block.partition("\n")
        matched = re.fullmatch(r"# base: (\w+)", first)
        assert matched, f"the block {title} of {code.name} begins with `# base: …`, not with {first!r}"
        found[title] = Example(matched[1], rest)
    return found


def table(codes: Sequence[Code]) -> str:
    """The table of docs/lint/README.md."""
    rows = [f"| [{code.name}]({code.name}.md) | {code.severity} | {code.title} |" for code in codes]
    return "\n".join(["| code | severity | what it says |", "|---|---|---|", *sorted(rows)])


def merged(before: Any, more: Any) -> Any:
    """Merge mappings deeply and lists of named objects by name, and replace everything else. Null removes a field."""
    if isinstance(before, dict) and isinstance(more, dict):
        both = {**before, **{name: merged(before.get(name), value) for name, value in more.items()}}
        return {name: value for name, value in both.items() if value is not None}
    key = _merge_key(before, more)
    if key is None:
        return more
    result = list(before)
    for item in more:
        at = [number for number, each in enumerate(result) if each[key] == item[key]]
        if at:
            result[at[0]] = merged(result[at[0]], item)
        else:
            result.append(item)
    return result


def _merge_key(before: Any, more: Any) -> str | None:
    if not isinstance(before, list) or not isinstance(more, list) or not before or not more:
        return None
    both = [*before, *more]
    return next((key for key in _MERGE_KEYS if all(isinstance(each, dict) and key in each for each in both)), None)
