"""The RecoveryDrills of a workload, as the watch and the controller's own writes show them."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.model.facts import GroupKey
from recovery.kube.drill_index import DrillIndex
from recovery.kube.projections.drills import decode_drill

NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)


def body(name: str = "one", *, version: str = "10", uid: str = "", age: int = 0, named: int = 0, **spec: Any) -> bytes:
    created = NOW - timedelta(seconds=age)
    metadata = {"name": name, "namespace": "ml", "uid": uid or f"uid-{name}", "resourceVersion": version}
    workload = {"kind": "TrainJob", "name": "llm", "uid": "llm-1"}
    written = {"workloadRef": workload, "experiment": "x", "expiresAt": NOW + timedelta(hours=1), **spec}
    return msgspec.json.encode(
        {"metadata": {**metadata, "creationTimestamp": created}, "spec": written, "status": {"named": named}}
    )


class Heard:
    def __init__(self) -> None:
        self.groups: list[GroupKey] = []
        self.index = DrillIndex(notify=self.groups.append)

    def watch(self, raw: bytes) -> None:
        self.index.put(decode_drill(raw))

    def named(self) -> list[tuple[str, int]]:
        return [(each.name, each.status.named) for each in self.index.of("ml", "llm-1")]


def test_an_objective_that_is_no_duration_cannot_be_decoded() -> None:
    with pytest.raises(ValueError, match=r"spec\.slo\.recovery"):
        decode_drill(body(slo={"recovery": "soon"}))


def test_the_drills_of_a_workload_are_listed_oldest_first_and_wake_its_group() -> None:
    heard = Heard()
    heard.watch(body("new", age=1))
    heard.watch(body("old", age=9))
    assert heard.named() == [("old", 0), ("new", 0)]
    assert heard.groups == [GroupKey("ml", "llm")] * 2
    assert heard.index.of("other", "llm-1") == ()


def test_a_late_event_does_not_take_back_what_a_write_has_shown() -> None:
    """The pod may be lost before the watch shows that it is named."""
    heard = Heard()
    heard.watch(body(version="10"))
    heard.index.saw(decode_drill(body(version="12", named=1)).value)
    heard.watch(body(version="11"))
    assert heard.named() == [("one", 1)]


def test_a_new_drill_of_the_same_name_replaces_the_old_one() -> None:
    heard = Heard()
    heard.watch(body(version="12", named=1))
    heard.watch(body(version="11", uid="another"))
    assert heard.named() == [("one", 0)]


def test_a_deleted_drill_names_nothing() -> None:
    heard = Heard()
    heard.watch(body())
    heard.index.drop(decode_drill(body()))
    assert (heard.named(), heard.index.all()) == ([], ())


@pytest.mark.parametrize("date", ["2026-11-28T12:00:00", "0001-01-01T00:00:00Z", "9999-01-01T00:00:00Z"])
def test_a_date_with_which_nothing_can_be_computed_is_refused(date: str) -> None:
    with pytest.raises(ValueError, match="expiresAt"):
        decode_drill(body(expiresAt=date))
