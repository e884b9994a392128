"""One patch taints, annotates and perhaps cordons a node, and only our own marks are ever removed."""

from typing import Any

import msgspec
import pytest

from recovery.core.fleet.quarantine import Mark, parsed_mark
from recovery.core.model.annotations import QUARANTINE_ANNOTATION, RELEASE_ANNOTATION
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT, Quarantined
from recovery.executors import node_quarantine
from recovery.executors.node_quarantine import quarantine_by_hand, release, release_by_hand
from recovery.ports import NODES, ApiClient, ConflictError, NotFoundError
from tests.unit.core.world import at
from tests.unit.executors.fleet import STALE, Fleet

LATER = "2026-11-21T12:00:20Z"
MAINTENANCE = {"key": "team/maintenance", "value": "fan", "effect": "NoSchedule"}


def mark(fleet: Fleet, name: str = "gpu-1") -> Mark:
    found = parsed_mark(fleet.node(name)["metadata"]["annotations"][QUARANTINE_ANNOTATION])
    assert found is not None
    return found


async def apply(api: ApiClient, entry: Quarantined) -> None:
    """Apply the quarantine ten seconds after START."""
    await node_quarantine.apply(api, entry, at(10))


async def test_cordon_taint_and_annotation_come_in_one_patch() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted(release_when="GpuUnhealthy"))
    assert fleet.client.patched == ["nodes gpu-1"]
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (True, ["quarantined=inc-1"])
    wanted = Mark("XID 79", at(5), incident="inc-1", release_when="GpuUnhealthy", cordoned=True, beside=())
    assert mark(fleet) == msgspec.structs.replace(wanted, node_sign="GpuFaultOnNode")


async def test_an_entry_without_a_cordon_only_taints_and_a_release_leaves_the_cordon_to_others() -> None:
    fleet = Fleet()
    wanted = fleet.wanted(cordoned=False)
    await apply(fleet.client, wanted)
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (False, ["quarantined=inc-1"])
    assert (mark(fleet).cordoned, mark(fleet).beside) == (False, None)
    fleet.patch_node("gpu-1", {"spec": {"unschedulable": True}})
    await release(fleet.client, wanted)
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (True, [])


AGENT = {"key": "AggregatedNodeHealth", "value": "False", "effect": "NoSchedule"}
NVSENTINEL = {"metadata": {"annotations": {"quarantineHealthEventIsCordoned": "True"}}}


@pytest.mark.parametrize("releases", [release, lambda api, entry: release_by_hand(api, entry.node, LATER)])
@pytest.mark.parametrize("claims", ["taint", "annotation"])
async def test_our_cordon_stays_while_an_agent_claims_it(claims: str, releases: Any) -> None:
    """The agent found the node cordoned, so it had no cordon to set. It counts the end of the cordon as a person's."""
    fleet = Fleet()
    fleet.patch_node("gpu-1", {"spec": {"taints": [MAINTENANCE]}})
    await apply(fleet.client, fleet.wanted())
    assert mark(fleet).beside == ("team/maintenance",)
    taints = fleet.node("gpu-1")["spec"]["taints"]
    fleet.patch_node("gpu-1", {"spec": {"taints": [AGENT, *taints]}} if claims == "taint" else NVSENTINEL)
    await releases(fleet.client, fleet.wanted())
    assert fleet.cordoned("gpu-1")
    assert fleet.taints("gpu-1") == ["AggregatedNodeHealth=False"] * (claims == "taint") + ["maintenance=fan"]
    assert not fleet.annotated("gpu-1")


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "team/slow", "effect": "PreferNoSchedule"},
    ],
    ids=["of the cordon itself", "of the node's state", "that keeps no pod off"],
)
async def test_a_taint_that_no_agent_sets_to_keep_pods_off_claims_no_cordon(taint: dict[str, str]) -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    fleet.patch_node("gpu-1", {"spec": {"taints": [taint, *fleet.node("gpu-1")["spec"]["taints"]]}})
    await release(fleet.client, fleet.wanted())
    assert not fleet.cordoned("gpu-1")


async def test_the_cordon_of_an_older_controller_ends_though_it_noted_no_taints() -> None:
    """Its mark does not say which taints were there before. GPU nodes of most clouds have one."""
    fleet = Fleet()
    fleet.patch_node("gpu-1", {"spec": {"taints": [MAINTENANCE]}})
    await apply(fleet.client, fleet.wanted())
    older = msgspec.json.encode(msgspec.structs.replace(mark(fleet), beside=None)).decode()
    fleet.patch_node("gpu-1", {"metadata": {"annotations": {QUARANTINE_ANNOTATION: older}}})
    await release(fleet.client, fleet.wanted())
    assert not fleet.cordoned("gpu-1")


async def test_twice_is_once() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    await apply(fleet.client, fleet.wanted())
    assert fleet.client.patched == ["nodes gpu-1"]


async def test_the_taints_of_others_stay_and_their_cordon_is_not_ours() -> None:
    fleet = Fleet()
    fleet.patch_node("gpu-1", {"spec": {"unschedulable": True, "taints": [MAINTENANCE]}})
    await apply(fleet.client, fleet.wanted())
    assert fleet.taints("gpu-1") == ["maintenance=fan", "quarantined=inc-1"]
    assert mark(fleet).cordoned is False
    await release(fleet.client, fleet.wanted())
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (True, ["maintenance=fan"])
    assert not fleet.annotated("gpu-1")


async def test_a_release_leaves_the_node_as_it_was() -> None:
    fleet = Fleet()
    before = fleet.node("gpu-1")["spec"]
    await apply(fleet.client, fleet.wanted())
    await release(fleet.client, fleet.wanted())
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1"), fleet.annotated("gpu-1")) == (False, [], False)
    assert {name: value for name, value in fleet.node("gpu-1")["spec"].items() if value} == {
        name: value for name, value in before.items() if value
    }
    await release(fleet.client, fleet.wanted())
    assert fleet.client.patched == ["nodes gpu-1"] * 2, "there is nothing left to release"


