"""Bugs in decisions."""

import sys
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta

import msgspec
import pytest

from recovery.core.decision import backoff
from recovery.core.decision.guards import ASKED, Guard, Move
from recovery.core.decision.on_the_way import say_after_a_while
from recovery.core.diagnosis import matching, trained
from recovery.core.diagnosis.classify import Disruption, Finding
from recovery.core.diagnosis.evidence import Evidence
from recovery.core.diagnosis.matching import Answer
from recovery.core.diagnosis.training_container import SelectedBy, Selection
from recovery.core.incident import budget, preconditions
from recovery.core.model.annotations import SUSPENDED_BY_ANNOTATION
from recovery.core.model.earlier_failures import Handled
from recovery.core.model.facts import JobFacts, PodFacts, Snapshot, WorkloadFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Explanation, Reason, as_said
from recovery.core.model.rules import Rule, When
from recovery.core.plan import parts
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.kube import first_deletions


def no_native_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Job's and the JobSet's own policies are ignored: the controller handles every loss."""

    def none(snapshot: Snapshot, evidence: Iterable[Evidence], *, ignored_stay: bool = False) -> None:
        return None

    monkeypatch.setattr("recovery.core.diagnosis.native_policies.decision", none)
    monkeypatch.setattr("recovery.core.diagnosis.native_policies.takes_down", none)


def no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any sign of a loss that has not been handled is a failure: also from before the policy, from before the group has
    trained, or from long ago. It counts even if all ranks have met since."""

    def fresh(
        snapshot: Snapshot, evidence: Iterable[Evidence], *, since: datetime | None, handled: Handled, now: datetime
    ) -> tuple[Evidence, ...]:
        return tuple(item for item in evidence if item.key not in handled.keys)

    monkeypatch.setattr("recovery.core.decision.decide.fresh", fresh)
    asked = tuple(guard for guard in ASKED[Move.FIRST] if guard is not Guard.MET)
    monkeypatch.setattr("recovery.core.decision.guards.ASKED", {**ASKED, Move.FIRST: asked})


def sizes_of_users_are_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Job that its user has resized is restarted in the size of the template."""

    def resized(snapshot: Snapshot) -> None:
        return None

    monkeypatch.setattr("recovery.core.decision.settings.resized", resized)
    monkeypatch.setattr("recovery.core.incident.sizes.resized", resized)


def pods_by_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run begins when the Job says that it was resumed: older pods belong to the run before."""

    def younger(job: JobFacts, pods: Iterable[PodFacts]) -> tuple[PodFacts, ...]:
        began = trained.began_at(job)
        return tuple(pod for pod in pods if pod.job_uid == job.uid and pod.created_at >= began)

    _replace_pods_of_run(monkeypatch, younger)


def all_pods_are_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """All pods of a Job belong to its present run, because they have its UID. Nor is it kept which of them the Job has
    deleted on purpose, because that alone shows most earlier runs."""
    monkeypatch.setattr(first_deletions, "_let_go", lambda pod, _before: pod)

    def of_uid(job: JobFacts, pods: Iterable[PodFacts]) -> tuple[PodFacts, ...]:
        return tuple(pod for pod in pods if pod.job_uid == job.uid)

    _replace_pods_of_run(monkeypatch, of_uid)


def _replace_pods_of_run(
    monkeypatch: pytest.MonkeyPatch, planted: Callable[[JobFacts, Iterable[PodFacts]], tuple[PodFacts, ...]]
) -> None:
    """In all modules that ask which pods are of a run: an answer that only some of them get is another bug."""
    right = trained.pods_of_run

    def wrong(job: JobFacts, pods: Iterable[PodFacts], remembered: datetime | None = None) -> tuple[PodFacts, ...]:
        del remembered
        return planted(job, pods)

    for module in list(sys.modules.values()):
        if getattr(module, "pods_of_run", None) is right:
            monkeypatch.setattr(module, "pods_of_run", wrong)


def any_progress_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any progress that the TrainJob reports counts as new."""

    def told(context: ReconcileContext, ledger: Ledger) -> datetime | None:
        return context.now if context.workload.progress is not None else None

    monkeypatch.setattr("recovery.core.decision.resuming._progressed_at", told)


def announced_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that reports 0 % when it starts counts as one that has made a step."""
    monkeypatch.setattr("recovery.core.decision.resuming._announces", lambda *_: False)


