"""A workload as `status` shows it: its row, and the row as cells of a table or as data."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from recovery.cli.applied_policy import AppliedPolicy, policy_of
from recovery.cli.controller_lease import Leader
from recovery.cli.formatting import Cell, Narrowing, TerminalTable, age, moment
from recovery.cli.next_step import Need, NextStep, need_of, next_step, to_judge
from recovery.cli.proof_words import proof_cell
from recovery.cli.readiness import BROKEN, PAUSED, STARTING, UNREADABLE, Readiness, readiness_of
from recovery.cli.step_words import step_cell, step_data, step_to_pass
from recovery.core.decision.protection import protection
from recovery.core.diagnosis.group_conditions import UNDECODABLE
from recovery.core.incident import budget, sizes
from recovery.core.incident.preconditions import paused
from recovery.core.model.annotations import PAUSED_ANNOTATION, RESUME_AT_ANNOTATION
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.facts import GroupKey, Snapshot, WorkloadFacts
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.protection import Protection
from recovery.core.model.reason import Reason, explained
from recovery.core.model.sentence import Sentence
from recovery.core.model.standing import Broken, Standing
from recovery.core.model.training_steps import TrainingStep
from recovery.core.plan.suspension import in_force, marked_by
from recovery.core.policy.selection import PolicySet
from recovery.core.sentences import render
from recovery.core.sentences.protection import remedy, sentence
from recovery.core.sentences.standing import sentence_of
from recovery.kube.cluster_reader import Fleet
from recovery.report.enforce_words import enforce_account
from recovery.report.proof_account import ProofAccount, proof_account

HEADER = ("JOB", "PHASE", "CAUSE", "SINCE", "IDLE-GPUS", "PROTECTED", "NEXT")
WIDE_HEADER = (
    *HEADER,
    "STEP",
    "ACTION",
    "RESTARTS",
    "BUDGET",
    "LAST-PROVEN",
    "POLICY",
    "KIND",
    "AGE",
    "REMEDY",
    "REASON",
)
_WIDTHS = {
    "NAMESPACE": Narrowing(12, 9),
    "JOB": Narrowing(24, 8),
    "CAUSE": Narrowing(14, 8),
    "IDLE-GPUS": Narrowing(5, 5),
    "PROTECTED": Narrowing(12, 9),
    "NEXT": Narrowing(21, 9),
}
"""The columns that may become narrower. At the least widths the table fits 80 columns."""

MEANT_TO_RUN = frozenset({"Healthy", "NoPolicy", PAUSED, BROKEN})
"""The phases of a job without an open incident that is not suspended. It runs, hangs, or has not started."""

IN_PART = "in part"
"""Shown instead of `no`: rules that charge nothing still restart the group."""

GONE = "Deleted"
"""The phase of a job that existed at the previous reading."""

_STYLES = {
    "Healthy": "green",
    "Complete": "green",
    "Suspended": "dim",
    "NoPolicy": "dim",
    "Deleting": "dim",
    GONE: "dim",
    "Failed": "bold red",
    "Held": "bold red",
    BROKEN: "bold red",
    UNREADABLE: "bold red",
}
_STYLE_OF_INCIDENTS = "yellow"
_STYLE_OF_UNPROTECTED = "yellow"


class JobRow(msgspec.Struct, frozen=True):
    """One TrainJob, or one JobSet that nothing controls."""

    namespace: str
    job: str
    kind: str
    phase: str
    """The phase of the open incident. Without one: Healthy or Broken, that the job has not started, or why it is not
    watched."""
    standing: Standing | None
    """Whether the program trains. None: the job is not meant to run."""
    cause: str
    """The first that applies: what keeps the job from starting, or which node is silent; the size of a group with fewer
    nodes than it wants; EarlierLoss, for a loss before Enforce that may hang the job, or TrainsAgain, for a failed job
    that trains again; the cause of the open or last incident, Drill for that of a drill. Empty: none applies. Phase
    Paused hides the last two."""
    action: str
    idle_gpus: int
    """The idle GPUs of the open incident, those of a group that hangs without one, or the GPUs that pods already hold
    while the job has not started."""
    restarts: int
    budget_left: int | None
    """None: no policy applies, so there is no budget."""
    budget_limit: int | None
    policy_kind: str
    policy: str
    mode: str
    paused: bool
    suspended_by: str
    """The incident for which the controller has suspended the workload. Empty: it has not."""
    resume_at: datetime | None
    """When that suspension is due to end. None: this is not known yet, or there is no suspension."""
    next_attempt_at: datetime | None
    created_at: datetime
    since: datetime | None
    """When the open incident began, else since when the job is in its phase. Broken: when the first rank ended. None:
    not known, as for a pause."""
    reason: str
    """The latest reason in its ledger. Empty: nothing has been decided."""
    message: str
    """The sentence that belongs to the cause. Empty: no incident ever was, and there is nothing else to report."""
    next_step: NextStep
    need: Need
    protection: Protection
    """Whether a loss starts a recovery, and if not, why not."""
    enforce_estimate: EnforceEstimate
    """The estimate for its incidents in mode Observe."""
    leader: Leader
    """Whether a controller leads."""
    proof: ProofAccount | None
    """The latest proof that the job recovers. None: there is none."""
    nodes: int | None = None
    """The nodes of an elastic group that wants more. None: it has all of them."""
    wanted_nodes: int | None = None
    """How many nodes that group wants."""
    quota_reserved: bool = False
    """Kueue keeps quota reserved for all nodes that the group wants."""
    training_step: TrainingStep | None = None
    """The training step in its ledger. None: no agent has reported one, or there is no ledger."""
    step_to_pass: int | None = None
    """The training step at which a failure stopped the ranks. None: no incident waits for it."""

    @property
    def suspended(self) -> bool:
        """Users, Kueue or the controller have suspended the job."""
        return self.phase == "Suspended" or bool(self.suspended_by)


def by_need(rows: Iterable[JobRow]) -> list[JobRow]:
    """The rows in the order of `Need`, which begins with jobs that wait for a person. Then by idle GPUs, most first."""
    return sorted(rows, key=lambda row: (row.need, -row.idle_gpus, row.namespace, row.job))


def gone(row: JobRow) -> JobRow:
    """The row of a job that no longer exists."""
    return msgspec.structs.replace(row, phase=GONE, since=None, next_step=NextStep(), need=Need.OVER)


def rows_of(fleet: Fleet, leader: Leader, now: datetime) -> dict[GroupKey, JobRow]:
    """The rows, sorted by namespace and name, without the facts that only pods and nodes show."""
    return {key: _fleet_row(fleet, key, leader, now) for key in sorted(fleet.workloads)}


def with_readiness(
    rows: Mapping[GroupKey, JobRow], fleet: Fleet, snapshots: Mapping[GroupKey, Snapshot], now: datetime
) -> dict[GroupKey, JobRow]:
    """The rows, completed from snapshots. `snapshots`: those of the groups that are meant to run."""
    seen = {key: _fleet_row(fleet, key, rows[key].leader, now, snapshot) for key, snapshot in snapshots.items()}
    return {key: seen.get(key, row) for key, row in rows.items()}


def _fleet_row(fleet: Fleet, key: GroupKey, leader: Leader, now: datetime, snapshot: Snapshot | None = None) -> JobRow:
    workload = fleet.workloads[key]
    group, laid_down = fleet.groups.get(workload.uid), fleet.policy_set(key.namespace)
    return job_row(key, workload, group, laid_down, leader, now, snapshot)


def job_row(
    key: GroupKey,
    workload: WorkloadFacts,
    group: LedgerObject | None,
    laid_down: PolicySet,
    leader: Leader,
    now: datetime,
    snapshot: Snapshot | None = None,
) -> JobRow:
    """The row of one job. `group` None: there never was an incident. `laid_down`: the policies for the job's namespace.
    `snapshot` None: only the workload and its ledger are known."""
    selection = policy_of(laid_down, workload)
    ledger = group.ledger if group is not None and group.readable else None
    policy = selection.policy
    left = limit = None
    if policy is not None:
        limit = policy.budget_limit
        left = limit if ledger is None else budget.remaining(ledger.budget, limit, policy.budget_window, now)
    ours = in_force(workload)
    phase, seen = _phase(workload, group, selection), Readiness()
    if snapshot is not None and phase in MEANT_TO_RUN:
        seen = readiness_of(snapshot, workload, ledger, selection.decides, now)
    # The last incident belongs to an earlier run. Beside the phase of this run it would look like its cause.
    last = ledger if ledger is not None and not seen.phase else Ledger()
    size = ledger.elastic if ledger is not None else None
    found = leader.protects(protection(workload, snapshot, group, selection.decides, now))
    broken = last.broken if phase in MEANT_TO_RUN else None
    shown, known = _shown_phase(workload, phase, seen, broken), ledger or Ledger()
    silent = bool(seen.cause and not seen.phase) and shown != BROKEN
    resumes_at = resume_at(workload) if ours else None
    for_a_person = to_judge(last) if phase in MEANT_TO_RUN else None
    before = for_a_person.type if for_a_person is not None else last.cause
    if shown == PAUSED:
        before = ""
    return JobRow(
        namespace=key.namespace,
        job=key.name,
        kind=workload.kind,
        phase=shown,
        standing=_standing(phase, known, seen),
        cause=before if shown == BROKEN else seen.cause or _size_words(last) or before,
        action=last.action,
        idle_gpus=broken.gpus if broken is not None else seen.idle_gpus or last.idle_gpus,
        restarts=ledger.totals.restarts if ledger is not None else 0,
        budget_left=left,
        budget_limit=limit,
        policy_kind=selection.kind,
        policy=selection.name,
        mode=("Invalid" if selection.error is not None else str(policy.mode) if policy is not None else ""),
        paused=paused(workload),
        suspended_by=(marked_by(workload) or "") if ours else "",
        resume_at=resumes_at,
        next_attempt_at=ledger.next_attempt_at if ledger is not None else None,
        created_at=workload.created_at,
        since=_since(shown, workload, known),
        reason=str(last.reason or ""),
        message=_message(shown, workload, seen, broken, found)
        or _restrained_words(last)
        or (for_a_person.message if for_a_person is not None else "")
        or _smaller_words(last, workload)
        or last.message,
        next_step=next_step(shown, known, found, resumes_at=resumes_at, suspended=ours, silent=silent),
        need=need_of(shown, known, found, suspended=ours, silent=silent),
        protection=found,
        enforce_estimate=ledger.totals.enforce_estimate if ledger is not None else EnforceEstimate(),
        nodes=size.nodes if size is not None else None,
        wanted_nodes=size.wanted_nodes if size is not None else None,
        leader=leader,
        proof=proof_account(known),
        training_step=known.training_step,
        step_to_pass=step_to_pass(known),
        quota_reserved=size is not None and sizes.quota_kept(workload, size.wanted_nodes) is not None,
    )


def _message(shown: str, workload: WorkloadFacts, seen: Readiness, broken: Broken | None, found: Protection) -> str:
    """What a pause, the pods or the standing say. Empty: nothing beyond the ledger."""
    hangs = sentence_of(broken) if broken is not None else ""
    if shown == PAUSED:
        return _paused_words(workload, hangs or seen.reason)
    return f"{hangs} {remedy(found)}".rstrip() if shown == BROKEN else seen.reason


def _paused_words(workload: WorkloadFacts, more: str) -> str:
    said = workload.annotations[PAUSED_ANNOTATION]
    why = f"paused by annotation{'' if said == 'true' else f': {said}'}"
    return f"{why}; {more}" if more else why


def _standing(phase: str, ledger: Ledger, seen: Readiness) -> Standing | None:
    """The standing in the ledger, unless a silent node makes it unknown. None: the job is not meant to run."""
    open_ = ledger.incident is not None and ledger.incident.closing is None
    if phase not in MEANT_TO_RUN and not open_:
        return None
    return Standing.UNKNOWN if seen.silent and ledger.standing is not Standing.BROKEN else ledger.standing


def _size_words(ledger: Ledger) -> str:
    """The size of a group with fewer nodes than it wants. Empty: it has all of them, or an incident is open."""
    size = ledger.elastic
    if size is None or ledger.incident is not None:
        return ""
    return f"{size.nodes}/{size.wanted_nodes} nodes"


def _smaller_words(ledger: Ledger, workload: WorkloadFacts) -> str:
    """The sentence about such a group. Empty: it has all of its nodes, or an incident is open."""
    size = ledger.elastic
    if size is None or ledger.incident is not None:
        return ""
    quota = sizes.quota_kept(workload, size.wanted_nodes) or ""
    return render(
        explained(
            Sentence.RUNS_SMALLER,
            Reason.WAITING_FOR_ROOM,
            nodes=size.nodes,
            wanted=size.wanted_nodes,
            since=moment(size.since),
            quota=quota,
        )
    )


def _restrained_words(ledger: Ledger) -> str:
    """The controller's message about objects of the group that it cannot read. Empty: it can read all."""
    said = next((each for each in ledger.conditions if each.type == UNDECODABLE and each.status == "True"), None)
    return said.message if said is not None else ""


