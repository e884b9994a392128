"""`recovery explain-launch FILE...`: the values that a job would start with, what set each of them, and what would
happen to the job today if it lost a pod, all ranks or a node."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

import msgspec
import structlog

from recovery.cli.exit_codes import EXIT_FAILURE, EXIT_USAGE, print_error
from recovery.cli.formatting import LaunchFormat, aligned, printable
from recovery.cli.lint_formats import as_data, print_json
from recovery.cli.lint_text import print_text
from recovery.cli.manifest_files import with_manifests
from recovery.cli.manifests import Located, Manifests, RuntimeSource, located, title
from recovery.launch.documents import Document
from recovery.launch.findings import LintFinding, Severity
from recovery.launch.launch import Launch, Setting
from recovery.launch.lint import UNKNOWN_RUNTIME, Subject, explain, judge, lint, subjects
from recovery.launch.places import Place, written
from recovery.launch.processes import PROCESSES_FLAG, Processes, processes_of
from recovery.launch.recoverability.outlook import outlook
from recovery.launch.recoverability.words import counted
from recovery.launch.views import VolcanoJob
from recovery.telemetry.logs import configure_logs

_VALUE_MAX = 72
"""A table shows at most this many characters of a value. JSON has all of them."""

_log = structlog.get_logger("recovery.cli")


class _Start(msgspec.Struct, frozen=True):
    """What is shown about one object that starts a group."""

    document: Document
    runtime: Document | None
    """None: it is not known, or the object uses none."""
    group: Launch | VolcanoJob
    settings: tuple[Setting, ...]
    processes: Processes | None
    """None: neither torch nor MPI starts processes in it."""
    outlook: tuple[str, ...]


def show_launch(
    names: Sequence[str], job: str | None, output: LaunchFormat, log_level: str, cluster: RuntimeSource | None
) -> NoReturn:
    """Print what the objects in these files would start, or only the one called `job`. Exit code 1: a finding is an
    error, or the cluster cannot be read. 2: a file cannot be read, or nothing in the files starts a job. `cluster`
    None: runtimes that no file has are not looked up."""
    configure_logs(log_level)
    with_manifests(names, cluster, lambda manifests: _show(manifests, job, output, cluster_asked=cluster is not None))


def _show(manifests: Manifests, job: str | None, output: LaunchFormat, *, cluster_asked: bool) -> int:
    documents = {document.number: document for document in manifests.documents}
    there = [each for each in subjects(manifests.documents) if each.group is not None]
    chosen = [each for each in there if each.group is not None and job in (None, each.group.name)]
    if job is not None and not chosen:
        names = ", ".join(each.group.name for each in there if each.group is not None)
        print_error(f"there is nothing called {job!r} that would start a job{f'; there is {names}' if names else ''}")
        return EXIT_USAGE
    if job is None:
        findings = lint(manifests.documents, cluster_asked=cluster_asked)
    else:
        findings = _findings(chosen, documents, cluster_asked=cluster_asked)
    found = located(findings, manifests.documents)
    shown = [each for each in found if _is_shown(each)]
    starts = [start for each in chosen for start in _starts(each, documents)]
    _log_decisions(starts, found, documents)
    if not starts and not shown:
        print_error("nothing in what was given starts a job: no TrainJob, runtime, JobSet or Job of Volcano")
        return EXIT_USAGE
    if output is LaunchFormat.JSON:
        print_json({"launches": [_data(each, documents) for each in starts], "findings": as_data(shown)})
    else:
        _print_all(starts, shown, documents)
    return EXIT_FAILURE if any(each.finding.code.severity is Severity.ERROR for each in shown) else 0


def _findings(
    chosen: Sequence[Subject], documents: Mapping[int, Document], *, cluster_asked: bool
) -> tuple[LintFinding, ...]:
    """The findings in the chosen objects alone."""
    found: list[LintFinding] = []
    for each in chosen:
        others = [document for number, document in documents.items() if number != each.document.number]
        found.extend(judge(each.document, others, cluster_asked=cluster_asked))
    return tuple(found)


def _is_shown(each: Located) -> bool:
    """What keeps the job from starting, or why there is nothing to explain. The rest is for `recovery lint`."""
    return each.finding.code.severity is Severity.ERROR or each.finding.code == UNKNOWN_RUNTIME


def _starts(subject: Subject, documents: Mapping[int, Document]) -> Iterator[_Start]:
    group = subject.group
    if isinstance(group, VolcanoJob):
        yield _Start(subject.document, None, group, explain(group), None, ())
    elif group is not None:
        runtime = documents[group.runtime.place.document] if group.runtime is not None else None
        other = runtime if runtime is not subject.document else None
        yield _Start(subject.document, other, group, explain(group), processes_of(group), outlook(group))


def _print_all(starts: Sequence[_Start], shown: Sequence[Located], documents: Mapping[int, Document]) -> None:
    for turn, start in enumerate(starts):
        if turn:
            print()
        _print_start(start, documents)
    if starts and shown:
        print("\nFindings:")
    print_text(shown)


def _print_start(start: _Start, documents: Mapping[int, Document]) -> None:
    print(printable(_heading(start)))
    for target in dict.fromkeys(each.target for each in start.settings):
        rows = [
            (each.name, _shortened(printable(each.value)), printable(each.rule), _where(each.place, documents))
            for each in start.settings
            if each.target == target
        ]
        _print_section(target, aligned(("NAME", "VALUE", "SET BY", "AT"), rows))
    if start.processes is not None:
        _print_section("Processes of each node, as the launcher's arguments say", _process_lines(start.processes))
    if start.outlook:
        _print_section("What a failure would do", start.outlook)


def _heading(start: _Start) -> str:
    """`TrainJob/llama (llama.yaml:2) with ClusterTrainingRuntime/torch (torch.yaml:1): 16 pods, 128 GPUs`."""
    words = _titled(start.document)
    if start.runtime is not None:
        words += f" with {_titled(start.runtime)}"
    if isinstance(start.group, Launch) and start.group.nodes:
        words += f": {counted(start.group.nodes, 'pod')}"
        if start.group.gpus:
            words += f", {counted(start.group.gpus, 'GPU')}"
    return words


def _titled(document: Document) -> str:
    at = f"{document.file}:{document.line_of(())}" if document.file else "as the cluster has it"
    return f"{title(document)} ({at})"


def _process_lines(processes: Processes) -> Iterator[str]:
    if processes.flag:
        yield f"torchrun starts {processes.flag}: its --{PROCESSES_FLAG} wins over what Trainer says"
    if (processes.count, processes.rule) == (processes.trainer_count, processes.trainer_rule):
        yield f"{processes.count}: {processes.rule}"
        return
    yield f"Trainer 2.3 says {processes.trainer_count}: {processes.trainer_rule}"
    verb = "is" if processes.count == processes.trainer_count else "would be"
    yield f"by the devices it {verb} {processes.count}: {processes.rule}"


def _shortened(value: str) -> str:
    return value if len(value) <= _VALUE_MAX else f"{value[: _VALUE_MAX - 1]}…"


def _where(place: Place | None, documents: Mapping[int, Document]) -> str:
    """`llama.yaml:12`, or the title of an object of the cluster. Empty: no field sets the value."""
    if place is None:
        return ""
    document = documents[place.document]
    return f"{document.file}:{document.line_of(place.path)}" if document.file else title(document)


def _print_section(heading: str, lines: Sequence[str] | Iterator[str]) -> None:
    print(f"\n{printable(heading)}:")
    for line in lines:
        print(f"  {printable(line)}")


def _data(start: _Start, documents: Mapping[int, Document]) -> dict[str, Any]:
    group = start.group
    return {
        "kind": start.document.kind,
        "name": group.name,
        **_at(group.place, documents),
        "runtime": title(start.runtime) if start.runtime is not None else None,
        "pods": group.nodes if isinstance(group, Launch) else None,
        "gpus": group.gpus if isinstance(group, Launch) else None,
        "settings": [
            {"target": each.target, "name": each.name, "value": each.value, "rule": each.rule}
            | _at(each.place, documents)
            for each in start.settings
        ],
        "processes": start.processes and _process_data(start.processes),
        "outlook": list(start.outlook),
    }


def _process_data(processes: Processes) -> dict[str, Any]:
    return {
        "count": processes.count,
        "rule": processes.rule,
        "trainerCount": processes.trainer_count,
        "trainerRule": processes.trainer_rule,
        "flag": processes.flag or None,
    }


def _at(place: Place | None, documents: Mapping[int, Document]) -> dict[str, Any]:
    """All null: no field sets the value. `file` and `line` null: the object came from the cluster."""
    if place is None:
        return {"file": None, "line": None, "path": None}
    document = documents[place.document]
    return {
        "file": document.file or None,
        "line": document.line_of(place.path) or None,
        "path": written(place.path),
    }


def _log_decisions(starts: Sequence[_Start], found: Sequence[Located], documents: Mapping[int, Document]) -> None:
    for start in starts:
        log = _log.bind(job=title(start.document))
        log.debug("runtime", decision=title(start.runtime) if start.runtime is not None else "")
        for each in start.settings:
            where = _where(each.place, documents)
            log.debug("setting", decision=each.value, name=each.name, target=each.target, rule=each.rule, at=where)
        if start.processes is not None:
            log.debug("processes", **_process_data(start.processes))
        for sentence in start.outlook:
            log.debug("outlook", decision=sentence)
    for finding in found:
        code = finding.finding.code
        _log.debug("finding", decision=finding.sentence, severity=code.severity, code=code.name, at=finding.where)
