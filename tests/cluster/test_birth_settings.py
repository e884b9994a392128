"""What `manifests/components/birth-settings` allows the controller's own account, and what it does on an API server.

`tests/contract` tests how the policy changes Jobs. These tests have their own control plane, without nodes, because the
first one installs the component half-way.
"""

import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest
import pytest_asyncio
import structlog

from recovery import api_verbs
from recovery.controller.clock import SystemClock
from recovery.core.model.birth_settings import BirthOutcome, BirthSettings
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.ledger import Ledger
from recovery.core.plan.actions import TryBirth
from recovery.executors.birth_settings import try_birth
from recovery.executors.status import LedgerWriter
from recovery.kube.client import KubeApiClient
from recovery.kube.http import HttpTransport
from recovery.kube.session import open_session
from recovery.ports import JOB_SETS, JOBS, ApiClient, RefusedError
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings
from tests.cluster.patience import GUARD_SECONDS
from tests.cluster.scene import Object, apply, install, install_component

pytestmark = pytest.mark.central

NAMESPACE = "team-a"
SINCE = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


@dataclass
class Place:
    """A suspended JobSet, as the controller's account sees it."""

    control_plane: ControlPlane
    api: ApiClient
    job_set: Object

    @property
    def workload(self) -> WorkloadFacts:
        meta = self.job_set["metadata"]
        at = datetime.fromisoformat(meta["creationTimestamp"])
        return WorkloadFacts("JobSet", meta["name"], meta["uid"], meta["resourceVersion"], meta["generation"], at)

    def settings(self, revision: int) -> BirthSettings:
        return BirthSettings(revision, self.workload.uid, "node", SINCE, nodes=3)

    async def trial(self, settings: BirthSettings, *, until: BirthOutcome | None = None) -> BirthOutcome:
        """The outcome. `until`: try until it is this one, because the API server notices policies and roles late."""
        clock = SystemClock()
        for _ in range(int(GUARD_SECONDS)):
            found = await try_birth(self.api, NAMESPACE, TryBirth("llm", settings))
            if until in {None, found.outcome}:
                break
            await clock.sleep(1)
        return found.outcome


@asynccontextmanager
async def as_controller(control_plane: ControlPlane) -> AsyncIterator[ApiClient]:
    kubeconfig = await control_plane.kubeconfig_for_service_account("recovery-system", "recovery-controller")
    clock = SystemClock()
    async with open_session(kubeconfig=str(kubeconfig)) as session:
        yield KubeApiClient(HttpTransport(session, clock=clock), clock=clock, entropy=random.Random(1))


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(toolbox: Toolbox) -> AsyncIterator[Place]:
    async with placed(ControlPlaneSettings(), toolbox) as found:
        yield found


@asynccontextmanager
async def placed(settings: ControlPlaneSettings, toolbox: Toolbox) -> AsyncIterator[Place]:
    """A place on its own control plane."""
    async with ControlPlane.start(settings, toolbox) as control_plane:
        await install(control_plane)
        await control_plane.kubectl("create", "namespace", NAMESPACE)
        await apply(control_plane, NAMESPACE, job_set())
        found = json.loads(await control_plane.kubectl("get", "jobset", "llm", "-n", NAMESPACE, "-o", "json"))
        async with as_controller(control_plane) as api:
            yield Place(control_plane, api, found)


def job_set() -> Object:
    pods = {"restartPolicy": "Never", "containers": [{"name": "node", "image": "pytorch"}]}
    job = {"parallelism": 4, "completions": 4, "completionMode": "Indexed", "template": {"spec": pods}}
    replicated = [{"name": "node", "template": {"spec": job}}]
    spec = {"suspend": True, "replicatedJobs": replicated}
    return {"apiVersion": JOB_SETS.api_version, "kind": "JobSet", "metadata": {"name": "llm"}, "spec": spec}


async def test_without_the_component_ledgers_are_written_without_a_label_and_settings_do_nothing(place: Place) -> None:
    writer = LedgerWriter(place.api)
    with structlog.testing.capture_logs() as said:
        known = await writer.write(NAMESPACE, place.workload, None, Ledger(epoch=1))
        for epoch in (2, 3):
            ledger = Ledger(epoch=epoch, birth_settings=place.settings(epoch))
            known = await writer.write(NAMESPACE, place.workload, known, ledger)
    assert (known.labelled, known.ledger.epoch) == (False, 3)
    assert [line["log_level"] for line in said] == ["warning"]
    assert "cannot patch resource" in said[0]["error"]
    assert await place.trial(place.settings(3)) is BirthOutcome.NOT_ALLOWED

    await install_component(place.control_plane, "birth-settings")
    # The role works at once, and the policy a moment later. The policy then finds no label.
    assert await place.trial(place.settings(3), until=BirthOutcome.NOT_APPLIED) is BirthOutcome.NOT_APPLIED
    ledger = Ledger(epoch=4, birth_settings=place.settings(4))
    known = await writer.write(NAMESPACE, place.workload, known, ledger)
    assert known.labelled
    assert await place.trial(place.settings(4), until=BirthOutcome.APPLIED) is BirthOutcome.APPLIED
    known = await writer.write(NAMESPACE, place.workload, known, Ledger(epoch=5))
    assert not known.labelled
    assert await place.trial(place.settings(4), until=BirthOutcome.NOT_APPLIED) is BirthOutcome.NOT_APPLIED


def job(name: str) -> Object:
    body = job_set()["spec"]["replicatedJobs"][0]["template"]["spec"]
    spec = {**body, "suspend": True}
    return {"apiVersion": JOBS.api_version, "kind": "Job", "metadata": {"name": name}, "spec": spec}


async def refusal(place: Place) -> RefusedError:
    """The refusal of a Job without dry run. The API server notices the policy a moment after its installation."""
    clock = SystemClock()
    for number in range(int(GUARD_SECONDS)):
        try:
            await api_verbs.create(place.api, JOBS, job(f"one-{number}"), namespace=NAMESPACE)
        except RefusedError as error:
            return error
        await clock.sleep(1)
    raise AssertionError("Jobs are created")


async def test_the_controller_may_create_jobs_in_dry_runs_only_and_others_as_ever(place: Place) -> None:
    await install_component(place.control_plane, "birth-settings")
    assert await place.trial(place.settings(1), until=BirthOutcome.NOT_APPLIED) is BirthOutcome.NOT_APPLIED
    refused = await refusal(place)
    assert (refused.status, type(refused)) == (403, RefusedError), "it says that nothing is wrong with the role"
    assert "ValidatingAdmissionPolicy 'recovery-dry-runs-only'" in str(refused)
    assert "creates no Jobs" in str(refused)
    await api_verbs.create(place.api, JOBS, job("one-dry"), namespace=NAMESPACE, dry_run=True)
    applied = ("apply", "--server-side", "--as=system:serviceaccount:recovery-system:recovery-controller")
    with pytest.raises(KubectlError, match="creates no Jobs"):
        await place.control_plane.kubectl(*applied, "-n", NAMESPACE, "-f", "-", stdin=json.dumps(job("one-applied")))
    await apply(place.control_plane, NAMESPACE, job("of-another"))
    names = await place.control_plane.kubectl("get", "jobs", "-n", NAMESPACE, "-o", "name")
    assert {"job.batch/llm-node-0", "job.batch/of-another"} <= set(names.split())
    assert not {"job.batch/one-dry", "job.batch/one-applied"} & set(names.split())
