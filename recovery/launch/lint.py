"""Runs all checks: documents go in, findings come out. `recovery lint` and admission both use it."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from recovery.launch import containers, own_kinds, reading, removed
from recovery.launch import documents as texts
from recovery.launch.checks import LAUNCH_CHECKS, VOLCANO_CHECKS
from recovery.launch.documents import Document
from recovery.launch.fields import fill_in, is_placeholder
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.kinds import CLUSTER_TRAINING_RUNTIME, TRAINING_RUNTIME
from recovery.launch.launch import Launch, Setting
from recovery.launch.places import Place
from recovery.launch.reading import UNKNOWN_KIND, Reading, read
from recovery.launch.reading.trainjobs import is_runtime
from recovery.launch.resolving import launch_of, launch_of_job_set, launch_of_runtime
from recovery.launch.views import JobSet, Runtime, TrainJob, VolcanoJob

IGNORE_ANNOTATION = "recovery.trainjob.dev/lint-ignore"
"""A person sets it on an object that is judged: names of codes, separated by commas. Findings with these codes are not
reported for that object. On a TrainJob this includes findings in its runtime when the two are judged together."""

UNKNOWN_RUNTIME = Code("unknown-runtime", Severity.NOTE, "the runtime of a TrainJob is not among the given files")
UNKNOWN_CODE = Code("unknown-code", Severity.WARNING, "the lint-ignore annotation names a code that does not exist")

CODES: tuple[Code, ...] = (
    *texts.CODES,
    *reading.CODES,
    *removed.CODES,
    UNKNOWN_RUNTIME,
    UNKNOWN_CODE,
    *own_kinds.CODES,
    *(code for each in LAUNCH_CHECKS for code in each.codes),
    *(code for each in VOLCANO_CHECKS for code in each.codes),
)
"""All codes."""

_NAMED_MAX = 3
"""At most this many unknown codes are named."""
_NAME_MAX = 60
"""Longer than the name of any code. Of anything longer in the annotation, only the beginning is shown."""


class Subject(msgspec.Struct, frozen=True):
    """An object, and what it starts."""

    document: Document
    group: Launch | VolcanoJob | None
    """None: the object starts nothing, or nothing that is judged."""


class _Given(msgspec.Struct, frozen=True):
    """The objects that are judged together."""

    documents: Mapping[int, Document]
    readings: Mapping[int, Reading]
    runtimes: Mapping[tuple[str, str, str], int]
    """Document numbers by kind, namespace (empty for a ClusterTrainingRuntime) and name. Of two runtimes with the same
    name the last one counts, as with kubectl apply."""
    cluster_asked: bool
    """Runtimes that no file has were looked up in a cluster. Those that it has are among the documents."""


def lint(documents: Sequence[Document], *, cluster_asked: bool = False) -> tuple[LintFinding, ...]:
    """What is wrong with these objects, in the order of documents and lines.

    A TrainJob is judged together with its runtime, if that is among the documents. A runtime that no TrainJob uses is
    judged by itself. `cluster_asked`: runtimes that no file has were looked up in a cluster.
    """
    given = _given(documents, cluster_asked=cluster_asked)
    found = (finding for subject in _subjects(given) for finding in _judged(subject, given))
    return _in_order(_kinds_once(found, given), given)


def judge(subject: Document, context: Sequence[Document], *, cluster_asked: bool = False) -> tuple[LintFinding, ...]:
    """What is wrong with one object, for admission. `context`: the objects that it may refer to. All documents must
    have different numbers: the place of a finding has the number of the document that it is in, which is the object
    itself or its runtime. `cluster_asked`: as in `lint`."""
    given = _given((subject, *context), cluster_asked=cluster_asked)
    return _in_order(_judged(_subject(subject, given), given), given)


def subjects(documents: Sequence[Document]) -> tuple[Subject, ...]:
    """What these objects start, for explain-launch. A runtime that one of the TrainJobs uses starts nothing itself."""
    return tuple(_subjects(_given(documents)))


def explain(group: Launch | VolcanoJob) -> tuple[Setting, ...]:
    """The values that the group starts with, and what set each of them."""
    if isinstance(group, VolcanoJob):
        return tuple(each for check in VOLCANO_CHECKS if check.settings for each in check.settings(group))
    of_checks = (each for check in LAUNCH_CHECKS if check.settings for each in check.settings(group))
    return (*containers.settings(group), *of_checks)


def _given(documents: Iterable[Document], *, cluster_asked: bool = False) -> _Given:
    by_number = {document.number: document for document in documents}
    readings = {number: read(document) for number, document in by_number.items()}
    runtimes = {
        _runtime_key(view.kind, view.namespace, view.name): number
        for number, reading in readings.items()
        if isinstance(view := reading.view, Runtime)
    }
    return _Given(by_number, readings, runtimes, cluster_asked)


def _runtime_key(kind: str, namespace: str, name: str) -> tuple[str, str, str]:
    return kind, namespace if kind == TRAINING_RUNTIME.name else "", name


def _runtime_number(job: TrainJob, given: _Given) -> int | None:
    """The number of the document with that job's runtime. None: it is not among the documents."""
    reference = job.runtime
    if not is_runtime(reference):
        return None
    kind = reference.kind or CLUSTER_TRAINING_RUNTIME.name
    return given.runtimes.get(_runtime_key(kind, job.namespace, reference.name))


