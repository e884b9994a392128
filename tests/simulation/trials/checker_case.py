"""Hand-made evidence for the checkers: a job, its policy and its ledger, as changes of a server that does not run."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import msgspec

from recovery.core.incident.phases import COMING_BACK
from recovery.core.model.facts import GroupKey
from recovery.core.model.group_totals import BudgetState, Totals
from recovery.core.model.ledger import (
    Attempt,
    AttemptAction,
    Closing,
    Incident,
    Ledger,
    Outcome,
    Phase,
    PhaseSpan,
    Target,
)
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer
from recovery.core.model.step import WAITING, Step, StepType
from recovery.ports import (
    EVENTS,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
    ApiRequest,
    Resource,
)
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, Trace, TraceRecord
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial_evidence import Checker, Happening, RequestRecord, TrialEvidence
from recovery.sim.virtual_time import BEGIN

KEY = GroupKey("team-a", "llm")
CONTROLLER = "controller-0"
LABELS = {"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/replicatedjob-name": "node"}
SELECTOR = {"labelSelector": "jobset.sigs.k8s.io/jobset-name=llm"}
GPUS = 16


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def stamp(seconds: float) -> str:
    return at(seconds).strftime("%Y-%m-%dT%H:%M:%SZ")


def written(body: Mapping[str, Any]) -> Body:
    """As decoded from JSON."""
    return cast(Body, msgspec.json.decode(msgspec.json.encode(body)))


class Case:
    """A trial of two hours with one job of two pods. Every method adds one event, at the time in `now`."""

    def __init__(
        self,
        *checkers: Callable[[TrialEvidence], Checker],
        mode: str = "Enforce",
        trained: bool = True,
        policy: bool = True,
    ) -> None:
        job = JobPlan("team-a", "llm", pods=2)
        self.evidence = TrialEvidence(
            plan=TrialPlan(seed=1, jobs=(job,)),
            server=cast(ApiServer, None),
            trace=Trace(),
            jobs={KEY: job},
            began_at=BEGIN,
            healing_from=at(5400),
            ends_at=at(7200),
        )
        self.checker_set = CheckerSet(self.evidence, checkers)
        self.now = 0.0
        self.revision = 100
        self.objects: dict[tuple[str, str], Body] = {}
        self.made = 0
        if policy:
            self.policy(mode)
        self.put(TRAIN_JOBS, "llm", {"spec": {"suspend": False}}, uid="workload")
        self.jobset()
        self.job("job-1")
        for index in (0, 1):
            self.pod(index, "job-1")
            self.runs(index)
        self.now = 20
        if trained:
            self.trace(EventKind.ROUND_FORMED, "job-1")
        self.now = 1000

    # Findings.

    @property
    def found(self) -> list[str]:
        return [violation.sentence for violation in self.checker_set.violations]

    def end(self) -> list[str]:
        self.now = 7200
        self.checker_set.ended()
        return self.found

    # Objects.

    def put(
        self,
        resource: Resource,
        name: str,
        body: Mapping[str, Any],
        *,
        by: str = "user",
        uid: str = "",
        owner: str = "",
    ) -> Body:
        """Create or change an object: `body` has what differs, part by part."""
        before = self.objects.get((resource.plural, name))
        self.revision += 1
        if before is None:
            metadata: dict[str, Any] = {
                "name": name,
                "namespace": "team-a",
                "uid": uid or name,
                "creationTimestamp": stamp(self.now),
                "generation": 1,
            }
            if owner:
                metadata["ownerReferences"] = [{"uid": owner, "name": owner, "controller": True}]
            after: Body = {"metadata": metadata, "spec": {}}
        else:
            after = deepcopy(before)
        for part, value in body.items():
            after[part] = {**after.get(part, {}), **value} if isinstance(value, Mapping) else value
        after["metadata"]["resourceVersion"] = str(self.revision)
        after = written(after)
        self.objects[resource.plural, name] = after
        self._tell("ADDED" if before is None else "MODIFIED", resource, after, before, by)
        return after

    def drop(self, resource: Resource, name: str, *, by: str = "user") -> None:
        self.revision += 1
        before = self.objects.pop((resource.plural, name))
        self._tell("DELETED", resource, before, before, by)

    def delete(self, resource: Resource, name: str, *, by: str = "user") -> None:
        """Request the deletion of an object. It stays until it is dropped."""
        marked = {"deletionTimestamp": stamp(self.now), "deletionGracePeriodSeconds": 0}
        self.put(resource, name, {"metadata": marked}, by=by)

    def _tell(self, type_: Any, resource: Resource, body: Body, before: Body | None, by: str) -> None:
        change = ObjectChange(type_, resource, body, before, self.revision, by)
        self.evidence.changes.append(change)
        self.evidence.change_times.append(at(self.now))
        self.checker_set.changed(change, at(self.now))

    def policy(self, mode: str, **spec: Any) -> None:
        metadata = {"managedFields": [{"time": stamp(self.now), "fieldsV1": {"f:spec": {"f:mode": {}}}}]}
        self.put(RECOVERY_POLICIES, "llm", {"spec": {"mode": mode, **spec}, "metadata": metadata}, uid="policy")

    def jobset(self, **parts: Any) -> None:
        replicated = {"replicatedJobs": [{"name": "node"}]}
        owner = "workload"
        self.put(JOB_SETS, "llm", {"spec": replicated, **parts}, by="jobset-controller", uid="jobset", owner=owner)

    def job(self, uid: str, **spec: Any) -> None:
        """JobSet creates the group's Job."""
        body = {"metadata": {"labels": LABELS}, "spec": {"parallelism": 2, "completions": 2, **spec}}
        self.put(JOBS, "llm-node-0", body, by="jobset-controller", uid=uid, owner="jobset")

    def pod(self, index: int, job_uid: str, *, name: str = "") -> None:
        self.made += 1
        labels = {**LABELS, "batch.kubernetes.io/job-completion-index": str(index)}
        name = name or f"llm-node-0-{index}"
        body = {"metadata": {"labels": labels}, "status": {"phase": "Pending"}}
        self.put(PODS, name, body, by="job-controller", uid=f"pod-{self.made}", owner=job_uid)

    def runs(self, index: int, *others: Mapping[str, Any]) -> None:
        """`others`: the statuses of containers beside the one that trains."""
        ready = {"type": "Ready", "status": str(not others), "lastTransitionTime": stamp(self.now)}
        trains = {
            "name": "node",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": stamp(self.now)}},
        }
        status = {"phase": "Running", "conditions": [ready], "containerStatuses": [*others, trains]}
        self.put(PODS, f"llm-node-0-{index}", {"status": status}, by="kubelet")

    def fails(self, index: int, code: int) -> None:
        ended = {"name": "node", "restartCount": 0, "state": {"terminated": {"exitCode": code}}}
        status = {"phase": "Failed", "conditions": [], "containerStatuses": [ended]}
        self.put(PODS, f"llm-node-0-{index}", {"status": status}, by="kubelet")

    def annotate(self, by: str = "user", suspend: bool | None = None, **annotations: str) -> None:
        """Change our annotations on the TrainJob, with `_` for a dash. Without any, remove all of them."""
        named = {f"recovery.trainjob.dev/{name.replace('_', '-')}": value for name, value in annotations.items()}
        body: dict[str, Any] = {"metadata": {"annotations": named}}
        if suspend is not None:
            body["spec"] = {"suspend": suspend}
        self.put(TRAIN_JOBS, "llm", body, by=by)

    def lose_a_pod(self) -> None:
        self.delete(PODS, "llm-node-0-1")

    def event(self, reason: str, *, by: str = CONTROLLER) -> None:
        involved = {"involvedObject": {"name": "llm", "uid": "job-2"}, "reason": reason}
        self.put(EVENTS, f"event-{self.revision}", involved, by=by)

    # The ledger.

    def ledger(self, ledger: Ledger, *, by: str = CONTROLLER, process: int = 0, **request: Any) -> None:
        """A controller process writes the ledger. `request` changes fields of the recorded request."""
        name = "llm-workload"
        if (RECOVERY_GROUPS.plural, name) not in self.objects:
            reference = {"kind": "TrainJob", "name": "llm", "uid": "workload"}
            self.put(RECOVERY_GROUPS, name, {"spec": {"workloadRef": reference, "group": "llm"}}, by=by)
        version = self.objects[RECOVERY_GROUPS.plural, name]["metadata"]["resourceVersion"]
        self.objects[RECOVERY_GROUPS.plural, name] = {
            key: value for key, value in self.objects[RECOVERY_GROUPS.plural, name].items() if key != "status"
        }
        self.put(RECOVERY_GROUPS, name, {"status": msgspec.to_builtins(ledger)}, by=by)
        swapped = [{"op": "replace", "path": "/metadata/resourceVersion", "value": version}]
        body = request.pop("body", swapped)
        self.request("patch", RECOVERY_GROUPS, name, by=by, process=process, applied=True, body=body, **request)

    def record(self, number: int = 1, *, name: str = "llm-1") -> None:
        reference = {"kind": "TrainJob", "name": "llm", "uid": "workload"}
        ended = closed(opened(1000, number=number), 1005).incident
        assert ended is not None
        assert ended.closing is not None
        spec: dict[str, Any] = {"workloadRef": reference, "group": "llm"}
        spec |= msgspec.to_builtins(msgspec.structs.replace(ended, closing=None)) | msgspec.to_builtins(ended.closing)
        self.put(RECOVERY_INCIDENTS, name, {"spec": spec}, by=CONTROLLER)

    # Requests, processes, happenings.

    def request(
        self,
        verb: str,
        resource: Resource,
        name: str | None = None,
        *,
        by: str = CONTROLLER,
        process: int = 0,
        applied: bool = False,
        body: Any = None,
        query: Mapping[str, str | int] | None = None,
        fault: TrialFault | None = None,
    ) -> None:
        sent = ApiRequest(
            verb, resource, "team-a", name, query=query or {}, body=None if body is None else msgspec.json.encode(body)
        )
        number = len(self.evidence.requests)
        record = RequestRecord(at(self.now), by, process, number, sent, 200, applied, self.revision, fault)
        self.evidence.requests.append(record)
        self.checker_set.requested(record)

    def reads_live(self, *, process: int = 0) -> None:
        """A live read, as before each decision on live facts."""
        self.request("get", JOB_SETS, "llm", process=process)
        self.request("list", JOBS, query=SELECTOR, process=process)
        self.request("list", PODS, query=SELECTOR, process=process)

    def hits(self, kind: FaultKind, *, actor: str = "world", seconds: float = 0.0, **fields: Any) -> None:
        fault = TrialFault(FaultKey(actor, len(self.evidence.happenings), kind), seconds, self.now)
        until = at(self.now + seconds) if seconds else None
        self.evidence.happenings.append(Happening(fault, at(self.now), until, str(kind), **fields))

    def trace(self, kind: EventKind, job_uid: str, index: int | None = None, pod_uid: str = "") -> None:
        record = TraceRecord(at=at(self.now), kind=kind, training="team-a/llm", job_uid=job_uid, step=0)
        self.evidence.trace.add(replace(record, index=index, pod=pod_uid, pod_uid=pod_uid))


