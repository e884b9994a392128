"""Groups for tests of launch settings: a manifest of `bases` with fragments of YAML merged into it."""

from collections.abc import Callable, Iterator

from recovery.launch.documents import documents
from recovery.launch.findings import LintFinding
from recovery.launch.launch import Launch, Setting
from recovery.launch.lint import subjects
from recovery.launch.views import VolcanoJob
from tests.unit.launch.pages import NONE, Example


def group(fragment: str = "", *, base: str = "torch") -> Launch:
    """The group of the TrainJob, of the JobSet, or of a runtime by itself. Of several groups, the first."""
    found, *_ = _groups(fragment, base)
    assert isinstance(found, Launch)
    return found


def volcano_job(fragment: str = "", *, base: str = "volcano") -> VolcanoJob:
    (found,) = _groups(fragment, base)
    assert isinstance(found, VolcanoJob)
    return found


def runtime_alone(text: str) -> Launch:
    """The group of a runtime. The text is the whole manifest."""
    return group(text, base=NONE)


def told(check: Callable[[Launch], Iterator[LintFinding]], launch: Launch) -> list[str]:
    """Code, message and fix of each finding, one line for each."""
    return [line(each) for each in check(launch)]


def line(finding: LintFinding) -> str:
    return f"{finding.code.name}: {finding.message} ({finding.fix})"


def values(settings: Iterator[Setting]) -> dict[tuple[str, str], str]:
    """The values by target and name."""
    return {(each.target, each.name): each.value for each in settings}


def _groups(fragment: str, base: str) -> Iterator[Launch | VolcanoJob]:
    manifest = Example(base, fragment).manifest()
    return (each.group for each in subjects(documents(manifest)) if each.group is not None)
