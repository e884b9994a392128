"""Two installations, each with a Lease of its own: the controller with the younger one holds while the other acts."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from recovery import api_verbs
from recovery.controller.leadership_guard import LeadershipTerm
from recovery.controller.lease import LEASE_NAME
from recovery.core.model.ledger import Ledger
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.model.writer_lease import WriterLease
from recovery.ports import JOBS, LEASES, ApiError, ApiRequest, ForbiddenError, NotFoundError, NotLeadingError
from recovery.sim.virtual_time import VirtualClock, virtual_time
from tests.unit.controller.fakes import LedgersApi
from tests.unit.controller.runner_scene import ONE, PinnedPolicy, Scene
from tests.unit.core.world import at
from tests.unit.fake_api import sent

DURATION = 15
HELD = 3 * DURATION
OURS = WriterLease("recovery-system", "lease-b", at(0), DURATION)
OLDER = WriterLease("ml-infra", "lease-a", at(-3600), DURATION)
YOUNGER = WriterLease("ml-infra", "lease-c", at(60), DURATION)


class Leases(LedgersApi):
    """Serves the Leases of other installations, by namespace."""

    def __init__(self) -> None:
        super().__init__()
        self.leases: dict[str, dict[str, Any]] = {}
        self.lease_error: ApiError | None = None
        self.lease_reads = 0

    async def answer(self, request: ApiRequest) -> bytes:
        asked = sent(request)
        if asked.verb != "get" or asked.resource != LEASES:
            return await super().answer(request)
        self.lease_reads += 1
        if self.lease_error is not None:
            raise self.lease_error
        if asked.namespace not in self.leases or asked.name != LEASE_NAME:
            raise NotFoundError("no such Lease", status=404)
        return json.dumps(self.leases[asked.namespace]).encode()

    def renew(self, lease: WriterLease, uid: str = "") -> None:
        spec = {"holderIdentity": "pod-1", "renewTime": VirtualClock().now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")}
        self.leases[lease.namespace] = {"metadata": {"resourceVersion": "1", "uid": uid or lease.uid}, "spec": spec}


class Elected(PinnedPolicy):
    """Leads from the start, by the Lease `OURS`."""

    def __init__(self) -> None:
        super().__init__()
        self.won.set()

    async def acquire(self) -> LeadershipTerm:
        term = await super().acquire()
        term.lease = OURS
        return term


class Two(Scene):
    """Our controller, and what another one writes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(monkeypatch, ONE, leadership=Elected())
        self.leases = Leases()
        self.controller._others._api = self.leases
        self._version = 1

    def write(self, lease: WriterLease | None, *, message: str = "", uid: str = "group-1") -> LedgerObject:
        """A controller of that Lease writes the ledger, and the cache shows it."""
        self._version += 1
        said = message or f"write {self._version}"
        ledger = Ledger(message=said, writer=lease)
        self.store.ledgers[:] = [
            LedgerObject("one-uid", "ml", uid, str(self._version), "uid", "one", ledger),
        ]
        return self.store.ledgers[0]

    def reconciled(self) -> None:
        """A reconcile of ours decides on the ledger in the cache."""
        for ledger in self.store.ledgers:
            self.controller._others.saw(ledger)

    @property
    def acts(self) -> bool:
        return self.controller._duty is not None

    @asynccontextmanager
    async def renewing(self, lease: WriterLease) -> AsyncIterator[None]:
        async def renew() -> None:
            while True:
                self.leases.renew(lease)
                await asyncio.sleep(2)

        task = asyncio.create_task(renew())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


Said = list[MutableMapping[str, Any]]


@pytest.fixture
def said() -> Iterator[Said]:
    with capture_logs() as lines:
        yield lines


# --- which of the two holds ------------------------------------------------------------------------------------------


@virtual_time
async def test_the_younger_holds_from_the_write_of_the_older_for_three_durations(
    monkeypatch: pytest.MonkeyPatch, said: Said
) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        assert two.acts
        two.write(OLDER)
        two.reconciled()
        await asyncio.sleep(0.01)
        assert not two.acts
        assert (two.ears.leads, two.ears.holds) == ([True, False], [True])
        await asyncio.sleep(HELD - 1)
        assert not two.acts
        await asyncio.sleep(DURATION)
        assert two.acts
        assert two.ears.holds == [True, False]
    warnings = [line["event"] for line in said if line["log_level"] == "warning"]
    assert warnings[0].startswith("two controllers write: the other one has the Lease of namespace ml-infra")
    assert "it holds" in warnings[1]


@virtual_time
async def test_each_write_of_the_older_prolongs_the_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        for _ in range(10):
            two.write(OLDER)
            await asyncio.sleep(DURATION)
            assert not two.acts