async def test_a_release_leaves_what_others_have_set_meanwhile() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    ours = fleet.node("gpu-1")["spec"]["taints"]
    fleet.patch_node("gpu-1", {"spec": {"taints": [MAINTENANCE, *ours]}})
    await release(fleet.client, fleet.wanted())
    assert fleet.taints("gpu-1") == ["maintenance=fan"]


@pytest.mark.parametrize(
    "foreign",
    [
        {"key": QUARANTINE_TAINT, "value": "inc-2", "effect": "NoSchedule"},
        {"key": QUARANTINE_TAINT, "value": "inc-1", "effect": "NoExecute"},
        MAINTENANCE,
    ],
    ids=["another incident's", "another effect", "another key"],
)
async def test_a_foreign_taint_is_never_removed(foreign: dict[str, str]) -> None:
    fleet = Fleet()
    fleet.patch_node("gpu-1", {"spec": {"unschedulable": True, "taints": [foreign]}})
    await release(fleet.client, fleet.wanted())
    assert fleet.client.patched == []


async def test_who_took_the_taint_away_has_taken_the_cordon_over() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    fleet.patch_node("gpu-1", {"spec": {"taints": []}})
    await release(fleet.client, fleet.wanted())
    assert (fleet.cordoned("gpu-1"), fleet.annotated("gpu-1")) == (True, False)


async def test_a_cordon_that_the_ledger_does_not_call_ours_stays() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    await release(fleet.client, fleet.wanted(cordoned=False))
    assert (fleet.cordoned("gpu-1"), fleet.taints("gpu-1")) == (True, [])


@pytest.mark.parametrize("action", [apply, release])
async def test_a_node_that_is_gone_or_recreated_is_fine(action: type) -> None:
    fleet = Fleet()
    await action(fleet.client, fleet.wanted(node_uid="older"))
    assert fleet.client.patched == []
    wanted = fleet.wanted()
    fleet.server.delete(NODES, "gpu-1")
    await action(fleet.client, wanted)
    assert fleet.client.patched == []


async def test_a_node_that_changes_in_between_is_read_again() -> None:
    fleet = Fleet()
    fleet.client.next("patch", NODES, STALE, times=2)
    await apply(fleet.client, fleet.wanted())
    assert (len(fleet.client.patched), fleet.quarantined) == (3, ["gpu-1"])


async def test_a_node_that_keeps_changing_is_the_callers() -> None:
    fleet = Fleet()
    fleet.client.next("patch", NODES, STALE, times=20)
    with pytest.raises(ConflictError):
        await apply(fleet.client, fleet.wanted())


async def test_a_node_that_a_person_quarantined_or_released_since_is_left_alone() -> None:
    fleet = Fleet()
    await quarantine_by_hand(fleet.client, fleet.wanted(incident="", by="jane"))
    fleet.patch_node("gpu-2", {"metadata": {"annotations": {RELEASE_ANNOTATION: LATER}}})
    for name in ("gpu-1", "gpu-2"):
        await apply(fleet.client, fleet.wanted(name))
    assert fleet.taints("gpu-1") == ["quarantined=by-hand"]
    assert fleet.taints("gpu-2") == []


async def test_a_release_dated_far_ahead_is_none_here_as_in_the_review() -> None:
    """Otherwise the node would stay in the ledger forever and never be quarantined."""
    fleet = Fleet()
    fleet.patch_node("gpu-1", {"metadata": {"annotations": {RELEASE_ANNOTATION: "2099-01-01T00:00:00Z"}}})
    await apply(fleet.client, fleet.wanted())
    assert fleet.quarantined == ["gpu-1"]


async def test_the_next_incident_takes_the_place_of_the_one_before_it_with_its_cordon() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    await apply(fleet.client, fleet.wanted(incident="inc-2"))
    assert fleet.taints("gpu-1") == ["quarantined=inc-2"]
    assert (mark(fleet).cordoned, mark(fleet).beside) == (True, ())
    await release(fleet.client, fleet.wanted())
    assert fleet.quarantined == ["gpu-1"], "a late release of the first one"


async def test_a_person_takes_over_and_the_cordon_can_still_be_released() -> None:
    fleet = Fleet()
    await apply(fleet.client, fleet.wanted())
    await quarantine_by_hand(fleet.client, fleet.wanted(incident="", by="jane", reason="keep it"))
    assert fleet.taints("gpu-1") == ["quarantined=by-hand"]
    assert (mark(fleet).by, mark(fleet).cordoned) == ("jane", True)


@pytest.mark.parametrize("by", ["", "jane"])
async def test_a_person_releases_any_quarantine_and_the_node_notes_when(by: str) -> None:
    fleet = Fleet()
    wanted = fleet.wanted(incident="" if by else "inc-1", by=by)
    await (quarantine_by_hand if by else apply)(fleet.client, wanted)
    await release_by_hand(fleet.client, "gpu-1", LATER)
    assert (fleet.cordoned("gpu-1"), fleet.quarantined) == (False, [])
    assert fleet.node("gpu-1")["metadata"]["annotations"] == {RELEASE_ANNOTATION: LATER}


async def test_a_person_is_told_that_there_is_no_such_node() -> None:
    fleet = Fleet()
    missing = msgspec.structs.replace(fleet.wanted(), node="gpu-9", node_uid="")
    with pytest.raises(NotFoundError):
        await quarantine_by_hand(fleet.client, missing)
    with pytest.raises(NotFoundError):
        await release_by_hand(fleet.client, "gpu-9", LATER)