# Ledgers.


def opened(seconds: float, *, number: int = 1, mode: str = "Enforce", limit: int = 10, **terms: Any) -> Ledger:
    """A member was lost at that time, and nothing has been done about it."""
    incident = Incident(
        id=f"workload-{number}",
        number=number,
        started_at=at(seconds),
        detected_at=at(seconds),
        disruption_class="PodDeleted",
        cause="PodDeleted",
        mode=mode,
        pinned=PinnedPolicy(
            "llm", "policy", 1, terms.pop("restart", "RecreateGroupOnPodRestart"), limit, 86400.0, 900.0, **terms
        ),
        step=WAITING,
        target=Target("jobset", ("job-1",)),
        gpus=GPUS,
        ranks=2,
        phases=(PhaseSpan(Phase.DETECTED, at(seconds), at(seconds)), PhaseSpan(Phase.DECIDED, at(seconds))),
        message="pod llm-node-0-1 was deleted",
    )
    budget = BudgetState(limit=limit, remaining=limit)
    totals = Totals(incidents=number, failures={"PodDeleted": number})
    return Ledger(phase=Phase.DECIDED, incident=incident, totals=totals, budget=budget, message=incident.message)


def restarted(
    ledger: Ledger,
    seconds: float,
    *,
    job_uid: str = "job-1",
    action: AttemptAction = AttemptAction.RECREATE_GROUP,
    charged: bool = True,
) -> Ledger:
    """The ledger with one more restart. It is charged if no other restart of the incident was."""
    incident = ledger.incident
    assert incident is not None
    epoch = ledger.epoch + 1
    attempt = Attempt(len(incident.attempts) + 1, epoch, action, at(seconds), Reason.DEFAULT_RESTART, incident.message)
    charge = charged and not incident.charged
    totals, budget = ledger.totals, ledger.budget
    totals = msgspec.structs.replace(totals, restarts=totals.restarts + 1, charged=totals.charged + charge)
    if charge:
        budget = msgspec.structs.replace(budget, charges=(*budget.charges, at(seconds)), remaining=budget.remaining - 1)
    incident = msgspec.structs.replace(
        incident,
        attempts=(*incident.attempts, attempt),
        restarts=incident.restarts + 1,
        step=Step(StepType.RETURNING if ledger.phase in COMING_BACK else StepType.RESTARTING),
        target=Target("jobset", (job_uid,)),
        charged=incident.charged or charge,
    )
    return msgspec.structs.replace(ledger, epoch=epoch, incident=incident, totals=totals, budget=budget)


