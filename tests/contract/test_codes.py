"""What the API server answers: codes and reasons, as the production client's errors; what a write changes and what it
does not.

The controller's exactly-once guarantee rests on these: a stale version must be refused, with the error that means "read
again".
"""

import json
import re

from recovery import api_verbs
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.kube.projections.recovery import decode_policy
from recovery.ports import (
    JOBS,
    LEASES,
    PODS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    AlreadyExistsError,
    ConflictError,
    NoSuchResourceError,
    NotFoundError,
    PatchKind,
    RefusedError,
    Resource,
    TestFailedError,
)
from tests.cluster.crd_specs import BAD_SPECS, GOOD_SPECS
from tests.contract.bodies import job, pod, recovery_group, recovery_policy
from tests.contract.expectations import expectation
from tests.contract.scene import Object, Scene, answer, refused, uid

CONFLICT = (409, "Conflict")
INVALID = (422, "Invalid")
NOT_FOUND = (404, "NotFound")
ANOTHER_UID = "0b5e1a52-7f0a-4a5c-9d6e-ffffffffffff"
VERSIONED = {"status": {"schemaVersion": SCHEMA_VERSION, "epoch": 1}}
"""A ledger. The server refuses one without a version."""


@expectation
async def test_a_merge_patch_with_a_version_that_is_past_is_a_conflict(scene: Scene) -> None:
    old = await scene.create(RECOVERY_POLICIES, recovery_policy(priority=1))
    new = await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"priority": 2}})
    stale = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"]}, "spec": {"priority": 3}}
    with refused(ConflictError) as refusal:
        await scene.patch(RECOVERY_POLICIES, "default", stale)
    assert answer(refusal) == CONFLICT
    assert await scene.read(RECOVERY_POLICIES, "default") == new
    current = {"metadata": {"resourceVersion": new["metadata"]["resourceVersion"]}, "spec": {"priority": 3}}
    assert (await scene.patch(RECOVERY_POLICIES, "default", current))["spec"]["priority"] == 3


@expectation
async def test_a_ledger_is_swapped_against_the_version_it_was_read_at(scene: Scene) -> None:
    old = await scene.create(RECOVERY_GROUPS, recovery_group())

    async def write(version: str, epoch: int) -> Object:
        operations = (
            ("replace", "/metadata/resourceVersion", version),
            ("add", "/status", {"schemaVersion": SCHEMA_VERSION, "epoch": epoch}),
        )
        return await scene.json_patch(RECOVERY_GROUPS, "llm", *operations, subresource="status")

    await write(old["metadata"]["resourceVersion"], 1)
    with refused(ConflictError) as refusal:
        await write(old["metadata"]["resourceVersion"], 2)
    assert answer(refusal) == CONFLICT
    assert (await scene.read(RECOVERY_GROUPS, "llm"))["status"]["epoch"] == 1


@expectation
async def test_a_lease_is_swapped_against_the_version_it_was_read_at(scene: Scene) -> None:
    made = await scene.create(LEASES, {"metadata": {"name": "leader"}, "spec": {"holderIdentity": "a"}})

    async def take(version: str, holder: str) -> Object:
        operations = (
            ("replace", "/metadata/resourceVersion", version),
            ("add", "/spec", {"holderIdentity": holder, "leaseDurationSeconds": 15}),
        )
        return await scene.json_patch(LEASES, "leader", *operations)

    taken = await take(made["metadata"]["resourceVersion"], "b")
    with refused(ConflictError) as refusal:
        await take(made["metadata"]["resourceVersion"], "c")
    assert answer(refusal) == CONFLICT
    assert (await scene.read(LEASES, "leader"))["spec"]["holderIdentity"] == "b"
    renewed = await take(taken["metadata"]["resourceVersion"], "b")
    assert renewed["metadata"]["resourceVersion"] == taken["metadata"]["resourceVersion"], "nothing was changed"


