"""What the program of a group is: whether its ranks form one collective, and whose processes belong to it.

The annotation of the workload decides, else that of a pod template, else the launch, else the program is an ordinary
one: Required. Where several Jobs disagree, the launch that asserts less about the other ranks wins, because a group
that heals itself must never be called hung.
"""

import msgspec

from recovery.core.diagnosis.deleted_jobs import deleted_alone
from recovery.core.diagnosis.training_container import SelectedBy, select
from recovery.core.model.annotations import COLLECTIVE_ANNOTATION
from recovery.core.model.collective import Collective, LaunchFacts
from recovery.core.model.derived import derived
from recovery.core.model.facts import JobFacts, Snapshot
from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

_LEAST_FIRST = (Collective.INDEPENDENT, Collective.SELF_HEALING, Collective.REQUIRED)
_VALUE_MAX = 40
"""Characters of an unknown value that a sentence repeats."""


class ProgramKind(msgspec.Struct, frozen=True):
    """What the program of a group is."""

    collective: Collective
    counts: frozenset[str]
    """UIDs of the Jobs whose processes count, deleted ones included. Under mpirun only the launcher's, because
    the pods of the others have no rank until mpirun starts it."""
    why: Explanation


@derived
def collective_of(snapshot: Snapshot) -> ProgramKind:
    """What the program of the group is, and which rule says so."""
    jobs = (*snapshot.jobs, *(job for job in deleted_alone(snapshot) if job.gone_at is not None))
    launches = [(job, found) for job in jobs for found in _launches(job, snapshot)]
    launchers = frozenset(job.uid for job, found in launches if found.starts_all)
    counts = launchers or frozenset(job.uid for job in jobs)
    unknown, annotated = unknown_value(snapshot), _annotated(snapshot)
    if unknown is not None:
        value, whose = unknown
        return ProgramKind(Collective.REQUIRED, counts, because(Reason.COLLECTIVE_UNKNOWN, whose=whose, value=value))
    if annotated is not None:
        value, whose = annotated
        return ProgramKind(Collective(value), counts, because(Reason.COLLECTIVE_ANNOTATED, whose=whose, value=value))
    if not launches:
        return ProgramKind(Collective.REQUIRED, counts, because(Reason.COLLECTIVE_ASSUMED))
    job, found = min(launches, key=lambda each: _LEAST_FIRST.index(each[1].collective))
    return ProgramKind(found.collective, counts, _by_launch(job, found))


def unknown_value(snapshot: Snapshot) -> tuple[str, str] | None:
    """The value of an annotation that has none of its values, and what has it. None: there is no such annotation."""
    annotated = _annotated(snapshot)
    if annotated is None or annotated[0] in set(Collective):
        return None
    value, whose = annotated
    return (value if len(value) <= _VALUE_MAX else f"{value[:_VALUE_MAX]}…"), whose


def _annotated(snapshot: Snapshot) -> tuple[str, str] | None:
    """The value of the annotation, and what has it. None: nothing has it. Of several Jobs the first one counts."""
    workload = snapshot.workload
    given = workload.annotations.get(COLLECTIVE_ANNOTATION) if workload is not None else None
    if workload is not None and given:
        return given, f"the {workload.kind}"
    return next(
        ((job.collective, f"the pod template of Job {job.name}") for job in snapshot.jobs if job.collective), None
    )


def _by_launch(job: JobFacts, found: LaunchFacts) -> Explanation:
    shown_by = f"{found.shown_by} of Job {job.name}"
    if found.starts_all:
        return explained(Sentence.STARTS_ALL_RANKS, Reason.COLLECTIVE_BY_LAUNCH, shown_by=shown_by)
    if found.collective is Collective.INDEPENDENT:
        return explained(Sentence.RANKS_ARE_INDEPENDENT, Reason.COLLECTIVE_BY_LAUNCH, shown_by=shown_by)
    return because(Reason.COLLECTIVE_BY_LAUNCH, shown_by=shown_by)


def _launches(job: JobFacts, snapshot: Snapshot) -> list[LaunchFacts]:
    """What the launches of the containers that train show. If it is not known which one trains, any of them may."""
    selection = select(job, snapshot.workload)
    known = selection.by is not SelectedBy.UNKNOWN
    mine = (each for each in job.containers if not known or each.name in selection.names)
    return [each.launch for each in mine if each.launch is not None]
