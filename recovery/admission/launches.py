"""Judges TrainJobs and their runtimes for admission: by the checks of `recovery lint`, but with restraint.

Pure: objects in, sentences out. An object is refused only for what is sure to fail by its own fields. All else is a
warning. Nothing is said about what depends on a runtime that could not be read.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import msgspec

from recovery.admission.verdict import AdmissionVerdict
from recovery.launch.documents import document_of
from recovery.launch.findings import LintFinding, Severity
from recovery.launch.lint import judge
from recovery.launch.places import Path
from recovery.launch.preparing import PREPARE_ANNOTATION, PREPARED_ANNOTATION, PreparedChange, prepare
from recovery.launch.reading import read
from recovery.launch.resolving import launch_of
from recovery.launch.views import Runtime, TrainJob
from recovery.ports import TRAIN_JOBS, Resource

TRAINING_RUNTIMES = Resource("trainer.kubeflow.org", "v1alpha1", "trainingruntimes", "TrainingRuntime")
CLUSTER_TRAINING_RUNTIMES = Resource(
    "trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes", "ClusterTrainingRuntime", namespaced=False
)
LAUNCHES = (TRAIN_JOBS, TRAINING_RUNTIMES, CLUSTER_TRAINING_RUNTIMES)

TRAINER_MANAGES = frozenset({"", "trainer.kubeflow.org/trainjob-controller"})
"""`spec.managedBy` of a TrainJob that Trainer runs in this cluster. With another value, the job may run elsewhere, with
another runtime of the same name (MultiKueue)."""
REFUSALS_MAX = 20
LINE_CHARACTERS_MAX = 1000
"""Of one sentence, which may quote user text of any length."""
WARNINGS_MAX = 5
WARNING_CHARACTERS_MAX = 3000
"""Of all warnings together. If all webhooks together exceed 4,096, the API server cuts each warning at 256
(k8s.io/apiserver pkg/endpoints/filters/warning.go)."""

Body = Mapping[str, Any]

_SUBJECT, _RUNTIME = 0, 1


class RuntimeName(msgspec.Struct, frozen=True):
    """Where the runtime of a TrainJob is found."""

    resource: Resource
    namespace: str
    """Empty: the runtime is cluster-scoped."""
    name: str


def runtime_name(body: Body, namespace: str) -> RuntimeName | None:
    """The runtime of the judged object. None: the object is itself a runtime, or its runtime is not in this cluster.

    `namespace`: that of the request. The namespace in the object is ignored, because our permissions reach further than
    its writer's.
    """
    job = read(document_of(body)).view
    if not isinstance(job, TrainJob) or job.managed_by not in TRAINER_MANAGES or not job.runtime.name:
        return None
    if job.runtime.api_group not in ("", TRAIN_JOBS.group):
        return None
    if job.runtime.kind in ("", CLUSTER_TRAINING_RUNTIMES.kind):
        return RuntimeName(CLUSTER_TRAINING_RUNTIMES, "", job.runtime.name)
    if job.runtime.kind == TRAINING_RUNTIMES.kind:
        return RuntimeName(TRAINING_RUNTIMES, namespace, job.runtime.name) if namespace else None
    return None


def verdict_of(new: Body, old: Body | None, runtime: Body | None) -> AdmissionVerdict:
    """What to say about a TrainJob or a runtime. `old`: the object before the update; None: it is created. `runtime`:
    the runtime of a TrainJob; None: it is not known.

    An update is refused only for what was not wrong before it, so that any object in the cluster can be updated. A
    TrainJob that is created suspended is not refused for what depends on its runtime: the client that suspends it,
    such as Kueue, may patch that before it starts.

    Nothing from a TrainingRuntime is quoted. We do not verify that the client is the API server, so any client in the
    network can ask on behalf of any namespace.
    """
    found = [finding for finding in _findings(new, runtime) if finding.code.severity is not Severity.NOTE]
    refused = [finding for finding in found if _is_error(finding) and finding.place.document == _SUBJECT]
    if refused and old is not None:
        before = _fields(_findings(old, runtime))
        refused = [finding for finding in refused if _field(finding) not in before]
    if refused and old is None and _suspended(new):
        alone = _fields(_findings(new, None))
        refused = [finding for finding in refused if _field(finding) in alone]
    known = set(_findings(new, None)) if _of_a_namespace(runtime) else None
    fatal = set(refused)
    warned = sorted((finding for finding in found if finding not in fatal), key=_turn)
    return AdmissionVerdict(
        tuple(_limited([_line_of(each, runtime, known) for each in refused], REFUSALS_MAX)),
        tuple(_limited([_line_of(each, runtime, known) for each in warned], WARNINGS_MAX, WARNING_CHARACTERS_MAX)),
    )


def changed(new: Body, old: Body | None) -> bool:
    """Whether there is something to judge: the object is new, or more of its spec than `suspend` has changed. So Kueue
    and the controller do not get the same findings each time they suspend or resume a job."""
    return old is None or _without_suspend(new) != _without_suspend(old)


def asks_to_be_prepared(body: Body) -> bool:
    return _annotations(body).get(PREPARE_ANNOTATION) == "true"


def changes_of(body: Body, runtime: Body | None) -> tuple[PreparedChange, ...]:
    """What to set in a TrainJob that asks to be prepared. `runtime` None: it is not known, so nothing is set."""
    job = read(document_of(body, number=_SUBJECT)).view
    its = read(document_of(runtime, number=_RUNTIME)).view if runtime is not None else None
    if not isinstance(job, TrainJob) or not isinstance(its, Runtime):
        return ()
    return prepare(launch_of(job, its))


def record_of(changes: Sequence[PreparedChange]) -> dict[str, str]:
    """The annotation that says what was changed."""
    return {PREPARED_ANNOTATION: "; ".join(str(change) for change in changes)}


def _findings(body: Body, runtime: Body | None) -> tuple[LintFinding, ...]:
    context = (document_of(runtime, number=_RUNTIME),) if runtime is not None else ()
    return judge(document_of(body, number=_SUBJECT), context)


def _fields(found: Sequence[LintFinding]) -> set[tuple[str, int, Path]]:
    return {_field(finding) for finding in found}


def _field(finding: LintFinding) -> tuple[str, int, Path]:
    """What is wrong, and where, without the numbers in the sentence."""
    return finding.code.name, finding.place.document, finding.place.path


def _is_error(finding: LintFinding) -> bool:
    return finding.code.severity is Severity.ERROR


def _turn(finding: LintFinding) -> tuple[bool, bool]:
    """Sort key: findings about the runtime come last, and warnings after errors, because the end may be cut off."""
    return finding.place.document != _SUBJECT, not _is_error(finding)


def _of_a_namespace(runtime: Body | None) -> bool:
    return runtime is not None and runtime.get("kind") == TRAINING_RUNTIMES.kind


def _line_of(finding: LintFinding, runtime: Body | None, known: Set[LintFinding] | None) -> str:
    """The finding in one line, because the API server shows no control characters in a warning.

    `known`: the findings that may be quoted in full. None: all of them.
    """
    where = ""
    if finding.place.document == _RUNTIME and runtime is not None:
        where = f"{runtime.get('kind')} {runtime.get('metadata', {}).get('name')}: "
    if known is not None and finding not in known:
        return f"{where}{finding.code.name}: {finding.code.title} (`recovery lint --cluster` says where)"
    fix = f" ({finding.fix})" if finding.fix else ""
    line = " ".join(f"{where}{finding.code.name}: {finding.message}{fix}".split())
    return line if len(line) <= LINE_CHARACTERS_MAX else f"{line[: LINE_CHARACTERS_MAX - 1]}…"


def _limited(lines: Sequence[str], lines_max: int, characters_max: int | None = None) -> Iterator[str]:
    """The first lines, and how many are left out. `characters_max`: of all lines together. None: no limit."""
    characters = 0
    for number, line in enumerate(lines):
        characters += len(line)
        if number == lines_max or (characters_max is not None and characters > characters_max):
            yield f"and {len(lines) - number} more; `recovery lint` shows all"
            return
        yield line


def _suspended(body: Body) -> bool:
    spec = body.get("spec")
    return isinstance(spec, Mapping) and spec.get("suspend") is True


def _without_suspend(body: Body) -> Body | None:
    spec = body.get("spec")
    return {name: value for name, value in spec.items() if name != "suspend"} if isinstance(spec, Mapping) else None


def _annotations(body: Body) -> Body:
    metadata = body.get("metadata")
    found = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    return found if isinstance(found, Mapping) else {}