@virtual_time
async def test_the_older_acts_on_and_says_so(monkeypatch: pytest.MonkeyPatch, said: Said) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        two.write(YOUNGER)
        two.reconciled()
        await asyncio.sleep(HELD)
        assert two.acts
        assert two.ears.holds == []
    assert ["younger: that controller holds" in line["event"] for line in said if line["log_level"] == "warning"] == [
        True
    ]


@virtual_time
@pytest.mark.parametrize(
    "writer",
    [None, OURS, msgspec.structs.replace(OURS, uid="lease-0", created_at=at(0) - timedelta(days=9))],
    ids=["no election", "our own", "our Lease before it was deleted"],
)
async def test_a_hand_over_or_an_older_version_stops_nothing(
    writer: WriterLease | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        two.write(writer)
        two.reconciled()
        await asyncio.sleep(1)
        assert two.acts


def test_two_leases_of_one_second_have_an_order_that_both_controllers_know() -> None:
    twin = msgspec.structs.replace(OURS, namespace="ml-infra", uid="lease-z")
    assert OURS.older_than(twin)
    assert not twin.older_than(OURS)


# --- what is no sign of life -----------------------------------------------------------------------------------------


@virtual_time
async def test_ledgers_that_a_removed_installation_has_left_stop_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    two.write(OLDER)
    async with two.running():
        await asyncio.sleep(600)
        assert two.acts
        assert two.leases.lease_reads == 1, "its Lease does not exist"


@virtual_time
async def test_an_annotation_on_such_a_ledger_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    two.write(OLDER, message="left behind")
    async with two.running():
        await asyncio.sleep(1)
        two.write(OLDER, message="left behind")
        two.reconciled()
        await asyncio.sleep(1)
        assert two.acts


@virtual_time
async def test_a_cache_that_lags_behind_a_live_read_shows_no_new_write(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        stale = two.write(OLDER)
        two.controller._others.saw(two.write(OLDER))
        two.store.ledgers[:] = [stale]
        await asyncio.sleep(HELD + DURATION)
        assert two.acts


# --- its Lease -------------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_renewed_lease_that_a_ledger_names_is_a_sign_of_life_also_before_the_first_write(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = Two(monkeypatch)
    two.write(OLDER)
    async with two.renewing(OLDER), two.running():
        await asyncio.sleep(DURATION)
        assert not two.acts
        await asyncio.sleep(3600)
        assert not two.acts
    two.leases.leases.clear()


@virtual_time
async def test_the_hold_ends_three_durations_after_the_other_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        async with two.renewing(OLDER):
            two.write(OLDER)
            await asyncio.sleep(3600)
            assert not two.acts
        await asyncio.sleep(HELD + DURATION)
        assert two.acts


@virtual_time
async def test_a_lease_that_was_deleted_and_made_again_is_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other controller now has the younger Lease. Neither holds for ever for a Lease that does not exist."""
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        async with two.renewing(OLDER):
            two.write(OLDER)
            await asyncio.sleep(600)
        async with two.renewing(YOUNGER):
            two.write(YOUNGER)
            await asyncio.sleep(HELD + DURATION)
            assert two.acts


@virtual_time
async def test_without_the_right_to_read_leases_only_ledgers_count(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    two.leases.lease_error = ForbiddenError("forbidden", status=403)
    async with two.renewing(OLDER), two.running():
        await asyncio.sleep(1)
        for seconds in (0, 600):
            await asyncio.sleep(seconds)
            two.write(OLDER)
            two.reconciled()
            await asyncio.sleep(1)
            assert not two.acts
            await asyncio.sleep(HELD + DURATION)
            assert two.acts
        assert two.leases.lease_reads == 2, "it asks again only after another write"


@virtual_time
async def test_a_lease_that_no_ledger_names_stops_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenant may create such a Lease in a namespace of its own."""
    two = Two(monkeypatch)
    two.write(OURS)
    async with two.renewing(OLDER), two.running():
        await asyncio.sleep(600)
        assert two.acts


@virtual_time
async def test_a_fleet_with_one_controller_costs_no_request(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    two.write(OURS)
    async with two.running():
        await asyncio.sleep(3600)
    assert two.leases.lease_reads == 0


# --- how it holds ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_nothing_is_written_from_the_moment_in_which_a_reconcile_sees_the_other_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two = Two(monkeypatch)
    async with two.running():
        await asyncio.sleep(1)
        two.write(OLDER)
        two.reconciled()
        with pytest.raises(NotLeadingError, match="the older Lease"):
            await api_verbs.delete(two.apis[0], JOBS, "one-node-0", namespace="ml")


@virtual_time
async def test_it_keeps_its_lease_and_ends_at_once_when_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    two = Two(monkeypatch)
    async with two.renewing(OLDER), two.running() as task:
        await asyncio.sleep(1)
        two.write(OLDER)
        await asyncio.sleep(600)
        assert not two.acts
        assert not task.done()
        two.stop.set()
        await asyncio.sleep(0.1)
        assert task.done()