def _subjects(given: _Given) -> Iterator[Subject]:
    jobs = (reading.view for reading in given.readings.values())
    used = {_runtime_number(job, given) for job in jobs if isinstance(job, TrainJob)}
    for number, document in given.documents.items():
        yield Subject(document, None) if number in used else _subject(document, given)


def _subject(document: Document, given: _Given) -> Subject:
    view = given.readings[document.number].view
    group: Launch | VolcanoJob | None = None
    if isinstance(view, TrainJob):
        number = _runtime_number(view, given)
        runtime = given.readings[number].view if number is not None else None
        group = launch_of(view, runtime if isinstance(runtime, Runtime) else None)
    elif isinstance(view, Runtime):
        group = launch_of_runtime(view)
    elif isinstance(view, JobSet):
        group = launch_of_job_set(view)
    elif isinstance(view, VolcanoJob):
        group = view
    return Subject(document, group)


def _judged(subject: Subject, given: _Given) -> Iterator[LintFinding]:
    """What is wrong with an object and what it starts, except what this or the finding's own object silences."""
    own = ignored_codes(subject.document)
    yield from _unknown_codes(subject.document)
    for finding in (*given.readings[subject.document.number].findings, *_of_group(subject.group, given)):
        if finding.code.name not in own and finding.code.name not in ignored_codes(
            given.documents[finding.place.document]
        ):
            yield finding


def _of_group(group: Launch | VolcanoJob | None, given: _Given) -> Iterator[LintFinding]:
    if isinstance(group, VolcanoJob):
        for volcano_check in VOLCANO_CHECKS:
            yield from volcano_check.check(group)
    elif isinstance(group, Launch):
        if group.train_job is not None and group.runtime is None:
            yield from _unknown_runtime(group.train_job, given)
        for check in LAUNCH_CHECKS:
            yield from check.check(group)


def _unknown_runtime(job: TrainJob, given: _Given) -> Iterator[LintFinding]:
    reference = job.runtime
    if not reference.name or not is_runtime(reference):
        return  # the reader reports it
    kind = reference.kind or CLUSTER_TRAINING_RUNTIME.name
    named = next((each for each in given.runtimes if each[2] == reference.name), None)
    message = f"the {kind} {reference.name} is not known here, so what its settings decide is not judged"
    fix = "pass its file too; recovery lint --cluster reads it from the cluster"
    if given.cluster_asked:
        fix = "correct runtimeRef, or pass its file too: the cluster has none of that name"
    if is_placeholder(reference.name):
        fix = fill_in(reference.name)
    elif named is not None and named[0] != kind:
        fix = f"write runtimeRef.kind: {named[0]} if the one that was given is meant; else pass its file too"
    elif named is not None:
        message += f" (the one of that name is in namespace {named[1] or 'default'}, the job in "
        message += f"{job.namespace or 'default'})"
    yield LintFinding(UNKNOWN_RUNTIME, reference.place, message, fix)


def ignored_codes(document: Document) -> list[str]:
    """Names of the codes that the object silences."""
    metadata = document.body.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
    value = annotations.get(IGNORE_ANNOTATION) if isinstance(annotations, dict) else None
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else []


def _unknown_codes(document: Document) -> Iterator[LintFinding]:
    known = [code.name for code in CODES]
    unknown = [name for name in ignored_codes(document) if name not in known]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0][:_NAME_MAX], known, n=1)
    first = ", ".join(name[:_NAME_MAX] for name in unknown[:_NAMED_MAX])
    more = f" and {len(unknown) - _NAMED_MAX} more" if len(unknown) > _NAMED_MAX else ""
    yield LintFinding(
        UNKNOWN_CODE,
        Place(document.number, ("metadata", "annotations", IGNORE_ANNOTATION)),
        f"there is no code {first}{more}, so nothing is silenced by it",
        f"did you mean {near[0]}?" if near else "write the name of a code as docs/lint/README.md has it",
    )


def _kinds_once(found: Iterable[LintFinding], given: _Given) -> Iterator[LintFinding]:
    """The findings, with only one for each kind that is not judged."""
    reported: set[tuple[str, str]] = set()
    for finding in found:
        if finding.code == UNKNOWN_KIND:
            document = given.documents[finding.place.document]
            kind = (document.kind, document.api_version)
            if kind in reported:
                continue
            reported.add(kind)
        yield finding


def _in_order(found: Iterable[LintFinding], given: _Given) -> tuple[LintFinding, ...]:
    """The findings by document and line. The same code at the same place appears once."""
    once: dict[tuple[Code, Place], LintFinding] = {}
    for finding in found:
        once.setdefault((finding.code, finding.place), finding)

    def turn(finding: LintFinding) -> tuple[int, int]:
        number = finding.place.document
        return number, given.documents[number].line_of(finding.place.path)

    return tuple(sorted(once.values(), key=turn))
