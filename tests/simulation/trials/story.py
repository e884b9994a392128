"""Evidence of a trial written by hand, in order of time."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Literal, cast

import msgspec

from recovery.controller.lease import LEASE_NAME
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger
from recovery.ports import LEASES, PODS, RECOVERY_GROUPS, ApiRequest, Resource
from recovery.sim.api.server import ApiServer
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, Trace, TraceRecord
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.plan import JobPlan, TrialPlan
from recovery.sim.trials.trial_evidence import (
    FailedReconcile,
    Happening,
    ProcessLife,
    RequestRecord,
    TrialEvidence,
    Violation,
)
from recovery.sim.virtual_time import BEGIN

LLM = JobPlan("team-a", "llm", pods=4, policy={"mode": "Enforce"})
LEADER = "controller-0"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


class Story:
    def __init__(self, *jobs: JobPlan) -> None:
        plan = TrialPlan(seed=1, jobs=jobs or (LLM,))
        self.evidence = TrialEvidence(
            plan=plan,
            server=cast("ApiServer", None),
            trace=Trace(),
            jobs={GroupKey(job.namespace, job.name): job for job in plan.jobs},
            began_at=BEGIN,
            healing_from=at(plan.active_seconds),
            ends_at=at(plan.active_seconds + plan.healing_seconds),
        )
        self._ledgers: dict[str, dict[str, Any]] = {}

    def happens(self, seconds: float, kind: FaultKind, sentence: str, job: str = "team-a/llm") -> None:
        fault = TrialFault(FaultKey("world", len(self.evidence.happenings), kind), at_seconds=seconds, job=job)
        self.evidence.happenings.append(Happening(fault, at(seconds), None, sentence))

    def ledger(self, seconds: float, ledger: Ledger, job: str = "llm", actor: str = LEADER) -> None:
        """Write the RecoveryGroup's status as the production client does."""
        uid = f"uid-of-{job}"
        body = {
            "metadata": {"namespace": "team-a", "name": f"{job}-{uid}"},
            "spec": {"workloadRef": {"kind": "TrainJob", "name": job, "uid": uid}},
            "status": msgspec.json.decode(msgspec.json.encode(ledger)),
        }
        self.change(seconds, "MODIFIED", RECOVERY_GROUPS, body, self._ledgers.get(uid), actor)
        self._ledgers[uid] = body

    def change(
        self,
        seconds: float,
        what: Literal["ADDED", "MODIFIED", "DELETED"],
        resource: Resource,
        body: dict[str, Any],
        before: dict[str, Any] | None = None,
        actor: str = "job-controller",
    ) -> None:
        self.evidence.changes.append(ObjectChange(what, resource, body, before, len(self.evidence.changes), actor))
        self.evidence.change_times.append(at(seconds))

    def pod(self, seconds: float, what: Literal["ADDED", "DELETED"], index: int, job: str = "llm") -> None:
        labels = {"jobset.sigs.k8s.io/jobset-name": job}
        body = {"metadata": {"namespace": "team-a", "name": f"{job}-node-0-{index}", "labels": labels}}
        self.change(seconds, what, PODS, body)

    def request(
        self,
        seconds: float,
        verb: str,
        resource: Resource,
        name: str | None = None,
        *,
        namespace: str | None = "team-a",
        body: object = None,
        query: Mapping[str, str] | None = None,
        subresource: str = "",
        code: int | None = 200,
        applied: bool | None = None,
        fault: FaultKind | None = None,
        actor: str = LEADER,
    ) -> None:
        request = ApiRequest(
            verb=verb,
            resource=resource,
            namespace=namespace,
            name=name,
            subresource=subresource,
            query=query or {},
            body=msgspec.json.encode(body) if body is not None else None,
        )
        number = len(self.evidence.requests)
        self.evidence.requests.append(
            RequestRecord(
                at=at(seconds),
                actor=actor,
                process=0,
                number=number,
                request=request,
                code=code,
                applied=request.writes if applied is None else applied,
                revision=number,
                fault=TrialFault(FaultKey(actor, number, fault)) if fault is not None else None,
            )
        )

    def leads(self, seconds: float, holder: str) -> None:
        body = [{"op": "add", "path": "/spec", "value": {"holderIdentity": holder}}]
        self.request(
            seconds, "patch", LEASES, LEASE_NAME, namespace="recovery-system", body=body, actor=holder[:12] or LEADER
        )

    def process(self, started: float, ended: float | None = None, how: str = "") -> None:
        number = len(self.evidence.processes)
        ended_at = at(ended) if ended is not None else None
        self.evidence.processes.append(ProcessLife(LEADER, number, at(started), ended_at, how))

    def reconcile_fails(self, seconds: float, error: str) -> None:
        self.evidence.failed_reconciles.append(FailedReconcile(at(seconds), LEADER, GroupKey("team-a", "llm"), error))

    def trains(self, seconds: float, kind: EventKind, step: int, index: int | None = None) -> None:
        record = TraceRecord(at=at(seconds), kind=kind, training="team-a/llm", job_uid="job", step=step, index=index)
        self.evidence.trace.add(record)


def violation(seconds: float, sentence: str = "two charges") -> Violation:
    return Violation("OneCharge", at(seconds), sentence, GroupKey("team-a", "llm"))