def ledger_problem(group: LedgerObject | None) -> str:
    """Why the ledger cannot be used; empty if it can, or if there is none yet."""
    if group is None or group.readable:
        return ""
    if group.schema_version > SCHEMA_VERSION:
        return (
            f"RecoveryGroup {group.name} has schemaVersion {group.schema_version}, this version knows {SCHEMA_VERSION}"
        )
    return f"RecoveryGroup {group.name}: {group.ledger.message}"


def resume_at(workload: WorkloadFacts) -> datetime | None:
    """When our suspension ends, by the annotation. None: this is not known yet, or it cannot be read."""
    try:
        found = datetime.fromisoformat(workload.annotations.get(RESUME_AT_ANNOTATION, ""))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _phase(workload: WorkloadFacts, group: LedgerObject | None, selection: AppliedPolicy) -> str:
    if group is not None and not group.readable:
        return UNREADABLE
    if group is not None and group.ledger.incident is not None and group.ledger.incident.closing is None:
        return str(group.ledger.phase)
    if workload.deleting_since is not None:
        return "Deleting"
    for ended in ("Complete", "Failed"):
        if workload.condition(ended) is not None:
            return ended
    if workload.suspended:
        return "Suspended"
    return "Healthy" if selection.name else "NoPolicy"


def _shown_phase(workload: WorkloadFacts, phase: str, seen: Readiness, broken: Broken | None) -> str:
    """The phase, with what pods show, a pause and the standing. An incident, or what keeps a job from starting, hides
    the pause. The pause hides that the group hangs, because it has to end first."""
    shown = seen.phase or phase
    if paused(workload) and phase in MEANT_TO_RUN and shown in {"Healthy", STARTING}:
        return PAUSED
    return BROKEN if broken is not None and shown == "Healthy" else shown


