"""`recovery lint FILE...`: what is wrong with manifests before they are applied."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NoReturn

from recovery.cli.exit_codes import EXIT_FAILURE
from recovery.cli.formatting import LintFormat
from recovery.cli.lint_checks import lint_all
from recovery.cli.lint_formats import as_data, as_sarif, print_github, print_json, print_text
from recovery.cli.manifest_files import Located, Manifests, RuntimeSource, located, with_manifests
from recovery.launch.findings import Severity
from recovery.launch.recoverability.words import counted


def show_lint(names: Sequence[str], output: LintFormat, cluster: RuntimeSource | None) -> NoReturn:
    """Print the findings. 1: one of them is an error, or the cluster cannot be asked; 2: a file cannot be read, or
    there is nothing to judge. `cluster` None: no cluster is asked for the runtimes that no file has."""
    with_manifests(names, cluster, lambda manifests: _lint(manifests, output))


def _lint(manifests: Manifests, output: LintFormat) -> int:
    found = located(lint_all(manifests.documents), manifests.documents)
    match output:
        case LintFormat.TEXT:
            print_text(found)
            print(_summary(found, manifests), file=sys.stderr)
        case LintFormat.JSON:
            print_json(as_data(found))
        case LintFormat.GITHUB:
            print_github(found)
        case LintFormat.SARIF:
            print_json(as_sarif(found))
    return EXIT_FAILURE if any(each.finding.code.severity is Severity.ERROR for each in found) else 0


def _summary(found: Sequence[Located], manifests: Manifests) -> str:
    """`2 errors, 1 warning in 3 files`."""
    times = Counter(each.finding.code.severity for each in found)
    told = ", ".join(counted(times[severity], str(severity)) for severity in Severity if times[severity])
    words = f"{told or 'no findings'} in {counted(manifests.files, 'file')}"
    if manifests.passed_over:
        words += f", {manifests.passed_over:,} of them with nothing that is judged"
    return words
