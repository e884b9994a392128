"""Birth settings by the webhook, on an API server without mutating admission policies, such as Kubernetes 1.35.

The webhook meets the expectations of the policy in `tests/contract`. It is served as the controller's ServiceAccount,
with only the rights of `manifests/admission/birth-settings/self-made`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pytest
import pytest_asyncio

from recovery.core.model.birth_settings import BirthOutcome
from recovery.core.model.ledger import Ledger
from recovery.executors.status import LedgerWriter
from tests.cluster.controlplane.build import Toolbox
from tests.cluster.controlplane.ports import PortClaims
from tests.cluster.controlplane.start import ControlPlaneSettings
from tests.cluster.test_birth_settings import NAMESPACE, Place, placed, refusal
from tests.cluster.webhooks import SYSTEM, Webhooks
from tests.contract import test_birth_settings as contract
from tests.contract.expectations import Expectation, expectation_of
from tests.contract.real import TOGETHER, begun, stage_on

pytestmark = pytest.mark.central

EXPECTATIONS = [found for each in vars(contract).values() if (found := expectation_of(each)) is not None]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def place(toolbox: Toolbox) -> AsyncIterator[Place]:
    async with placed(ControlPlaneSettings(emulated_version="1.35"), toolbox) as found:
        yield found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def webhooks(place: Place) -> AsyncIterator[Webhooks]:
    """Webhooks that are registered."""
    claims = PortClaims()
    kubeconfig = await place.control_plane.kubeconfig_for_service_account(SYSTEM, "recovery-controller")
    registered = Webhooks(place.control_plane, kubeconfig, claims.claim())
    await registered.register("self-made")
    await registered.register("birth-settings/self-made")
    yield registered
    claims.close()


async def test_while_no_one_serves_jobs_are_created_as_their_template_says(place: Place, webhooks: Webhooks) -> None:
    ledger = Ledger(epoch=1, birth_settings=place.settings(1))
    known = await LedgerWriter(place.api).write(NAMESPACE, place.workload, None, ledger)
    assert known.labelled
    assert "recovery-dry-runs-only" in str(await refusal(place))
    assert await place.trial(place.settings(1)) is BirthOutcome.NOT_APPLIED
    async with webhooks.served():
        assert await place.trial(place.settings(1), until=BirthOutcome.APPLIED) is BirthOutcome.APPLIED
    assert await place.trial(place.settings(1)) is BirthOutcome.NOT_APPLIED


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def outcomes(webhooks: Webhooks) -> AsyncIterator[Mapping[str, asyncio.Task[None]]]:
    """The tasks of all expectations, which start together, by key."""
    async with (
        webhooks.served(),
        stage_on(webhooks.control_plane) as stage,
        begun(stage, EXPECTATIONS, TOGETHER) as tasks,
    ):
        yield tasks


@pytest.mark.parametrize("expectation", EXPECTATIONS, ids=lambda expectation: expectation.name)
async def test_the_webhook_does_as_the_policy(
    outcomes: Mapping[str, asyncio.Task[None]], expectation: Expectation
) -> None:
    await outcomes[expectation.key]
