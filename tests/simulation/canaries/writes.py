"""Bugs in what is written to the cluster, and when."""

import asyncio

import pytest

from recovery import api_verbs
from recovery.controller.reconciler import Reconciler
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.plan.actions import DeleteJob, DeletePods, FailJobSet, ForceDeletePods, Plan
from recovery.executors import job_failure
from recovery.executors.pod_teardown import PodTeardown
from recovery.ports import JOB_SETS, JOBS, PODS, ApiClient, NotFoundError, Propagation


def create_before_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Job is deleted in the background, as is usual: JobSet creates the next one at once, during the grace period
    of the old pods."""

    async def delete_job(api: ApiClient, namespace: str, action: DeleteJob) -> None:
        try:
            await api_verbs.delete(
                api,
                JOBS,
                action.name,
                namespace=namespace,
                uid=action.uid,
                resource_version=action.resource_version,
                propagation=Propagation.BACKGROUND,
            )
        except NotFoundError:
            return

    monkeypatch.setattr("recovery.executors.group_recreate.delete_job", delete_job)


def force_deletes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old pods are deleted with a grace of 0, to be quick: the objects go at once, but their processes do not."""

    class Force(PodTeardown):
        async def delete_pods(self, namespace: str, action: DeletePods | ForceDeletePods) -> None:
            await super().delete_pods(namespace, ForceDeletePods(action.epoch, action.pods))

    monkeypatch.setattr("recovery.controller.reconciler.PodTeardown", Force)


def failed_jobs_expire(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job is failed as JobSet fails one, and keeps its TTL, so its JobSet expires and Trainer trains it again."""

    async def kept(api: ApiClient, namespace: str, action: FailJobSet) -> object:
        return job_failure._decode(await api_verbs.get(api, JOB_SETS, action.name, namespace=namespace))

    monkeypatch.setattr("recovery.executors.job_failure._kept", kept)
    monkeypatch.setattr("recovery.core.decision.terminal_jobset.fail_job", lambda context, ledger: ())


def action_before_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plan's actions are done first, because they are urgent, and the ledger is written when they have worked."""

    class ActionsFirst(Reconciler):
        async def _carry_out(
            self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, plan: Plan
        ) -> Plan:
            for action in (*plan.first, *plan.actions):
                await self._do(key, workload, action)
            await self._write(key, workload, known, plan.ledger)
            return plan

    monkeypatch.setattr("recovery.controller.runner.Reconciler", ActionsFirst)


def action_beside_ledger(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledger and actions are written in parallel, which saves a round trip: sometimes the action arrives first."""

    class SideBySide(Reconciler):
        async def _carry_out(
            self, key: GroupKey, workload: WorkloadFacts, known: LedgerObject | None, plan: Plan
        ) -> Plan:
            for action in plan.first:
                await self._do(key, workload, action)
            written = asyncio.create_task(self._write(key, workload, known, plan.ledger))
            try:
                for action in plan.actions:
                    await self._do(key, workload, action)
            finally:
                await written
            return plan

    monkeypatch.setattr("recovery.controller.runner.Reconciler", SideBySide)


def deletes_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs and pods are deleted by name, without a precondition: a delete that is late or repeated hits any object that
    has the name by then."""

    async def delete_job(api: ApiClient, namespace: str, action: DeleteJob) -> None:
        try:
            await api_verbs.delete(api, JOBS, action.name, namespace=namespace, propagation=Propagation.FOREGROUND)
        except NotFoundError:
            return

    class ByName(PodTeardown):
        async def delete_pods(self, namespace: str, action: DeletePods | ForceDeletePods) -> None:
            grace_seconds = action.grace_seconds if isinstance(action, DeletePods) else 0
            for pod in action.pods:
                try:
                    await api_verbs.delete(self._api, PODS, pod.name, namespace=namespace, grace_seconds=grace_seconds)
                except NotFoundError:
                    continue

    monkeypatch.setattr("recovery.executors.group_recreate.delete_job", delete_job)
    monkeypatch.setattr("recovery.controller.reconciler.PodTeardown", ByName)


def holds_for_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """The Lease is believed to make this process the only leader of the cluster, not of its namespace."""
    monkeypatch.setattr("recovery.controller.other_controllers.OtherControllers.first", lambda _self: None)
