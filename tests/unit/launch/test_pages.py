"""Every code has a page in docs/lint, and its two examples give the findings that they should."""

from collections import Counter

import pytest

from recovery.cli.lint_checks import lint_all
from recovery.launch.documents import documents
from recovery.launch.findings import Code
from recovery.launch.lint import CODES
from tests.unit.launch.pages import BASES, PAGES, examples, table

every_code = pytest.mark.parametrize("code", CODES, ids=[code.name for code in CODES])


def test_no_two_codes_have_one_name() -> None:
    assert [name for name, times in Counter(code.name for code in CODES).items() if times > 1] == []


@pytest.mark.parametrize("base", sorted(path.stem for path in BASES.glob("*.yaml")))
def test_the_base_is_clean(base: str) -> None:
    assert lint_all(documents((BASES / f"{base}.yaml").read_text())) == ()


@every_code
def test_the_page_says_what_the_code_says(code: Code) -> None:
    title, _, severity, *rest = (PAGES / f"{code.name}.md").read_text().splitlines()

    assert title == f"# {code.name}"
    assert severity == f"{code.severity}: {code.title}"
    assert rest


@every_code
def test_the_good_example_gives_no_finding(code: Code) -> None:
    assert examples(code)["Good"].findings() == ()


@every_code
def test_the_bad_example_gives_exactly_that_finding(code: Code) -> None:
    assert [finding.code.name for finding in examples(code)["Bad"].findings()] == [code.name]


def test_every_page_is_of_a_code() -> None:
    assert {path.stem for path in PAGES.glob("*.md")} - {"README"} - {code.name for code in CODES} == set()


def test_the_table_lists_all_codes() -> None:
    readme = (PAGES / "README.md").read_text()
    missing = [row for row in table(CODES).splitlines() if row not in readme.splitlines()]
    too_many = [row for row in readme.splitlines() if row.startswith("| [") and row not in table(CODES).splitlines()]

    assert (missing, too_many) == ([], []), "print(tests.unit.launch.pages.table(CODES)) gives the table"
