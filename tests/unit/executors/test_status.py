"""Writes of the ledger: a harmless create, swaps by its version, and a record of each incident at its end."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import structlog

from recovery.core.model.birth_settings import BirthSettings
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.ledger import SCHEMA_VERSION, Closing, Incident, Ledger, Outcome, Phase, PhaseSpan
from recovery.core.model.pinned_policy import PinnedPolicy
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.executors.status import LedgerWriter, reference_to
from recovery.ports import (
    RECOVERY_GROUPS,
    RECOVERY_INCIDENTS,
    AlreadyExistsError,
    ApiError,
    ApiRequest,
    ConflictError,
    ForbiddenError,
    PatchKind,
    TryLaterError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import LedgersApi
from tests.unit.core.groups import training
from tests.unit.core.world import at

LEDGER = Ledger(epoch=3, reason=Reason.DEFAULT_RESTART, message="because")
NAME = "train-0d2f5c9e-5b1c-4f6e-9d6b-4f2f1c0a7b11"


def workload() -> WorkloadFacts:
    found = training(1).workload
    assert found is not None
    return found


def closed() -> Incident:
    return Incident(
        id="0d2f5c9e-1",
        number=1,
        started_at=at(0),
        detected_at=at(1),
        disruption_class="PodDeleted",
        cause="rank 2 was deleted",
        mode="Enforce",
        pinned=PinnedPolicy("default", "policy-1", 1, "RecreateGroupOnPodRestart", 10, 86_400, 900),
        step=Step(StepType.RETURNING),
        phases=(
            PhaseSpan(Phase.DETECTED, at(0), at(1), 32.0),
            PhaseSpan(Phase.RENDEZVOUS, at(1), at(21), 640.0004),
        ),
        reason=Reason.ALL_RANKS_READY,
        message="all 4 ranks are Ready",
        closing=Closing(Outcome.RECOVERED, Reason.ALL_RANKS_READY, at(21), source="ready"),
    )


# --- the ledger ------------------------------------------------------------------------------------------------------


class OlderDefinition(LedgersApi):
    """Its CRD lacks the fields that `keep` leaves out, so the API server prunes them."""

    def __init__(self, keep: Callable[[Ledger], object]) -> None:
        super().__init__()
        self._keep = keep

    async def answer(self, request: ApiRequest) -> bytes:
        answered = await super().answer(request)
        if request.verb != "patch":
            return answered
        body = msgspec.json.decode(answered)
        return msgspec.json.encode(body | {"status": self._keep(self.ledger)})


@pytest.mark.parametrize(
    "keep",
    [
        lambda ledger: msgspec.structs.replace(ledger, epoch=0),
        lambda _: None,
        lambda _: {"incident": {"id": "without its other fields"}},
    ],
    ids=["a field is gone", "nothing is left", "what is left cannot be read"],
)
async def test_a_ledger_that_its_crd_does_not_keep_whole_is_said_once_and_holds_nothing_up(
    keep: Callable[[Ledger], object],
) -> None:
    writer = LedgerWriter(OlderDefinition(keep))
    with structlog.testing.capture_logs() as said:
        made = await writer.write("ml", workload(), None, LEDGER)
        await writer.write("ml", workload(), made, msgspec.structs.replace(LEDGER, epoch=4))
    assert said == [
        {
            "log_level": "error",
            "event": "ledgers are not kept whole: this CRD is older than the controller; "
            "kubectl apply --server-side -k manifests/crd",
            "crd": "recoverygroups.recovery.trainjob.dev",
            "job": "ml/train",
            "ledger": NAME,
        }
    ]


async def test_of_one_that_is_kept_whole_nothing_is_said() -> None:
    with structlog.testing.capture_logs() as said:
        await LedgerWriter(LedgersApi()).write("ml", workload(), None, LEDGER)
    assert said == []


async def test_a_ledger_is_created_empty_and_never_stands_in_the_way_of_its_jobs_deletion() -> None:
    api = LedgersApi()
    await LedgerWriter(api).write("ml", workload(), None, LEDGER)
    (request,) = api.sent("create", RECOVERY_GROUPS)
    assert request.namespace == "ml"
    reference = {"kind": "TrainJob", "name": "train", "uid": workload().uid}
    assert request.body == {
        "apiVersion": "recovery.trainjob.dev/v1alpha1",
        "kind": "RecoveryGroup",
        "metadata": {
            "name": NAME,
            "namespace": "ml",
            "ownerReferences": [{"apiVersion": "trainer.kubeflow.org/v1alpha1", **reference}],
        },
        "spec": {"workloadRef": reference, "group": "train"},
    }
    (owner,) = request.body["metadata"]["ownerReferences"]
    assert not owner.keys() & {"controller", "blockOwnerDeletion"}


async def test_the_ledger_of_a_bare_jobset_belongs_to_the_jobset() -> None:
    api = LedgersApi()
    await LedgerWriter(api).write("ml", msgspec.structs.replace(workload(), kind="JobSet"), None, LEDGER)
    body = api.sent("create", RECOVERY_GROUPS)[0].body
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["apiVersion"], owner["kind"]) == ("jobset.x-k8s.io/v1alpha2", "JobSet")
    assert body["spec"]["workloadRef"]["kind"] == "JobSet"


async def test_the_status_is_swapped_against_the_version_that_the_creation_gave() -> None:
    api = LedgersApi()
    written = await LedgerWriter(api).write("ml", workload(), None, LEDGER)
    assert api.said() == ["create RecoveryGroup", "patch RecoveryGroup"]
    assert list(api.groups.values()) == [written]
    assert (written.ledger, written.workload_uid, written.group) == (LEDGER, workload().uid, "train")


async def test_a_known_ledger_is_replaced_by_one_patch_with_its_version() -> None:
    api = LedgersApi()
    known = api.put_group(Ledger(epoch=2))
    written = await LedgerWriter(api).write("ml", workload(), known, LEDGER)
    (request,) = api.writes
    assert (request.name, request.subresource, request.kind) == (NAME, "status", PatchKind.JSON)
    version, status = request.body
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": known.resource_version}
    assert (status["op"], status["path"]) == ("add", "/status")
    assert status["value"] == {
        "schemaVersion": SCHEMA_VERSION,
        "epoch": 3,
        "reason": "DefaultRestart",
        "message": "because",
    }
    assert int(written.resource_version) > int(known.resource_version)
    assert (written.uid, written.ledger) == (known.uid, LEDGER)


async def test_what_was_written_is_what_the_next_write_is_swapped_against() -> None:
    api = LedgersApi()
    writer = LedgerWriter(api)
    known = None
    for epoch in range(3):
        known = await writer.write("ml", workload(), known, Ledger(epoch=epoch))
    assert api.said() == ["create RecoveryGroup", *3 * ["patch RecoveryGroup"]]
    assert api.ledger.epoch == 2


async def test_someone_else_wrote_meanwhile() -> None:
    api = LedgersApi()
    known = api.put_group(Ledger())
    theirs = api.put_group(Ledger(epoch=1))
    with pytest.raises(ConflictError):
        await LedgerWriter(api).write("ml", workload(), known, LEDGER)
    assert list(api.groups.values()) == [theirs]


async def test_someone_else_created_it_meanwhile() -> None:
    api = LedgersApi()
    theirs = api.put_group(Ledger(epoch=1))
    with pytest.raises(AlreadyExistsError):
        await LedgerWriter(api).write("ml", workload(), None, LEDGER)
    assert list(api.groups.values()) == [theirs]
    assert api.said() == ["create RecoveryGroup"]


async def test_a_lost_answer_is_not_repeated_here() -> None:
    api = LedgersApi()
    known = api.put_group(Ledger())
    api.next("patch", RECOVERY_GROUPS, UnknownOutcomeError("lost"))
    with pytest.raises(UnknownOutcomeError):
        await LedgerWriter(api).write("ml", workload(), known, LEDGER)
    assert len(api.writes) == 1


# --- the label -------------------------------------------------------------------------------------------------------

SETTLED = msgspec.structs.replace(LEDGER, birth_settings=BirthSettings(1, "jobset-1", "node", at(0), nodes=3))
LABEL = "recovery.trainjob.dev/birth-settings"


async def test_a_ledger_with_birth_settings_is_labelled_from_the_moment_of_its_creation() -> None:
    api = LedgersApi()
    written = await LedgerWriter(api).write("ml", workload(), None, SETTLED)
    (request,) = api.sent("create", RECOVERY_GROUPS)
    assert request.body["metadata"]["labels"] == {LABEL: "true"}
    assert api.said() == ["create RecoveryGroup", "patch RecoveryGroup"]
    assert list(api.groups.values()) == [written]
    assert written.labelled


async def test_the_label_comes_before_the_settings_and_goes_after_them() -> None:
    """A controller that dies in between leaves at most a superfluous label."""
    api = LedgersApi()
    writer = LedgerWriter(api)
    known = api.put_group(Ledger())
    labelled = await writer.write("ml", workload(), known, SETTLED)
    metadata, status = api.writes
    assert (metadata.kind, metadata.subresource) == (PatchKind.MERGE, "")
    assert metadata.body == {
        "metadata": {"uid": known.uid, "resourceVersion": known.resource_version, "labels": {LABEL: "true"}}
    }
    assert status.subresource == "status"
    again = await writer.write("ml", workload(), labelled, msgspec.structs.replace(SETTLED, epoch=4))
    assert len(api.writes) == 3, "it is labelled already"
    without = await writer.write("ml", workload(), again, LEDGER)
    *_, status, metadata = api.writes
    assert (status.subresource, metadata.subresource) == ("status", "")
    after_status = str(int(without.resource_version) - 1)
    assert metadata.body == {
        "metadata": {"uid": known.uid, "resourceVersion": after_status, "labels": {LABEL: None}}
    }, "whoever has entered settings since keeps the label"
    assert list(api.groups.values()) == [without]
    assert (without.labelled, without.ledger) == (False, LEDGER)
    await writer.write("ml", workload(), without, msgspec.structs.replace(LEDGER, epoch=4))
    assert len(api.writes) == 6


async def test_nothing_is_written_over_someone_elses_write_by_way_of_the_label() -> None:
    api = LedgersApi()
    known = api.put_group(Ledger())
    theirs = api.put_group(Ledger(epoch=1))
    with pytest.raises(ConflictError):
        await LedgerWriter(api).write("ml", workload(), known, SETTLED)
    assert list(api.groups.values()) == [theirs]


async def test_a_label_that_is_refused_is_said_once_and_holds_nothing_up() -> None:
    api = LedgersApi()
    writer = LedgerWriter(api)
    known = api.put_group(Ledger())
    with structlog.testing.capture_logs() as said:
        for epoch in (4, 5):
            api.next("patch", RECOVERY_GROUPS, ForbiddenError("cannot patch", status=403))
            known = await writer.write("ml", workload(), known, msgspec.structs.replace(SETTLED, epoch=epoch))
    assert [(line["log_level"], line["ledger"]) for line in said] == [("warning", f"ml/{NAME}")]
    assert (api.ledger.epoch, known.labelled) == (5, False)


@pytest.mark.parametrize(
    "error", [ForbiddenError("no", status=403), ConflictError("changed", status=409), TryLaterError("busy", status=429)]
)
async def test_a_label_that_cannot_be_taken_away_stays_until_the_next_write(error: ApiError) -> None:
    """The write of the ledger succeeded, and the caller has to learn that."""
    api = LedgersApi()
    writer = LedgerWriter(api)
    known = await writer.write("ml", workload(), None, SETTLED)
    api.next("patch", RECOVERY_GROUPS)
    api.next("patch", RECOVERY_GROUPS, error)
    without = await writer.write("ml", workload(), known, LEDGER)
    assert (api.ledger, without.ledger, without.labelled) == (LEDGER, LEDGER, True)
    later = await writer.write("ml", workload(), without, msgspec.structs.replace(LEDGER, epoch=4))
    assert not later.labelled
    assert list(api.groups.values()) == [later]


# --- the record ------------------------------------------------------------------------------------------------------


async def recorded(api: LedgersApi) -> dict[str, Any]:
    await LedgerWriter(api).record("ml", reference_to(workload()), closed())
    (request,) = api.sent("create", RECOVERY_INCIDENTS)
    assert request.namespace == "ml"
    body: dict[str, Any] = request.body
    return body


async def test_a_closed_incident_is_recorded_under_its_id_and_its_beginning() -> None:
    body = await recorded(LedgersApi())
    assert (body["apiVersion"], body["kind"]) == ("recovery.trainjob.dev/v1alpha1", "RecoveryIncident")
    name = "train-0d2f5c9e-1-20261121120000"
    assert body["metadata"] == {"name": name, "namespace": "ml"}, "it outlives its job: no owner"


async def test_incidents_that_count_from_one_again_have_records_of_their_own() -> None:
    """Someone deleted the RecoveryGroup, so the ids repeat."""
    api = LedgersApi()
    later = msgspec.structs.replace(closed(), started_at=at(60))
    for incident in (closed(), later, later):
        await LedgerWriter(api).record("ml", reference_to(workload()), incident)
    names = [request.name for request in api.sent("create", RECOVERY_INCIDENTS)]
    assert names[0] != names[1] == names[2]


async def test_the_name_is_short_enough_for_the_longest_name_of_a_job() -> None:
    api = LedgersApi()
    longest = msgspec.structs.replace(reference_to(workload()), name="x" * 253)
    await LedgerWriter(api).record("ml", longest, closed())
    assert len(api.writes[0].name) <= 253


async def test_the_record_says_how_it_began_how_it_ended_and_what_it_cost() -> None:
    spec = (await recorded(LedgersApi()))["spec"]
    assert spec["workloadRef"] == {"kind": "TrainJob", "name": "train", "uid": workload().uid}
    assert (spec["id"], spec["class"], spec["group"]) == ("0d2f5c9e-1", "PodDeleted", "train")
    assert (spec["outcome"], spec["outcomeReason"], spec["source"]) == ("Recovered", "AllRanksReady", "ready")
    assert (spec["startedAt"], spec["endedAt"]) == ("2026-11-21T12:00:00Z", "2026-11-21T12:00:21Z")
    assert spec["idleGpuSeconds"] == 672.0
    assert "closing" not in spec


async def test_a_record_that_exists_already_is_this_one() -> None:
    api = LedgersApi()
    api.next("create", RECOVERY_INCIDENTS, AlreadyExistsError("it exists", status=409))
    await recorded(api)
    assert [str(request) for request in api.writes] == ["create RecoveryIncident"]


async def test_a_record_that_is_refused_is_the_callers_to_know() -> None:
    api = LedgersApi()
    api.next("create", RECOVERY_INCIDENTS, ForbiddenError("no", status=403))
    with pytest.raises(ForbiddenError):
        await recorded(api)


async def test_an_open_incident_is_never_recorded() -> None:
    with pytest.raises(AssertionError):
        await LedgerWriter(LedgersApi()).record(
            "ml", reference_to(workload()), msgspec.structs.replace(closed(), closing=None)
        )


async def read_back(spec: dict[str, Any]) -> Incident | None:
    api = LedgersApi()
    api.objects[RECOVERY_INCIDENTS, "train-0d2f5c9e-1-20261121120000"] = {"spec": spec}
    return await LedgerWriter(api).recorded("ml", reference_to(workload()), closed())


async def test_a_record_is_read_back_as_it_was_closed() -> None:
    spec = (await recorded(LedgersApi()))["spec"] | {"endedAt": "2026-11-21T12:00:30Z"}
    found = await read_back(spec)
    assert found is not None
    assert found.closing is not None
    assert (found.closing.outcome, found.closing.ended_at) == (Outcome.RECOVERED, at(30))


@pytest.mark.parametrize(
    "changes",
    [
        {"outcome": "Transcended"},
        {"endedAt": "9999-12-31T23:59:59Z"},
        {"schemaVersion": None},
        {"schemaVersion": SCHEMA_VERSION - 1},
    ],
    ids=["a new word", "out of bounds", "no version", "a version from before the first release"],
)
async def test_a_record_that_cannot_be_read_is_none(changes: dict[str, Any]) -> None:
    spec = (await recorded(LedgersApi()))["spec"] | changes
    assert await read_back({name: value for name, value in spec.items() if value is not None}) is None