def all_containers_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rank is a pod: it runs when all of its containers run, and is lost with any of them."""

    def select(job: JobFacts, workload: WorkloadFacts | None) -> Selection:
        return Selection(SelectedBy.ANNOTATION, tuple(container.name for container in job.containers))

    monkeypatch.setattr("recovery.kube.snapshots.select", select)
    monkeypatch.setattr("recovery.kube.group_objects.select", select)


def no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Job without pods is waited for without a limit: its controller will create them."""

    def wait(reconcile: ReconcileContext, ledger: Ledger, job: JobFacts) -> Plan:
        return say_after_a_while(
            reconcile, ledger, as_said(Reason.WAITING_FOR_PODS, f"waiting for the pods of Job {job.name}")
        )

    monkeypatch.setattr("recovery.core.decision.on_the_way._watch_for_pods", wait)


def suspension_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our mark is an annotation, but is looked up among the labels: every suspension seems to be the user's."""

    def marked_by(workload: WorkloadFacts) -> str | None:
        return workload.labels.get(SUSPENDED_BY_ANNOTATION)

    monkeypatch.setattr("recovery.core.plan.suspension.marked_by", marked_by)


def resumed_is_suspended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The condition Suspended counts by its presence, and a job that was resumed keeps it with the status False. So the
    losses of a job that once was suspended are left to the client that suspends it."""

    def unwatched(snapshot: Snapshot, workload: WorkloadFacts) -> Explanation | None:
        if any(condition.type == "Suspended" for condition in workload.conditions):
            return preconditions.suspended(workload)
        return preconditions.unwatched(snapshot, workload)

    monkeypatch.setattr("recovery.core.decision.decide.unwatched", unwatched)


def suspensions_are_all_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller suspends jobs itself, so an incident continues while its job is suspended, no matter by whom."""

    def in_force(workload: WorkloadFacts) -> bool:
        return workload.suspended

    monkeypatch.setattr("recovery.core.plan.suspension.in_force", in_force)


def deadlines_are_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """A backoff suspends every job to free its GPUs, so what counts from the last resume starts over each time."""

    def not_ours(reconcile: ReconcileContext) -> str | None:
        return None

    monkeypatch.setattr("recovery.core.plan.suspension.not_ours", not_ours)


def first_attempts_never_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """`backoff.minInterval` counts between the attempts of one incident only. The first attempt comes at once."""
    right = backoff.earliest

    def earliest(ledger: Ledger, now: datetime, *, in_a_row: bool = True) -> backoff.Earliest:
        if not ledger.current_incident.attempts:
            ledger = msgspec.structs.replace(ledger, restart_ended_at=None)
        return right(ledger, now, in_a_row=in_a_row)

    monkeypatch.setattr(backoff, "earliest", earliest)


def every_exit_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pod that has ended is matched against the rules, first rule first. It does not matter whether its end is
    the consequence of another loss, nor whether its message says so."""

    def ask(rules: tuple[Rule, ...], disruption: Disruption, snapshot: Snapshot, now: datetime) -> Answer:
        for rule in rules:
            for finding in disruption.findings:
                alone = Disruption((msgspec.structs.replace(finding, cascade=False),))
                answer = matching_ask((rule,), alone, snapshot, now)
                if answer.match is not None:
                    return answer
        return matching_ask(rules, disruption, snapshot, now)

    def of_itself(finding: Finding, when: When, snapshot: Snapshot) -> bool:
        return False

    matching_ask = matching.ask
    monkeypatch.setattr("recovery.core.diagnosis.matching.ask", ask)
    monkeypatch.setattr("recovery.core.diagnosis.matching._is_secondary", of_itself)


def ignored_but_charged(monkeypatch: pytest.MonkeyPatch) -> None:
    """An incident costs budget, whatever is done about it, so an ignored incident is charged too."""
    leave = parts.stand_aside

    def stand_aside(ledger: Ledger, why: Explanation, now: datetime) -> Ledger:
        after = leave(ledger, why, now)
        open_ = after.current_incident
        limit, window = open_.pinned.budget_limit, timedelta(seconds=open_.pinned.budget_window_seconds)
        if open_.charged or open_.mode != "Enforce" or budget.remaining(after.budget, limit, window, now) <= 0:
            return after
        return msgspec.structs.replace(
            after,
            totals=msgspec.structs.replace(after.totals, charged=after.totals.charged + 1),
            budget=budget.charge(after.budget, limit, window, now),
            incident=msgspec.structs.replace(open_, charged=True),
        )

    monkeypatch.setattr("recovery.core.decision.judging.stand_aside", stand_aside)