def _since(phase: str, workload: WorkloadFacts, ledger: Ledger) -> datetime | None:
    open_ = ledger.incident
    if phase in {UNREADABLE, PAUSED}:
        return None
    if open_ is not None and open_.closing is None:
        return open_.started_at
    if phase == BROKEN and ledger.broken is not None:
        return ledger.broken.since
    if phase == "Deleting":
        return workload.deleting_since
    condition = workload.condition(phase)  # Complete, Failed, Suspended
    if condition is not None:
        return condition.since
    resumed = [each.since for each in workload.conditions if (each.type, each.status) == ("Suspended", "False")]
    ended = [open_.closing.ended_at] if open_ is not None and open_.closing is not None else []
    last = [each.ended_at for each in ledger.history[:1]] if phase in MEANT_TO_RUN else []
    return max([workload.created_at, *ended, *last, *(at for at in resumed if at is not None)])


def as_data(row: JobRow) -> dict[str, Any]:
    """The data for `-o json` and `-o yaml`. A field that is null is not known or does not apply."""
    return {
        "namespace": row.namespace,
        "job": row.job,
        "kind": row.kind,
        "phase": row.phase,
        "standing": None if row.standing is None else str(row.standing),
        "cause": row.cause,
        "action": row.action,
        "idleGPUs": row.idle_gpus,
        "size": _size_data(row),
        "restarts": row.restarts,
        "trainingStep": step_data(row.training_step),
        "budget": {"remaining": row.budget_left, "limit": row.budget_limit},
        "proof": msgspec.to_builtins(row.proof),
        "policy": {"kind": row.policy_kind, "name": row.policy, "mode": row.mode},
        "paused": row.paused,
        "suspendedBy": row.suspended_by,
        "resumeAt": stamp(row.resume_at),
        "nextAttemptAt": stamp(row.next_attempt_at),
        "nextStep": {
            "message": row.next_step.what,
            "at": stamp(row.next_step.at),
            "otherwise": row.next_step.otherwise,
            "command": row.next_step.command(row.job, row.namespace),
        },
        "createdAt": stamp(row.created_at),
        "since": stamp(row.since),
        "reason": row.reason,
        "message": row.message,
        "withEnforce": msgspec.to_builtins(enforce_account(row.enforce_estimate)),
        "protection": {
            "protected": row.protection.protected,
            "reason": str(row.protection.reason),
            "message": sentence(row.protection),
            "remedy": remedy(row.protection),
            "stillRecovered": _still_recovered_data(row.protection),
        },
        "controller": {"leads": row.leader.leads, "message": row.leader.detail},
    }


