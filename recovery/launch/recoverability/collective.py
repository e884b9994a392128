"""What the program is: whether its ranks hang when one of them ends, which the controller then calls Broken.

This is the rule of `recovery.core.diagnosis.collective`, for manifests. `launch` may not import `core`, so a test
compares both.
"""

from collections.abc import Iterator

import msgspec

from recovery.launch.collective import MPI_LAUNCHER, ShownCollective, ShownProgram, shown_by
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, Setting, place_of_command
from recovery.launch.mpi import LAUNCHER
from recovery.launch.places import Place
from recovery.launch.recoverability.effective import is_mpi, runtime_alone, trains
from recovery.launch.recoverability.training_container import annotation_place, selection
from recovery.launch.torchrun_settings import OF_TRAINER, trainer_sets
from recovery.launch.views import Container

COLLECTIVE_UNKNOWN = Code(
    "collective-unknown", Severity.WARNING, "the annotation about the program has none of its values"
)
COLLECTIVE_CONTRADICTS = Code(
    "collective-contradicts", Severity.WARNING, "the annotation about the program contradicts its launch"
)
CODES = (COLLECTIVE_UNKNOWN, COLLECTIVE_CONTRADICTS)

ANNOTATION = "recovery.trainjob.dev/collective"
"""On the TrainJob or JobSet, or on a pod template for all jobs of a runtime. A person sets it; the controller reads
it."""
_LEAST_FIRST = (ShownCollective.INDEPENDENT, ShownCollective.SELF_HEALING, ShownCollective.REQUIRED)
_FOLLOWS = {
    ShownCollective.REQUIRED: "recreates the group when a rank ends, although the program could go on",
    ShownCollective.SELF_HEALING: "waits for the program to replace a lost rank itself, and reports a hang late",
    ShownCollective.INDEPENDENT: "never reports that the other ranks hang",
}


class _Annotated(msgspec.Struct, frozen=True):
    value: str
    whose: str
    place: Place


def settings(launch: Launch) -> Iterator[Setting]:
    """What the program is, and what says so."""
    if not launch.members or not trains(launch):
        return
    annotated, shown = _annotated(launch), _shown(launch)
    value, rule, place = ShownCollective.REQUIRED, "nothing in its launch shows otherwise", None
    if annotated is not None:
        known = annotated.value in set(ShownCollective)
        value = ShownCollective(annotated.value) if known else value
        rule = annotated.whose if known else f"{annotated.whose} has none of its values"
        place = annotated.place
    elif shown is not None:
        member, found = shown
        value, place = found.collective, place_of_command(launch, member)
        rule = f"{found.by} of ReplicatedJob {member.job.name}"
        rule += ", which starts and ends all ranks" if found.starts_all else ""
    yield Setting("program", "collective", value, rule, place)


def check(launch: Launch) -> Iterator[LintFinding]:
    annotated, shown = _annotated(launch), _shown(launch)
    if annotated is None:
        return
    if annotated.value not in set(ShownCollective):
        message = f"{annotated.whose} says {annotated.value!r}, and the program counts as Required"
        yield LintFinding(COLLECTIVE_UNKNOWN, annotated.place, message, f"write one of {', '.join(ShownCollective)}")
    elif shown is not None and shown[1].collective != annotated.value:
        member, found = shown
        message = (
            f"{annotated.whose} says {annotated.value}, and {found.by} of ReplicatedJob {member.job.name} shows a "
            f"program that is {found.collective}: the controller follows the annotation, and "
            f"{_FOLLOWS[ShownCollective(annotated.value)]}"
        )
        fix = "remove the annotation, or keep it if you know the program better and silence this finding"
        yield LintFinding(COLLECTIVE_CONTRADICTS, annotated.place, message, fix)


def _annotated(launch: Launch) -> _Annotated | None:
    """The annotation that decides. None: there is none. Annotations of a runtime itself reach no job."""
    given = "" if runtime_alone(launch) else launch.annotations.get(ANNOTATION, "")
    if given:
        kind = "JobSet" if launch.train_job is None else "TrainJob"
        place = launch.place / "metadata" / "annotations" / ANNOTATION
        return _Annotated(given, f"the annotation {ANNOTATION} of the {kind}", place)
    for member in sorted(launch.members, key=lambda each: each.job.name):
        given = member.template.annotations.get(ANNOTATION, "")
        if given:
            whose = f"the annotation {ANNOTATION} of the pod template of ReplicatedJob {member.job.name}"
            return _Annotated(given, whose, annotation_place(launch, member, ANNOTATION))
    return None


def _shown(launch: Launch) -> tuple[Member, ShownProgram] | None:
    """What the launch shows, and where. None: nothing. Of several, the one that asserts least about the others."""
    shown = [(member, found) for member in launch.members for found in _of_member(launch, member)]
    return min(shown, key=lambda each: _LEAST_FIRST.index(each[1].collective), default=None)


def _of_member(launch: Launch, member: Member) -> Iterator[ShownProgram]:
    for container in selection(launch, member).containers or member.template.containers:
        found = shown_by(_as_started(launch, member, container))
        if found is None and is_mpi(launch) and member.job.name == LAUNCHER:
            found = MPI_LAUNCHER
        if found is not None:
            yield found


def _as_started(launch: Launch, member: Member, container: Container) -> Container:
    """The container without the variables that Trainer overrides. None of them shows a program that heals itself."""
    if not trainer_sets(launch, member):
        return container
    return msgspec.structs.replace(container, env=tuple(each for each in container.env if each.name not in OF_TRAINER))
