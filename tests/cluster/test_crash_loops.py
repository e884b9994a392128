"""A JobSet that restarts its group without a limit: the controller cannot hold it back, and says how to stop it.

It also tests the page RecoveryCrashLoop.
"""

import pytest
import yaml

from recovery.ports import TRAIN_JOBS
from tests.cluster.acts import exit_rank, second_is_over, until_condition
from tests.cluster.conftest import MakesRuntime, StartsController, StartsTraining
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.runbook import Shell, walked
from tests.cluster.scene import REPOSITORY, Fleet, Job, Object
from tests.cluster.test_runbooks import explained, section

pytestmark = pytest.mark.central

LIMIT = 2
CRASHES = 4
ANY_EXIT = {"rules": [{"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": [143]}}]}
WITHOUT_LIMIT: Object = {
    "maxRestarts": 2,
    "rules": [
        {
            "name": "again",
            "action": "RestartJobSetAndIgnoreMaxRestarts",
            "onJobFailureReasons": ["PodFailurePolicy"],
        }
    ],
}
"""Lint case 84."""


def looping() -> Object:
    """The shipped prepared runtime, whose Job fails with each crash, and whose JobSet restarts it then."""
    body = yaml.safe_load((REPOSITORY / "policies" / "runtime-prepared.yaml").read_text())
    spec: Object = body["spec"]
    jobset = spec["template"]["spec"]
    jobset["failurePolicy"] = WITHOUT_LIMIT
    [replicated] = jobset["replicatedJobs"]
    job = replicated["template"]["spec"]
    job |= {"backoffLimit": 0, "podFailurePolicy": ANY_EXIT}
    job["template"]["spec"]["terminationGracePeriodSeconds"] = 1
    return spec


async def loops(job: Job) -> bool:
    conditions = (await job.ledger()).get("conditions", [])
    return any((each["type"], each["status"]) == ("CrashLoop", "True") for each in conditions)


async def test_a_crash_loop_that_the_jobset_keeps_up_is_shown_with_what_stops_it(
    installed: ControlPlane,
    toolbox: Toolbox,
    fleet: Fleet,
    runtime: MakesRuntime,
    training: StartsTraining,
    controller: StartsController,
) -> None:
    job = await training(runtime=await runtime(looping()), ranks=2, gpus=1, budget={"limit": LIMIT, "window": "24h"})
    async with controller():
        for crashes in range(1, CRASHES + 1):
            await second_is_over()
            await exit_rank(job, 1, 1)
            closed = await job.closed_incidents(crashes)
            assert (closed[0]["outcome"], closed[0].get("charged", False)) == ("Recovered", False)
            await job.trains(past=fleet.world.step_of(job.training))
            assert await loops(job) == (crashes > LIMIT)
        assert "charges" not in (await job.ledger())["budget"]

        async with walked(Shell(installed, toolbox), "RecoveryCrashLoop", job) as page:
            shown = await page.look()
            why = section(shown, "Crash loop")
            assert "has action RestartJobSetAndIgnoreMaxRestarts, which maxRestarts does not limit" in why
            assert f"to stop it, set spec.suspend: true in TrainJob {job.name}" in why
            assert shown.split("NODES\n")[1].count("Exit1 ") == CRASHES
            node = fleet.nodes[-1]
            assert f"node {node} is quarantined" in await page.do("recovery quarantine", NODE=node)
            await page.shell.run(f"recovery release {node}")
            assert "neither do the restarts by others" in await page.do("recovery reset-budget")
            assert "\nCrash loop:\n" not in await explained(page)
            await page.do("kubectl patch trainjob")
        await until_condition(job, TRAIN_JOBS, "Suspended")
