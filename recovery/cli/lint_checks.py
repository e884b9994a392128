"""All checks of `recovery lint`: those in `launch` for what starts jobs, and those for our own kinds."""

from collections.abc import Sequence

from recovery.cli import policy_lint
from recovery.launch.documents import Document
from recovery.launch.findings import LintFinding
from recovery.launch.lint import lint


def lint_all(documents: Sequence[Document], *, cluster_asked: bool = False) -> tuple[LintFinding, ...]:
    """All findings, in the order of documents and lines. `cluster_asked`: as in `launch.lint.lint`."""
    by_number = {document.number: document for document in documents}

    def turn(finding: LintFinding) -> tuple[int, int]:
        number = finding.place.document
        return number, by_number[number].line_of(finding.place.path)

    found = (*lint(documents, cluster_asked=cluster_asked), *policy_lint.check(documents))
    return tuple(sorted(found, key=turn))
