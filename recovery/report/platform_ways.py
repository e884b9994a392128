"""What an incident would have cost without the controller: computed from measured and documented inputs.

Two ways are compared, because a cluster without the controller runs one of two kinds of runtime. What cannot be known
is decided in favour of the platform: the time until a person notices a permanently failed job is left out.
"""

from collections.abc import Iterable, Sequence, Set
from enum import StrEnum

import msgspec

from recovery.core.diagnosis.classify import DisruptionClass
from recovery.core.incident.counterfactual import (
    COLLECTIVE_TIMEOUT_SECONDS,
    RESTART_SECONDS_PER_POD,
    WITHOUT_BASELINE,
)
from recovery.core.model.ledger import JOB_TRIGGERS, AttemptAction, Incident, Outcome, Phase
from recovery.report.phase_accounts import PhaseAccount


class Basis(StrEnum):
    """Where a figure comes from."""

    MEASURED = "measured"
    """Dated by the objects of the API, in this incident or on the control plane that the source names."""
    DOCUMENTED = "documented"
    """A default that the source states."""
    COMPUTED = "computed"
    """Follows from the inputs beside it."""


class Way(StrEnum):
    """How the platform restarts a group by itself."""

    SHIPPED_RUNTIME = "ShippedRuntime"
    """Trainer's shipped runtime: `restartPolicy: OnFailure`, `backoffLimit: 6`, no failurePolicy."""
    JOB_SET_FAILURE_POLICY = "JobSetFailurePolicy"
    """A runtime with `backoffLimit: 0` and a failurePolicy: JobSet recreates all Jobs."""


class NotCompared(StrEnum):
    """Why no comparison is made."""

    NOT_RECOVERED = "NotRecovered"
    NOT_RESTARTED_BY_CONTROLLER = "NotRestartedByController"
    RESTARTED_IN_PLACE = "RestartedInPlace"
    NO_BASELINE = "NoBaseline"
    """What the platform does about this class was not measured."""
    NO_GPUS = "NoGpus"


NOT_COMPARED_MESSAGES = {
    NotCompared.NOT_RECOVERED: "The incident has not ended with a recovery.",
    NotCompared.NOT_RESTARTED_BY_CONTROLLER: "The controller restarted nothing: this was the platform's own way.",
    NotCompared.RESTARTED_IN_PLACE: "The agents restarted the ranks in their pods: no start of pods was measured.",
    NotCompared.NO_BASELINE: "There is no baseline for incidents of this class.",
    NotCompared.NO_GPUS: "The group has no GPUs.",
}


class FigureInput(msgspec.Struct, frozen=True, rename="camel"):
    """One input of a computed figure."""

    name: str
    value: float
    unit: str
    basis: Basis
    source: str


class PlatformWay(msgspec.Struct, frozen=True, rename="camel"):
    """What one way of the platform would have cost."""

    way: Way
    basis: Basis
    duration_seconds: float
    idle_gpu_seconds: float
    saved_gpu_seconds: float
    """How much less the controller's way cost. Negative: it cost more."""
    ends_job: bool
    """The platform fails the job permanently, so a person has to start it again. That time is not counted."""
    formula: str
    inputs: tuple[FigureInput, ...]


class PlatformComparison(msgspec.Struct, frozen=True, rename="camel"):
    """The platform's own ways beside what happened."""

    ways: tuple[PlatformWay, ...]
    """Empty: none is compared."""
    not_compared: NotCompared | None
    """None: there is a comparison."""


_COLLECTIVE_TIMEOUT = FigureInput(
    name="collectiveTimeout",
    value=COLLECTIVE_TIMEOUT_SECONDS,
    unit="s",
    basis=Basis.DOCUMENTED,
    source="PyTorch, torch.distributed.init_process_group: the default timeout of the NCCL backend is 10 minutes",
)
_NO_WAIT = FigureInput(
    name="collectiveTimeout",
    value=0.0,
    unit="s",
    basis=Basis.MEASURED,
    source="this record: the ranks had ended by their own timeout when the incident began",
)
_NODE_EVICTION = FigureInput(
    name="nodeEviction",
    value=350.0,
    unit="s",
    basis=Basis.MEASURED,
    source="a kubelet ended on a real control plane (Kubernetes 1.36, default tolerations): until its pods are deleted",
)
_NO_EVICTION = FigureInput(
    name="nodeEviction", value=0.0, unit="s", basis=Basis.MEASURED, source="this record: no node was lost"
)
_SECONDS_PER_POD = FigureInput(
    name="restartPerPod",
    value=RESTART_SECONDS_PER_POD,
    unit="s",
    basis=Basis.MEASURED,
    source="JobSet's own restart on a real control plane at stock limits, grace 0: 5.0 s for 32 pods, 19.4 s for 128",
)

