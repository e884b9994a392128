"""`recovery lint FILE...`: what is wrong with manifests before they are applied."""

import sys
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, NoReturn

from recovery.cli.exit_codes import EXIT_FAILURE, EXIT_USAGE
from recovery.cli.formatting import LintFormat
from recovery.cli.lint_checks import lint_all
from recovery.cli.lint_formats import as_data, as_gitlab, print_github, print_json, problem_data
from recovery.cli.lint_sarif import as_sarif
from recovery.cli.lint_text import print_text
from recovery.cli.manifest_files import with_manifests
from recovery.cli.manifests import Located, Manifests, Problem, RuntimeSource, located
from recovery.launch.findings import Severity
from recovery.launch.recoverability.words import counted

_MILDER = tuple(Severity)
"""Each is milder than those before it."""


class LintOptions(NamedTuple):
    """What to print, and what counts as a failure."""

    output: LintFormat
    fail_on: str
    """The mildest severity that makes the exit code 1."""
    ignored: frozenset[str]
    """Names of codes."""
    skip_others: bool
    """Skip files in which nothing is judged, even files that are named."""


def show_lint(names: Sequence[str], options: LintOptions, cluster: RuntimeSource | None) -> NoReturn:
    """Print the findings. Exit code 1: one is at least as severe as `fail_on`, or the cluster cannot be read. 2: a file
    cannot be read, or there is nothing to judge. `cluster` None: runtimes that no file has are not looked up."""
    with_manifests(
        names,
        cluster,
        lambda manifests: _lint(manifests, options, cluster_asked=cluster is not None),
        without_work=lambda problems, code: _print(None, problems, code, options),
        skip_others=options.skip_others,
    )


def _lint(manifests: Manifests, options: LintOptions, *, cluster_asked: bool) -> int:
    findings = located(lint_all(manifests.documents, cluster_asked=cluster_asked), manifests.documents)
    found = [each for each in findings if each.finding.code.name not in options.ignored]
    failing = _MILDER[: _MILDER.index(Severity(options.fail_on)) + 1]
    code = EXIT_FAILURE if any(each.finding.code.severity in failing for each in found) else 0
    if manifests.problems:
        code = EXIT_USAGE
    _print(found, manifests.problems, code, options)
    if options.output is LintFormat.TEXT:
        print(_summary(found, len(findings) - len(found), manifests), file=sys.stderr)
    return code


def _print(found: Sequence[Located] | None, problems: Sequence[Problem], code: int, options: LintOptions) -> None:
    """`found` None: nothing was judged. The text omits the problems, because they are on stderr already."""
    match options.output:
        case LintFormat.TEXT:
            print_text(found or ())
        case LintFormat.JSON:
            print_json([*as_data(found or ()), *map(problem_data, problems)])
        case LintFormat.GITHUB:
            print_github(found or (), problems)
        case LintFormat.GITLAB:
            print_json(as_gitlab(found or (), problems))
        case LintFormat.SARIF:
            print_json(as_sarif(found, problems, code, options.ignored))


def _summary(found: Sequence[Located], ignored: int, manifests: Manifests) -> str:
    """`2 errors, 1 warning in 3 files`."""
    times = Counter(each.finding.code.severity for each in found)
    counts = ", ".join(counted(times[severity], str(severity)) for severity in Severity if times[severity])
    words = f"{counts or 'no findings'} in {counted(manifests.files, 'file')}"
    if manifests.passed_over:
        words += f", {manifests.passed_over:,} of them with nothing that is judged"
    if ignored:
        words += f"; {counted(ignored, 'finding')} left out by --ignore"
    return words