@expectation
async def test_a_test_that_does_not_hold_is_told_apart_from_a_value_that_is_refused(scene: Scene) -> None:
    policy = await scene.create(RECOVERY_POLICIES, recovery_policy(priority=1))
    right = ("test", "/metadata/uid", uid(policy))
    wrong = ("test", "/metadata/uid", ANOTHER_UID)
    for operations in (
        (wrong, ("replace", "/spec/priority", 2)),
        (("test", "/spec/nothing", 1), ("replace", "/spec/priority", 2)),
        (right, ("replace", "/nothing/at/all", 2)),
        (right, ("add", "/metadata/annotations/none", "x")),
        (right, ("remove", "/spec/nothing", None)),
    ):
        with refused(TestFailedError) as refusal:
            await scene.json_patch(RECOVERY_POLICIES, "default", *operations)
        assert answer(refusal) == INVALID
    for path, value in (("/nothing/at/all", 2), ("/spec/mode", "Sometimes")):
        with refused(RefusedError) as refusal:
            await scene.json_patch(RECOVERY_POLICIES, "default", ("replace", path, value))
        assert answer(refusal) == INVALID
    with refused(RefusedError) as refusal:
        await scene.json_patch(RECOVERY_POLICIES, "default", right, ("replace", "/spec/mode", "Sometimes"))
    assert answer(refusal) == INVALID
    changed = await scene.json_patch(RECOVERY_POLICIES, "default", right, ("replace", "/spec/priority", 2))
    assert changed["spec"]["priority"] == 2


@expectation
async def test_a_json_patch_replaces_what_is_not_there_and_takes_nothing_for_null(scene: Scene) -> None:
    """RFC 6902 says otherwise; the server's library is lenient where the object around the member is there."""
    await scene.create(RECOVERY_GROUPS, recovery_group())
    await scene.patch(RECOVERY_GROUPS, "llm", {"status": {"schemaVersion": SCHEMA_VERSION}}, subresource="status")
    operations = (("test", "/status/epoch", None), ("replace", "/status/epoch", 3))
    written = await scene.json_patch(RECOVERY_GROUPS, "llm", *operations, subresource="status")
    assert written["status"]["epoch"] == 3


@expectation
async def test_a_deletion_holds_to_uid_and_version(scene: Scene) -> None:
    old = await scene.create(RECOVERY_POLICIES, recovery_policy(priority=1))
    new = await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"priority": 2}})
    version, stale = new["metadata"]["resourceVersion"], old["metadata"]["resourceVersion"]
    for wrong_uid, at in ((ANOTHER_UID, None), (ANOTHER_UID, version), (uid(old), stale), (None, stale)):
        with refused(ConflictError) as refusal:
            await api_verbs.delete(
                scene.api, RECOVERY_POLICIES, "default", namespace=scene.namespace, uid=wrong_uid, resource_version=at
            )
        assert answer(refusal) == CONFLICT
    await api_verbs.delete(
        scene.api, RECOVERY_POLICIES, "default", namespace=scene.namespace, uid=uid(old), resource_version=version
    )
    with refused(NotFoundError) as refusal:
        await scene.read(RECOVERY_POLICIES, "default")
    assert answer(refusal) == NOT_FOUND


@expectation
async def test_a_name_is_taken_once_and_belongs_to_another_uid_after_that(scene: Scene) -> None:
    first = await scene.create(RECOVERY_POLICIES, recovery_policy())
    with refused(AlreadyExistsError) as refusal:
        await scene.create(RECOVERY_POLICIES, recovery_policy(priority=1))
    assert answer(refusal) == (409, "AlreadyExists")
    await api_verbs.delete(scene.api, RECOVERY_POLICIES, "default", namespace=scene.namespace)
    second = await scene.create(RECOVERY_POLICIES, recovery_policy())
    assert uid(second) != uid(first)
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    assert (second["metadata"]["generation"], "status" in second) == (1, False)


@expectation
async def test_what_is_not_there_is_not_found_and_what_is_not_served_is_said_to_be_that(scene: Scene) -> None:
    with refused(NotFoundError) as refusal:
        await scene.read(JOBS, "none")
    assert answer(refusal) == NOT_FOUND
    with refused(NotFoundError) as refusal:
        await scene.patch(RECOVERY_GROUPS, "none", {"status": {"epoch": 1}}, subresource="status")
    assert answer(refusal) == NOT_FOUND
    with refused(NotFoundError) as refusal:
        await api_verbs.delete(scene.api, PODS, "none", namespace=scene.namespace, uid=ANOTHER_UID)
    assert answer(refusal) == NOT_FOUND
    unknown = Resource("recovery.trainjob.dev", "v1alpha1", "recoverywishes", "RecoveryWish")
    with refused(NoSuchResourceError):
        await scene.items(unknown)
    with refused(NoSuchResourceError):
        await scene.read(unknown, "none")


