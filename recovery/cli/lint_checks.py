"""What `recovery lint` checks: what starts, by `launch`, and our own kinds."""

from collections.abc import Sequence

from recovery.cli import policy_lint
from recovery.launch.documents import Document
from recovery.launch.findings import LintFinding
from recovery.launch.lint import lint


def lint_all(documents: Sequence[Document]) -> tuple[LintFinding, ...]:
    """All findings, in the order of documents and lines."""
    by_number = {document.number: document for document in documents}

    def turn(finding: LintFinding) -> tuple[int, int]:
        number = finding.place.document
        return number, by_number[number].line_of(finding.place.path)

    return tuple(sorted((*lint(documents), *policy_lint.check(documents)), key=turn))
