import pytest

from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.world import Group, HeldStore, SetClock


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store() -> HeldStore:
    return HeldStore()


@pytest.fixture
def metrics(clock: SetClock, store: HeldStore) -> Telemetry:
    telemetry = Telemetry(clock=clock, version="1.2.3")
    telemetry.follow(store)
    telemetry.leadership_changed(leads=True)
    return telemetry


@pytest.fixture
def group(clock: SetClock, store: HeldStore, metrics: Telemetry) -> Group:
    """A group that reports every write of its ledger to the metrics."""
    return Group(clock, store, metrics)