@expectation
async def test_our_kinds_refuse_what_their_schema_does_not_allow(scene: Scene) -> None:
    for spec, words in (
        ({"mode": "enforce"}, 'spec.mode: Unsupported value: "enforce": supported values: "Observe", "Enforce"'),
        ({"budget": {"limit": -1}}, "spec.budget.limit in body should be greater than or equal to 0"),
        ({"budget": {"limit": "ten"}}, "spec.budget.limit in body must be of type integer"),
        ({"timeouts": {"start": ""}}, "spec.timeouts.start in body should be at least 2 chars"),
        ({"inPlace": {"alone": 11}}, "spec.inPlace.alone in body should be less than or equal to 10"),
        ({"elastic": {"minNodes": 0, "maxNodes": 2}}, "spec.elastic.minNodes in body should be greater than"),
    ):
        with refused(RefusedError) as refusal:
            await scene.create(RECOVERY_POLICIES, recovery_policy(**spec))
        assert answer(refusal) == INVALID
        assert words in str(refusal.value)
    assert await scene.items(RECOVERY_POLICIES) == []


@expectation
async def test_our_policies_are_taken_and_refused_in_the_same_words(scene: Scene) -> None:
    """The specifications that tests/cluster holds the CRDs to, one by one; kubectl alone refuses unknown fields."""
    for title, (spec, words) in BAD_SPECS.items():
        if not words.startswith("unknown field"):
            with refused(RefusedError) as refusal:
                await scene.create(RECOVERY_POLICIES, recovery_policy(**spec))
            assert answer(refusal) == INVALID, title
            assert re.search(words, str(refusal.value)), title
    for number, spec in enumerate(GOOD_SPECS.values()):
        await scene.create(RECOVERY_POLICIES, recovery_policy(f"good-{number}", **spec))


@expectation
async def test_a_field_that_is_not_in_the_schema_is_dropped(scene: Scene) -> None:
    created = await scene.create(RECOVERY_POLICIES, recovery_policy(budjet={"limit": 3}))
    assert "budjet" not in created["spec"]
    patched = await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"budjet": {"limit": 3}}})
    assert patched["metadata"]["resourceVersion"] == created["metadata"]["resourceVersion"], "nothing changed"


@expectation
async def test_defaults_of_our_kinds_are_filled_in(scene: Scene) -> None:
    bare = await scene.create(RECOVERY_POLICIES, recovery_policy())
    assert bare["spec"] == {
        "backoff": {"factor": 2, "initial": "10s", "max": "5m", "resetAfter": "30m", "minInterval": "0s"},
        "budget": {"limit": 10, "onExhausted": "Hold", "window": "24h"},
        "mode": "Observe",
        "onNativeIgnore": "RecreateGroup",
        "whileWaiting": "Hold",
        "capacityWait": "30m",
        "onTerminalFailure": "Leave",
        "overrideNative": False,
        "priority": 0,
        "restart": "RecreateGroupOnPodRestart",
        "settle": "2s",
        "teardown": {"fencing": {"assumeDeadAfter": "60s", "mode": "Proven"}},
        "timeouts": {"rendezvous": "15m", "start": "15m", "resume": "15m", "inPlace": "60s", "finish": "10m"},
        "inPlace": {"enabled": False, "alone": 3, "maxInARow": 3},
    }
    some = recovery_policy("some", budget={"limit": 3}, backoff={"initial": "1s"}, teardown={}, mode="Enforce")
    spec = (await scene.create(RECOVERY_POLICIES, some))["spec"]
    assert spec["budget"] == {"limit": 3, "onExhausted": "Hold", "window": "24h"}
    backoff = {"factor": 2, "initial": "1s", "max": "5m", "resetAfter": "30m", "minInterval": "0s"}
    assert spec["backoff"] == backoff
    assert spec["teardown"] == {"fencing": {"assumeDeadAfter": "60s", "mode": "Proven"}}
    assert (spec["mode"], "selector" in spec) == ("Enforce", False)


@expectation
async def test_a_write_that_changes_nothing_is_no_revision(scene: Scene) -> None:
    created = await scene.create(RECOVERY_POLICIES, recovery_policy(priority=1))
    policies = await scene.follow(RECOVERY_POLICIES)
    again = await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"priority": 1}})
    tested = await scene.json_patch(RECOVERY_POLICIES, "default", ("test", "/metadata/uid", uid(created)))
    assert again == tested == created
    changed = await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"priority": 2}})
    await scene.until("the change is told", lambda: len(policies.events) >= 2)
    versions = [event.object["metadata"]["resourceVersion"] for event in policies.events]
    assert versions == [created["metadata"]["resourceVersion"], changed["metadata"]["resourceVersion"]]