def with_incident(ledger: Ledger, **changes: Any) -> Ledger:
    assert ledger.incident is not None
    return msgspec.structs.replace(ledger, incident=msgspec.structs.replace(ledger.incident, **changes))


def in_phase(ledger: Ledger, phase: Phase) -> Ledger:
    """The ledger in that phase, after a restart if the phase follows one. The time until then is not booked."""
    incident = ledger.incident
    assert incident is not None
    if phase in COMING_BACK and not incident.restarted:
        ledger = restarted(ledger, (incident.started_at - at(0)).total_seconds(), charged=False)
        incident = ledger.current_incident
    spans = (*incident.phases[:-1], PhaseSpan(phase, incident.started_at))
    step = incident.step
    if phase is Phase.HELD and step.type is not StepType.HELD:
        step = Step(StepType.HELD, reason=Reason.BUDGET_EXHAUSTED)
    elif incident.restarts:
        step = Step(StepType.RETURNING if phase in COMING_BACK else StepType.RESTARTING)
    return msgspec.structs.replace(with_incident(ledger, phases=spans, step=step), phase=phase)


def closed(ledger: Ledger, seconds: float, outcome: Outcome = Outcome.RECOVERED, why: str = "AllRanksReady") -> Ledger:
    """The ledger after its incident has ended, with its seconds booked."""
    incident = ledger.incident
    assert incident is not None
    idle = (at(seconds) - incident.started_at).total_seconds() * GPUS
    span = PhaseSpan(ledger.phase, incident.started_at, at(seconds), idle)
    closing = Closing(outcome, Reason(why), at(seconds))
    booked = {**ledger.totals.idle_gpu_seconds}
    booked[ledger.phase] = booked.get(ledger.phase, 0.0) + idle
    by_class = {incident.disruption_class: booked}
    totals = msgspec.structs.replace(ledger.totals, idle_gpu_seconds=booked, idle_gpu_seconds_by_class=by_class)
    changed = msgspec.structs.replace(incident, phases=(*incident.phases[:-1], span), closing=closing)
    return msgspec.structs.replace(ledger, phase=Phase.HEALTHY, incident=changed, totals=totals)


def by_hand(ledger: Ledger, seconds: float, verb: str = "restart") -> Ledger:
    answer = RequestAnswer(verb=verb, at=at(seconds), accepted=True, reason=Reason.RESTARTED_BY_HAND)
    return msgspec.structs.replace(ledger, requests=(*ledger.requests, answer))


def replaces(case: Case) -> None:
    """The Job replaces the lost pod of the rank."""
    case.drop(PODS, "llm-node-0-1", by="kubelet")
    case.pod(1, "job-1")
    case.runs(1)
