"""Bugs in what is decided."""

from collections.abc import Iterable
from datetime import datetime

import pytest

from recovery.core.evidence import Evidence
from recovery.core.facts import JobFacts, Snapshot, WorkloadFacts
from recovery.core.ledger import Handled, Ledger
from recovery.core.look import Look
from recovery.core.plan import Plan
from recovery.core.policy import SUSPENDED_BY_ANNOTATION
from recovery.core.restart import say_after_a_while


def no_native_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Job's and the JobSet's own policies are not asked: every loss is ours to mend."""

    def none(snapshot: Snapshot, evidence: Iterable[Evidence]) -> str | None:
        return None

    monkeypatch.setattr("recovery.core.native.decision", none)
    monkeypatch.setattr("recovery.core.native.takes_down", none)


def no_baseline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever sign of a loss has not been handled is a failure: from before the policy, before the group has trained,
    or long settled."""

    def fresh(
        snapshot: Snapshot, evidence: Iterable[Evidence], *, since: datetime | None, handled: Handled, now: datetime
    ) -> tuple[Evidence, ...]:
        return tuple(item for item in evidence if item.key not in handled.keys)

    monkeypatch.setattr("recovery.core.decide.fresh", fresh)


def no_watchdog(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new Job without pods is waited for: its controller will make them."""

    def wait(look: Look, ledger: Ledger, job: JobFacts) -> Plan:
        return say_after_a_while(look, ledger, f"waiting for the pods of Job {job.name}")

    monkeypatch.setattr("recovery.core.restart._watch_for_pods", wait)


def suspension_is_the_user_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our mark is an annotation, and is looked for among the labels: whoever is suspended was suspended by a user."""

    def marked_by(workload: WorkloadFacts) -> str | None:
        return workload.labels.get(SUSPENDED_BY_ANNOTATION)

    monkeypatch.setattr("recovery.core.suspension.marked_by", marked_by)