@expectation
async def test_the_generation_counts_changes_of_the_spec_and_the_deletion(scene: Scene) -> None:
    held = {"metadata": {"name": "llm", "finalizers": ["example.com/hold"]}, "spec": recovery_group()["spec"]}
    created = await scene.create(RECOVERY_GROUPS, held)
    named = await scene.patch(RECOVERY_GROUPS, "llm", {"metadata": {"annotations": {"a": "b"}}})
    status = await scene.patch(RECOVERY_GROUPS, "llm", VERSIONED, subresource="status")
    assert [each["metadata"]["generation"] for each in (created, named, status)] == [1, 1, 1]
    await api_verbs.delete(scene.api, RECOVERY_GROUPS, "llm", namespace=scene.namespace)
    assert (await scene.read(RECOVERY_GROUPS, "llm"))["metadata"]["generation"] == 2
    await scene.patch(RECOVERY_GROUPS, "llm", {"metadata": {"finalizers": None}})

    await scene.create(RECOVERY_POLICIES, recovery_policy())
    assert (await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"priority": 5}}))["metadata"]["generation"] == 2
    suspended = await scene.create(JOBS, job("held", 1, suspend=True))
    grown = await scene.patch(JOBS, "held", {"spec": {"backoffLimit": 9}})
    assert (suspended["metadata"]["generation"], grown["metadata"]["generation"]) == (1, 2)


@expectation
async def test_status_and_the_rest_are_written_apart(scene: Scene) -> None:
    created = await scene.create(RECOVERY_GROUPS, recovery_group())
    assert "status" not in created, "a create takes no status"
    ignored = await scene.patch(RECOVERY_GROUPS, "llm", {"status": {"epoch": 7}})
    assert ignored == created
    mixed = {
        "status": {"schemaVersion": SCHEMA_VERSION, "epoch": 7},
        "metadata": {"annotations": {"a": "b"}},
        "spec": {"group": "other"},
    }
    written = await scene.patch(RECOVERY_GROUPS, "llm", mixed, subresource="status")
    assert (written["status"]["epoch"], written["spec"]) == (7, created["spec"])
    assert "annotations" not in written["metadata"]

    held = await scene.create(JOBS, job("held", 1, suspend=True) | {"status": {"failed": 3}})
    assert held.get("status", {}).get("failed") is None
    mixed = {"status": {"failed": 3}, "spec": {"backoffLimit": 9}, "metadata": {"annotations": {"a": "b"}}}
    kept = await scene.patch(JOBS, "held", mixed)
    assert (kept["spec"]["backoffLimit"], kept.get("status", {}).get("failed")) == (9, None)


@expectation
async def test_a_uid_cannot_be_changed(scene: Scene) -> None:
    """A kubelet that was away sends the UID that it knew with its status, and is refused for good."""
    await scene.create(RECOVERY_POLICIES, recovery_policy())
    await scene.create(PODS, pod("waits", node="nowhere"))
    await scene.create(JOBS, job("held", 1, suspend=True))
    body = {"metadata": {"uid": ANOTHER_UID}, "status": {"message": "other"}}
    for resource, name, kind, subresource in (
        (PODS, "waits", PatchKind.STRATEGIC, "status"),
        (PODS, "waits", PatchKind.MERGE, ""),
        (JOBS, "held", PatchKind.MERGE, "status"),
        (RECOVERY_POLICIES, "default", PatchKind.MERGE, ""),
    ):
        with refused(RefusedError) as refusal:
            await scene.patch(resource, name, body, kind, subresource)
        assert answer(refusal) == INVALID
        assert "metadata.uid: Invalid value" in str(refusal.value)


@expectation
async def test_a_uid_in_a_status_write_of_our_kinds_is_overlooked(scene: Scene) -> None:
    """So a ledger is tied to its object by `test`, never by naming the UID."""
    group = await scene.create(RECOVERY_GROUPS, recovery_group())
    body = {"metadata": {"uid": ANOTHER_UID}, **VERSIONED}
    written = await scene.patch(RECOVERY_GROUPS, "llm", body, subresource="status")
    assert (uid(written), written["status"]["epoch"]) == (uid(group), 1)
    operations = (("replace", "/metadata/uid", ANOTHER_UID), ("replace", "/status/epoch", 2))
    written = await scene.json_patch(RECOVERY_GROUPS, "llm", *operations, subresource="status")
    assert (uid(written), written["status"]["epoch"]) == (uid(group), 2)