def _still_recovered_data(found: Protection) -> dict[str, Any] | None:
    """The losses that still restart the group. None: none does, or all do."""
    if not found.free_rules and not found.free_preemptions:
        return None
    return {"rules": list(found.free_rules), "preemptions": found.free_preemptions}


def _size_data(row: JobRow) -> dict[str, Any] | None:
    """None: the group has all of its nodes."""
    if row.nodes is None:
        return None
    return {"nodes": row.nodes, "wantedNodes": row.wanted_nodes, "quotaReserved": row.quota_reserved}


def stamp(at: datetime | None) -> str | None:
    """RFC 3339."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def table(*, wide: bool, with_namespace: bool) -> TerminalTable:
    """A wide table has sentences, and is as wide as they are. The other one fits the terminal."""
    header = WIDE_HEADER if wide else HEADER
    columns = ("NAMESPACE", *header) if with_namespace else header
    return TerminalTable(columns, None if wide else tuple(map(_WIDTHS.get, columns)))


def cells_of(row: JobRow, now: datetime, *, wide: bool, with_namespace: bool) -> tuple[Cell, ...]:
    """The cells of a row, in the order of the headers."""
    namespace = row.namespace if with_namespace else ""
    step = row.next_step
    narrow = (
        *((Cell(row.namespace),) if with_namespace else ()),
        Cell(row.job),
        Cell(row.phase, _STYLES.get(row.phase, _STYLE_OF_INCIDENTS)),
        Cell(row.cause),
        Cell(age(row.since, now) if row.since is not None else ""),
        Cell(str(row.idle_gpus)),
        Cell(_protection_words(row.protection), _STYLE_OF_UNPROTECTED if row.protection.protected is False else ""),
        Cell(step.words(step.command(row.job, namespace), now), short=step.short_words(now)),
    )
    if not wide:
        return narrow
    more = (
        step_cell(row.training_step, row.step_to_pass),
        row.action,
        str(row.restarts),
        f"{row.budget_left}/{row.budget_limit}" if row.budget_limit is not None else "",
        proof_cell(row.proof, now),
        _policy_words(row),
        row.kind,
        age(row.created_at, now),
        remedy(row.protection),
        row.message,
    )
    return (*narrow, *map(Cell, more))


def _protection_words(found: Protection) -> str:
    """Empty: the job needs no protection now."""
    if found.protected is None:
        return ""
    if found.free_rules:
        return f"{IN_PART}: {found.reason}"
    return "yes" if found.protected else f"no: {found.reason}"


def _policy_words(row: JobRow) -> str:
    words = ",".join(part for part in (row.mode, "paused" if row.paused else "") if part)
    return f"{row.policy}({words})" if words else row.policy
