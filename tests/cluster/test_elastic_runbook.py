"""Runs every command of the runbook RecoveryFewerNodes, on a group that has twelve of sixteen nodes."""

import pytest

from tests.cluster.acts import set_room
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.elastic import ELASTIC, PREPARED, room_for, runs_with, shrunk
from tests.cluster.runbook import Shell, walked
from tests.cluster.scene import Fleet

pytestmark = pytest.mark.usefixtures("no_complaints", "component")
PATIENT = {**ELASTIC, "elastic": {**ELASTIC["elastic"], "growBackAfter": "10m"}}


async def test_the_page_about_a_group_with_fewer_nodes(
    installed: ControlPlane, toolbox: Toolbox, training: StartsTraining, controller: StartsController, fleet: Fleet
) -> None:
    job = await training(runtime=PREPARED, **PATIENT)
    async with room_for(fleet, job), controller():
        rack = await shrunk(job, 1)
        async with walked(Shell(installed, toolbox), "RecoveryFewerNodes", job) as page:
            shown = await page.look()
            assert "runs with 12 of 16 nodes: there is no room for more pods" in shown
            assert "12 of 16 nodes since" in shown
            assert "MutatingAdmissionPolicyBinding recovery-birth-settings is installed" in shown
            assert "No resources found" in await page.do("kubectl get nodes")
            assert "uncordon" in await page.do("kubectl uncordon", NODE=rack[0])
            await page.do("recovery release", NODE=rack[0])

            await set_room(fleet, rack, room=True)
            uid = await job.child_uid()
            assert "patched" in await page.do("kubectl patch job", CHILD=job.child)
            assert "not charged to the budget" in await page.do("recovery restart")
            await runs_with(job, 16, since_uid=uid)
            await job.closed_incidents(2)
            assert "elastic" not in await job.ledger()

            await set_room(fleet, await shrunk(job, 3), room=True)
            uid = await job.child_uid()
            assert "patched" in await page.do("kubectl patch recoverypolicy", POLICY="default")
            await runs_with(job, 16, since_uid=uid)
            await job.closed_incidents(4)