@expectation
async def test_the_server_tells_since_when_the_mode_has_its_owner(scene: Scene) -> None:
    async def mode_since() -> float:
        body = json.dumps(await scene.read(RECOVERY_POLICIES, "default")).encode()
        return decode_policy(body).value.mode_since.timestamp()

    await scene.create(RECOVERY_POLICIES, recovery_policy(mode="Observe"))
    created = await mode_since()
    await scene.pass_seconds(2)
    condition = {"type": "Accepted", "status": "True", "reason": "Valid", "message": "", "observedGeneration": 1}
    status = {"conditions": [{**condition, "lastTransitionTime": "2026-11-21T12:00:00Z"}]}
    written = await scene.patch(RECOVERY_POLICIES, "default", {"status": status}, subresource="status")
    assert len(written["status"]["conditions"]) == 1
    assert await mode_since() == created, "a status write owns no part of the spec"
    await scene.pass_seconds(2)
    await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"mode": "Enforce"}})
    switched = await mode_since()
    assert switched >= created + 3
    await scene.pass_seconds(2)
    await scene.patch(RECOVERY_POLICIES, "default", {"spec": {"mode": "Enforce"}})
    assert await mode_since() == switched, "nothing was changed, so nothing is dated anew"


@expectation
async def test_finalizers_keep_an_object_and_none_is_added_while_it_goes(scene: Scene) -> None:
    held = recovery_policy() | {"metadata": {"name": "default", "finalizers": ["example.com/a", "example.com/b"]}}
    created = await scene.create(RECOVERY_POLICIES, held)
    policies = await scene.follow(RECOVERY_POLICIES)
    await api_verbs.delete(scene.api, RECOVERY_POLICIES, "default", namespace=scene.namespace)
    leaving = await scene.read(RECOVERY_POLICIES, "default")
    assert leaving["metadata"]["deletionTimestamp"]
    assert leaving["metadata"]["deletionGracePeriodSeconds"] == 0
    await api_verbs.delete(scene.api, RECOVERY_POLICIES, "default", namespace=scene.namespace)
    assert await scene.read(RECOVERY_POLICIES, "default") == leaving, "a second deletion changes nothing"
    three = {"metadata": {"finalizers": ["example.com/a", "example.com/b", "example.com/c"]}}
    with refused(RefusedError) as refusal:
        await scene.patch(RECOVERY_POLICIES, "default", three)
    assert answer(refusal) == INVALID
    one = await scene.patch(RECOVERY_POLICIES, "default", {"metadata": {"finalizers": ["example.com/b"]}})
    assert one["metadata"]["finalizers"] == ["example.com/b"]
    await scene.patch(RECOVERY_POLICIES, "default", {"metadata": {"finalizers": None}})
    with refused(NotFoundError):
        await scene.read(RECOVERY_POLICIES, "default")
    await scene.until("the end is told", lambda: not policies.present)
    assert [event.type for event in policies.events] == ["ADDED", "MODIFIED", "MODIFIED", "DELETED"]
    assert {event.uid for event in policies.events} == {uid(created)}


@expectation
async def test_what_a_job_is_made_of_stays_while_its_size_may_change(scene: Scene) -> None:
    await scene.create(JOBS, job("held", 4, suspend=True))
    for change in (
        {"spec": {"completionMode": "NonIndexed"}},
        {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}},
        {"spec": {"completions": 3}},
        {"spec": {"parallelism": -1}},
        {
            "spec": {
                "podFailurePolicy": {"rules": [{"action": "Count", "onExitCodes": {"operator": "In", "values": [1]}}]}
            }
        },
    ):
        with refused(RefusedError) as refusal:
            await scene.patch(JOBS, "held", change)
        assert answer(refusal) == INVALID
    shrunk = await scene.patch(JOBS, "held", {"spec": {"parallelism": 3, "completions": 3}})
    assert (shrunk["spec"]["parallelism"], shrunk["spec"]["completions"]) == (3, 3)
    assert (await scene.patch(JOBS, "held", {"spec": {"backoffLimit": 9}}))["spec"]["backoffLimit"] == 9


