"""managedFields, and what the production code reads from them: since when a policy has had its mode."""

import msgspec

from recovery.kube.projections.recovery import decode_policy
from recovery.ports import JOBS, RECOVERY_POLICIES, PatchKind
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from tests.unit.sim.api.servers import TEAM, SetClock, made, meta, named, serving

POLICY: Body = {"metadata": {"name": "p"}, "spec": {"mode": "Observe", "priority": 0}}


def patch(server: ApiServer, actor: str, patch: Body, subresource: str = "") -> Body:
    with server.acting(actor):
        return server.patch(
            RECOVERY_POLICIES, "p", patch, kind=PatchKind.MERGE, namespace=TEAM, subresource=subresource
        )


def started(clock: SetClock) -> ApiServer:
    server = serving(clock=clock)
    with server.acting("alice"):
        made(server, RECOVERY_POLICIES, {**POLICY, "metadata": {**POLICY["metadata"], "labels": {"team": "a"}}})
    return server


def entries(body: Body) -> dict[tuple[str, str], tuple[str, Body]]:
    """Time of day and fields, by manager and subresource."""
    return {
        (entry["manager"], entry.get("subresource", "")): (entry["time"][11:-1], entry["fieldsV1"])
        for entry in meta(body)["managedFields"]
    }


def mode_since_seconds(body: Body, clock: SetClock) -> float:
    """How many seconds ago the mode was set."""
    since = decode_policy(msgspec.json.encode(body)).value.mode_since
    return (clock.now() - since).total_seconds()


def test_who_makes_an_object_owns_what_is_in_it() -> None:
    server = started(SetClock())
    body = server.get(RECOVERY_POLICIES, "p", namespace=TEAM)
    owned = {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:mode": {}, "f:priority": {}}}
    assert entries(body) == {("alice", ""): ("08:00:00", owned)}
    entry = meta(body)["managedFields"][0]
    assert (entry["operation"], entry["fieldsType"]) == ("Update", "FieldsV1")
    assert entry["apiVersion"] == body["apiVersion"]


def test_who_changes_a_field_owns_it_from_then_on_alone() -> None:
    clock = SetClock()
    server = started(clock)
    clock.seconds = 60
    body = patch(server, "bob", {"spec": {"mode": "Enforce"}})
    assert entries(body) == {
        ("alice", ""): ("08:00:00", {"f:metadata": {"f:labels": {"f:team": {}}}, "f:spec": {"f:priority": {}}}),
        ("bob", ""): ("08:01:00", {"f:spec": {"f:mode": {}}}),
    }


def test_fields_that_go_are_no_ones_and_who_owns_none_is_forgotten() -> None:
    clock = SetClock()
    server = started(clock)
    patch(server, "bob", {"spec": {"mode": "Enforce"}})
    body = patch(server, "carol", {"spec": {"mode": None, "priority": 1}})
    assert entries(body)["carol", ""][1] == {"f:spec": {"f:priority": {}}}
    assert ("bob", "") not in entries(body)


def test_the_status_is_managed_apart() -> None:
    server = started(SetClock())
    body = patch(server, "alice", {"status": {"conditions": []}}, "status")
    assert entries(body)["alice", "status"][1] == {"f:status": {"f:conditions": {}}}
    assert entries(body)["alice", ""][1]["f:spec"] == {"f:mode": {}, "f:priority": {}}


def test_the_mode_is_dated_by_who_last_wrote_it() -> None:
    clock = SetClock()
    server = started(clock)
    clock.seconds = 100
    assert mode_since_seconds(server.get(RECOVERY_POLICIES, "p", namespace=TEAM), clock) == 100
    patch(server, "bob", {"spec": {"mode": "Enforce"}})
    clock.seconds = 130
    patch(server, "alice", {"spec": {"priority": 5}})
    body = patch(server, "accepter", {"status": {"conditions": []}}, "status")
    assert mode_since_seconds(body, clock) == 30


def test_an_owner_who_writes_again_is_dated_again() -> None:
    clock = SetClock()
    server = started(clock)
    clock.seconds = 100
    body = patch(server, "alice", {"spec": {"priority": 5}})
    assert mode_since_seconds(body, clock) == 0


def test_what_is_written_again_unchanged_dates_nothing() -> None:
    clock = SetClock()
    server = started(clock)
    before = server.get(RECOVERY_POLICIES, "p", namespace=TEAM)
    clock.seconds = 100
    assert patch(server, "bob", {"spec": {"mode": "Observe"}}) is before


def test_they_are_kept_where_someone_reads_them_only() -> None:
    assert "managedFields" not in meta(made(serving(), JOBS, named("job")))