_RANKS_THAT_END_JOB = 8
"""This many container restarts under `backoffLimit: 6` failed the JobSet permanently, measured with 16 pods."""

_PLACED_AGAIN = frozenset({Phase.STOPPING, Phase.TEARING_DOWN, Phase.SCHEDULING})
"""JobSet gives the old pods their own grace period, which is never shorter, and waits for the same capacity."""
_COMING_UP = frozenset({Phase.STARTING, Phase.RENDEZVOUS, "Resuming"})
"""Processes take equally long to start, whichever controller restarts them."""


def compare(incident: Incident, phases: Sequence[PhaseAccount]) -> PlatformComparison:
    """What the platform's ways would have cost, or why that is not computed."""
    why_not = _not_compared(incident)
    if why_not is not None:
        return PlatformComparison((), why_not)
    spent = sum(phase.idle_gpu_seconds for phase in phases)
    start = _own("start", phases, _COMING_UP, "from pods on their nodes to all ranks together")
    placed = _own("teardownAndScheduling", phases, _PLACED_AGAIN, "until the old pods are gone and the new have nodes")
    ways = (_shipped_runtime(incident, start, spent), _job_set(incident, placed, start, spent))
    return PlatformComparison(ways, None)


def _own(name: str, phases: Iterable[PhaseAccount], among: Set[str], what: str) -> FigureInput:
    seconds = sum(phase.duration_seconds for phase in phases if phase.phase in among)
    return FigureInput(name, round(seconds, 3), "s", Basis.MEASURED, f"this record: {what}")


def _not_compared(incident: Incident) -> NotCompared | None:
    if incident.closing is None or incident.closing.outcome is not Outcome.RECOVERED:
        return NotCompared.NOT_RECOVERED
    if any(attempt.action is AttemptAction.RESTART_IN_PLACE for attempt in incident.attempts):
        return NotCompared.RESTARTED_IN_PLACE
    if not any(attempt.action in JOB_TRIGGERS for attempt in incident.attempts):
        return NotCompared.NOT_RESTARTED_BY_CONTROLLER
    if incident.disruption_class in WITHOUT_BASELINE:
        return NotCompared.NO_BASELINE
    return None if incident.gpus > 0 else NotCompared.NO_GPUS


def _shipped_runtime(incident: Incident, start: FigureInput, spent: float) -> PlatformWay:
    """The lost rank restarts in place. The others hang until their collective times out, and then join it."""
    timed_out = incident.disruption_class == DisruptionClass.COMMUNICATION_FAILURE
    wait = _NO_WAIT if timed_out else _COLLECTIVE_TIMEOUT
    return _way(
        Way.SHIPPED_RUNTIME,
        incident,
        spent,
        seconds=wait.value + start.value,
        formula="gpus * (collectiveTimeout + start)",
        inputs=(wait, start),
        ends_job=incident.ranks >= _RANKS_THAT_END_JOB,
    )


def _job_set(incident: Incident, placed: FigureInput, start: FigureInput, spent: float) -> PlatformWay:
    """The Job fails once its first pod has failed or is evicted, and JobSet recreates the group."""
    lost = _NODE_EVICTION if incident.disruption_class == DisruptionClass.NODE_LOST else _NO_EVICTION
    return _way(
        Way.JOB_SET_FAILURE_POLICY,
        incident,
        spent,
        seconds=lost.value + max(incident.ranks * _SECONDS_PER_POD.value, placed.value) + start.value,
        formula="gpus * (nodeEviction + max(ranks * restartPerPod, teardownAndScheduling) + start)",
        inputs=(lost, _SECONDS_PER_POD, placed, start),
        ends_job=False,
    )


def _way(
    way: Way,
    incident: Incident,
    spent: float,
    *,
    seconds: float,
    formula: str,
    inputs: Iterable[FigureInput],
    ends_job: bool,
) -> PlatformWay:
    own = "this record"
    cost = seconds * incident.gpus
    return PlatformWay(
        way=way,
        basis=Basis.COMPUTED,
        duration_seconds=round(seconds, 3),
        idle_gpu_seconds=round(cost, 3),
        saved_gpu_seconds=round(cost - spent, 3),
        ends_job=ends_job,
        formula=formula,
        inputs=(
            FigureInput("gpus", incident.gpus, "GPUs", Basis.MEASURED, own),
            FigureInput("ranks", incident.ranks, "ranks", Basis.MEASURED, own),
            *inputs,
        ),
    )