@expectation
async def test_names_are_needed_or_made_and_belong_to_one_namespace(scene: Scene) -> None:
    with refused(RefusedError) as refusal:
        await scene.create(RECOVERY_POLICIES, {"metadata": {}, "spec": {}})
    assert answer(refusal) == INVALID
    with refused(RefusedError) as refusal:
        await scene.create(RECOVERY_POLICIES, {"metadata": {"name": "x", "namespace": "elsewhere"}, "spec": {}})
    assert answer(refusal) == (400, "BadRequest")
    made = await scene.create(RECOVERY_POLICIES, {"metadata": {"generateName": "team-"}, "spec": {}})
    name = made["metadata"]["name"]
    assert (name.startswith("team-"), len(name)) == (True, len("team-") + 5)


@expectation
async def test_lists_come_in_pages_and_by_selectors(scene: Scene) -> None:
    for number in range(5):
        name = f"held-{number}"
        await scene.create(PODS, pod(name, labels={"part": str(number), "odd": str(number % 2)}, node="nowhere"))
    page = json.loads(await api_verbs.list_page(scene.api, PODS, namespace=scene.namespace, limit=2))
    names = [item["metadata"]["name"] for item in page["items"]]
    while token := page["metadata"].get("continue"):
        page = json.loads(
            await api_verbs.list_page(scene.api, PODS, namespace=scene.namespace, limit=2, continue_token=token)
        )
        names += [item["metadata"]["name"] for item in page["items"]]
    assert names == [f"held-{number}" for number in range(5)]
    cached = json.loads(await api_verbs.list_page(scene.api, PODS, namespace=scene.namespace, resource_version="0"))
    assert [item["metadata"]["name"] for item in cached["items"]] == names
    assert int(cached["metadata"]["resourceVersion"]) >= int(cached["items"][-1]["metadata"]["resourceVersion"])
    assert {key for item in cached["items"] for key in item} == {"metadata", "spec", "status"}, "the list says the kind"
    for selectors, expected in (
        ({"label_selector": "odd=1"}, [1, 3]),
        ({"label_selector": "odd!=1,part in (0,1,4)"}, [0, 4]),
        ({"label_selector": "part notin (0,1),odd"}, [2, 3, 4]),
        ({"label_selector": "!odd"}, []),
        ({"field_selector": "metadata.name=held-2"}, [2]),
        ({"field_selector": "spec.nodeName!="}, []),
        ({"field_selector": "status.phase=Pending"}, [0, 1, 2, 3, 4]),
    ):
        found = [item["metadata"]["name"] for item in await scene.items(PODS, **selectors)]
        assert found == [f"held-{number}" for number in expected], selectors


@expectation
async def test_a_pod_is_bound_once(scene: Scene) -> None:
    pods = await scene.follow(PODS)
    await scene.create(PODS, pod("waits", node="nowhere"))
    await scene.until(
        "the scheduler has given up for now", lambda: "conditions" in (pods.named("waits") or {"status": {}})["status"]
    )
    binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "waits", "namespace": scene.namespace}}
    body = {**binding, "target": {"apiVersion": "v1", "kind": "Node", "name": "nowhere"}}
    await api_verbs.create(scene.api, PODS, body, namespace=scene.namespace, name="waits", subresource="binding")
    bound = await scene.read(PODS, "waits")
    assert bound["spec"]["nodeName"] == "nowhere"
    assert {each["type"]: each["status"] for each in bound["status"]["conditions"]}["PodScheduled"] == "True"
    with refused(ConflictError) as refusal:
        await api_verbs.create(scene.api, PODS, body, namespace=scene.namespace, name="waits", subresource="binding")
    assert answer(refusal) == CONFLICT


@expectation
async def test_what_names_an_owner_that_is_gone_or_another_by_now_is_collected(scene: Scene) -> None:
    """So does a RecoveryGroup that was made a moment after its workload had been deleted."""
    alive = await scene.create(PODS, pod("owner", node="nowhere"))
    leases = await scene.follow(LEASES)
    for name, owner in (("kept", uid(alive)), ("stray", ANOTHER_UID)):
        reference = {"apiVersion": "v1", "kind": "Pod", "name": "owner", "uid": owner}
        await scene.create(LEASES, {"metadata": {"name": name, "ownerReferences": [reference]}, "spec": {}})
    await scene.until("the stray one is gone", lambda: leases.named("kept") is not None and len(leases.present) == 1)
    await scene.pass_seconds(1)
    assert leases.named("kept") is not None
    await api_verbs.delete(scene.api, PODS, "owner", namespace=scene.namespace)
    await scene.until("the other one goes with its owner", lambda: not leases.present)
