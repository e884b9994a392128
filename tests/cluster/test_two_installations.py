"""Two installations, each with a Lease and a leader, on one cluster: the one with the younger Lease holds.

Both reach the API server through one proxy, as the shipped ServiceAccount.
"""

from pathlib import Path

import pytest

from tests.cluster.acts import lose
from tests.cluster.api_proxy import ApiProxy, SeenRequest
from tests.cluster.conftest import StartsController, StartsTraining
from tests.cluster.controller_record import recovery, scrape
from tests.cluster.controlplane.start import ControlPlane
from tests.cluster.scene import LEASE_SECONDS, ControllerProcess, until
from tests.cluster.test_runbooks import with_config

pytestmark = [pytest.mark.central, pytest.mark.usefixtures("no_complaints")]
RANKS = 4
ROLE = "recovery-leader"


def deletes_of_jobs(proxy: ApiProxy) -> list[SeenRequest]:
    """The triggers that the API server has accepted."""
    return [each for each in proxy.requests if (each.method, each.resource, each.status) == ("DELETE", "jobs", 200)]


def renewals(proxy: ApiProxy) -> list[SeenRequest]:
    return [each for each in proxy.requests if each.is_write and each.resource == "leases"]


async def may_elect(control_plane: ControlPlane, namespace: str) -> None:
    """Give the shipped ServiceAccount its rights on the Lease in that namespace, as a second installation has them."""
    rights = ("--verb=get,create,patch", "--resource=leases.coordination.k8s.io")
    account = "--serviceaccount=recovery-system:recovery-controller"
    await control_plane.kubectl("create", "role", ROLE, *rights, "-n", namespace)
    await control_plane.kubectl("create", "rolebinding", ROLE, f"--role={ROLE}", account, "-n", namespace)


async def test_the_younger_of_two_holds_and_says_so_until_the_other_is_gone(
    installed: ControlPlane,
    namespace: str,
    training: StartsTraining,
    controller: StartsController,
    proxy: ApiProxy,
    tmp_path: Path,
) -> None:
    await may_elect(installed, namespace)
    job = await training(ranks=RANKS, gpus=1)
    kubeconfig = proxy.write_kubeconfig(tmp_path / "kubeconfig-of-the-second")
    log, elsewhere = tmp_path / "controller-second.log", ("--lease-namespace", namespace)
    async with with_config(installed), controller() as older:
        # The Lease of the second one is to be younger by a whole second: the API server dates no finer.
        await until("the first has renewed its Lease", lambda: len(renewals(proxy)) > LEASE_SECONDS * 3)
        async with ControllerProcess.running(kubeconfig, log, options=elsewhere, warm=True) as younger:
            await lose(job, 1)
            await job.closed_incidents(1)
            await until("the younger holds", lambda: "it holds" in last_words(younger))
            assert older.leads()
            assert len(deletes_of_jobs(proxy)) == 1
            waits = ("wait", "--for=condition=SecondInstallation", "recoveryconfig/default", "--timeout=60s")
            await installed.kubectl(*waits)
            samples = await scrape(younger)
            assert samples.sum("recovery_holds_for_another_controller") == 1
            assert samples.sum("recovery_leader") == 0
            told = (await recovery("status", "-n", namespace, "--kubeconfig", str(installed.kubeconfig))).err
            both = f"recovery-system/recovery-controller, {namespace}/recovery-controller"
            assert f"2 controllers are elected, by the Leases {both}" in told
            assert (await job.ledger())["writer"]["namespace"] == "recovery-system"

            await lose(job, 2)
            await job.closed_incidents(2)
            assert len(deletes_of_jobs(proxy)) == 2
            assert "it holds" in last_words(younger), "it holds as long as the other one renews its Lease"

            await older.kill()
            await until("the younger acts again", younger.leads)
            await lose(job, 3)
            await job.closed_incidents(3)
            assert len(deletes_of_jobs(proxy)) == 3
            ledger = await job.ledger()
            assert ledger["writer"]["namespace"] == namespace
            assert (ledger["epoch"], ledger["totals"]["charged"], ledger["totals"]["incidents"]) == (3, 3, 3)


def last_words(process: ControllerProcess) -> str:
    """What it last said about its leadership."""
    said = (str(line.get("msg", "")) for line in reversed(process.lines()))
    return next((text for text in said if text.startswith(("leading", "no longer leading: "))), "")
