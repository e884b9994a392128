"""A drill leaves a node as it found it, apart from what others have changed meanwhile."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from recovery.core.drill.node_marks import (
    CORDON_MANAGER,
    NodePatch,
    UnreadableMarkError,
    mark_of,
    marking,
    parsed_mark,
    refusal,
    undoing,
)
from recovery.core.model.drill import DRILL_CONDITION_TYPE, NODE_MARK_ANNOTATION, MarkedTaint, NodeMark
from recovery.ports import NODES, PatchKind
from recovery.sim.api.kinds.nodes import node_kind
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from tests.unit.cli.cluster import Middle, StoppedClock

TAINT = MarkedTaint("recovery.trainjob.dev/drill", "NoSchedule", "lose-a-rank")
OTHER_TAINT = {"key": "team/maintenance", "effect": "NoSchedule"}
MARK = NodeMark("research", "lose-a-rank-x7k2p", "uid-1", datetime(2026, 11, 2, 10, tzinfo=UTC))
CHANGES = {
    "cordon": msgspec.structs.replace(MARK, cordon=True),
    "taint": msgspec.structs.replace(MARK, taint=TAINT),
    "condition": msgspec.structs.replace(MARK, condition=True),
}
EVERYTHING = msgspec.structs.replace(MARK, cordon=True, taint=TAINT, condition=True)


class OneNode:
    """A node in the modelled API server, which keeps managedFields of it."""

    def __init__(self, **spec: Any) -> None:
        kind = replace(node_kind(), tracks_managers=True)
        self.server = ApiServer([kind], clock=StoppedClock(), entropy=Middle())
        body = {"metadata": {"name": "gpu-1", "annotations": {"team/owner": "ml"}}, "spec": spec}
        with self.server.acting("kubelet"):
            self.server.create(NODES, body)

    @property
    def body(self) -> Any:
        return self.server.get(NODES, "gpu-1")

    def state(self) -> Any:
        """The node without its version and its managers."""
        metadata = {
            name: value
            for name, value in self.body["metadata"].items()
            if name not in {"resourceVersion", "managedFields"}
        }
        return {**self.body, "metadata": metadata}

    def apply(self, patch: NodePatch, *, manager: str = CORDON_MANAGER) -> None:
        with self.server.acting(manager):
            self.server.patch(
                NODES, "gpu-1", list(patch.operations), kind=PatchKind.JSON, subresource=patch.subresource
            )

    def mark(self, wanted: NodeMark) -> None:
        assert refusal(self.body, wanted) == ""
        self.apply(marking(self.body, wanted))
        if wanted.condition:
            condition = {"type": DRILL_CONDITION_TYPE, "status": "True"}
            self.change({"status": {"conditions": [condition]}}, subresource="status")

    def change(self, patch: Any, *, by: str = "jane", subresource: str = "") -> None:
        with self.server.acting(by):
            self.server.patch(NODES, "gpu-1", patch, kind=PatchKind.STRATEGIC, subresource=subresource)

    def undo(self, uid: str = "uid-1") -> int:
        """How many patches it took."""
        count = 0
        while (patch := undoing(self.body, uid)) is not None:
            self.apply(patch)
            count += 1
        return count


@pytest.mark.parametrize("spec", [{}, {"taints": [OTHER_TAINT]}], ids=["bare", "tainted"])
@pytest.mark.parametrize("wanted", [*CHANGES.values(), EVERYTHING], ids=[*CHANGES, "everything"])
def test_what_a_drill_changes_it_takes_back(wanted: NodeMark, spec: dict[str, Any]) -> None:
    node = OneNode(**spec)
    before = node.state()
    node.mark(wanted)
    assert node.state() != before
    assert mark_of(node.body) == wanted
    node.undo()
    left = node.state()
    left["status"] = {name: value for name, value in left["status"].items() if value}
    assert left == before


def test_one_patch_writes_the_mark_and_makes_the_change() -> None:
    node = OneNode()
    node.apply(marking(node.body, CHANGES["cordon"]))
    assert node.body["spec"]["unschedulable"] is True
    assert mark_of(node.body) == CHANGES["cordon"]


def test_a_second_change_of_the_same_drill_is_added_to_the_mark() -> None:
    node = OneNode()
    node.mark(CHANGES["taint"])
    node.mark(CHANGES["cordon"])
    assert mark_of(node.body) == msgspec.structs.replace(MARK, cordon=True, taint=TAINT)


def test_a_mark_is_refused_where_another_client_wrote_in_between() -> None:
    node = OneNode()
    late = marking(node.body, CHANGES["cordon"])
    node.change({"metadata": {"labels": {"a": "b"}}})
    with pytest.raises(StatusError):
        node.apply(late)
    assert mark_of(node.body) is None


@pytest.mark.parametrize(
    ("spec", "wanted", "words"),
    [
        ({"unschedulable": True}, CHANGES["cordon"], "node gpu-1 is cordoned already"),
        ({"taints": [{"key": TAINT.key, "effect": TAINT.effect}]}, CHANGES["taint"], "has a taint"),
    ],
    ids=["cordon", "taint"],
)
def test_what_a_node_has_already_is_refused(spec: dict[str, Any], wanted: NodeMark, words: str) -> None:
    assert words in refusal(OneNode(**spec).body, wanted)


def test_a_second_taint_of_the_same_drill_is_refused_because_only_one_could_be_taken_back() -> None:
    node = OneNode()
    node.mark(CHANGES["taint"])
    other = msgspec.structs.replace(MARK, taint=MarkedTaint("example.com/other", "NoSchedule"))
    assert "another taint of this drill" in refusal(node.body, other)


def test_a_mark_whose_date_has_no_time_zone_cannot_be_read() -> None:
    assert parsed_mark('{"namespace": "ml", "drill": "d", "uid": "u", "expiresAt": "2026-01-01T00:00:00"}') is None


def test_a_condition_that_a_node_has_already_is_refused() -> None:
    node = OneNode()
    node.change({"status": {"conditions": [{"type": DRILL_CONDITION_TYPE, "status": "True"}]}}, subresource="status")
    assert "has the condition RecoveryDrill already" in refusal(node.body, CHANGES["condition"])


def test_the_node_of_another_drill_is_refused_and_the_command_that_frees_it_is_named() -> None:
    node = OneNode()
    node.mark(CHANGES["cordon"])
    other = msgspec.structs.replace(CHANGES["taint"], uid="uid-2")
    assert "recovery chaos abort lose-a-rank-x7k2p -n research" in refusal(node.body, other)


def test_a_cordon_that_another_client_has_set_meanwhile_stays() -> None:
    node = OneNode()
    node.mark(CHANGES["cordon"])
    node.change({"spec": {"unschedulable": None}})
    node.change({"spec": {"unschedulable": True}})
    node.undo()
    assert node.body["spec"]["unschedulable"] is True
    assert mark_of(node.body) is None


def test_a_cordon_that_another_client_has_ended_is_no_obstacle() -> None:
    node = OneNode()
    node.mark(CHANGES["cordon"])
    node.change({"spec": {"unschedulable": None}})
    node.undo()
    assert "unschedulable" not in node.body["spec"]
    assert mark_of(node.body) is None


@pytest.mark.parametrize("change", [{"value": "by-jane"}, {"effect": "NoExecute"}], ids=["value", "effect"])
def test_a_taint_that_another_client_has_replaced_stays(change: dict[str, str]) -> None:
    node = OneNode()
    node.mark(CHANGES["taint"])
    theirs = [{"key": TAINT.key, "effect": TAINT.effect, "value": TAINT.value, **change}]
    node.change({"spec": {"taints": theirs}})
    node.undo()
    assert node.body["spec"]["taints"] == theirs
    assert mark_of(node.body) is None


def test_a_taint_is_found_where_others_have_moved_it() -> None:
    node = OneNode()
    node.mark(CHANGES["taint"])
    node.change({"spec": {"taints": [OTHER_TAINT, *node.body["spec"]["taints"]]}})
    node.undo()
    assert OTHER_TAINT in node.body["spec"]["taints"]
    assert TAINT.key not in {each["key"] for each in node.body["spec"]["taints"]}


def test_an_undo_is_refused_where_another_client_wrote_in_between() -> None:
    node = OneNode()
    node.mark(CHANGES["taint"])
    late = undoing(node.body)
    node.change({"spec": {"taints": [OTHER_TAINT]}})
    assert late is not None
    with pytest.raises(StatusError):
        node.apply(late)


def test_the_condition_is_removed_before_the_mark() -> None:
    node = OneNode()
    node.mark(EVERYTHING)
    patch = undoing(node.body)
    assert patch is not None
    node.apply(patch)
    assert mark_of(node.body) == EVERYTHING, "a client that dies here can be completed"
    assert DRILL_CONDITION_TYPE not in {each["type"] for each in node.body["status"]["conditions"]}


def test_only_the_mark_of_that_drill_is_undone() -> None:
    node = OneNode()
    node.mark(CHANGES["cordon"])
    assert undoing(node.body, "uid-2") is None
    assert undoing(node.body) is not None
    assert node.undo() == 1
    assert node.undo() == 0


def test_a_mark_that_cannot_be_read_says_how_to_remove_it() -> None:
    node = OneNode()
    node.change({"metadata": {"annotations": {NODE_MARK_ANNOTATION: "{"}}})
    with pytest.raises(UnreadableMarkError, match="kubectl annotate node gpu-1"):
        undoing(node.body)
