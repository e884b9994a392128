"""What the controller keeps of its own kinds: policies, the config and ledgers."""

import json

import msgspec
import pytest

from recovery.core.model.config import AllowSpec, ConfigSpec
from recovery.core.model.fleet_ledger import FleetLedger, Suspicion
from recovery.core.model.ledger import (
    SCHEMA_VERSION,
    WITHOUT_RESUMING,
    WITHOUT_SIZES,
    Ledger,
    Outcome,
    Phase,
    Target,
)
from recovery.core.model.reason import Reason
from recovery.core.model.waits import Suspension
from recovery.core.policy.spec import Mode
from recovery.kube.projections.recovery import (
    UNREADABLE_SCHEMA_VERSION,
    decode_config,
    decode_policy,
    decode_recovery_group,
)
from tests.unit.kube.projected import JOB_UID, at, changed
from tests.unit.kube.store_world import Body
from tests.unit.kube.testing import fixture, message


class TestPolicies:
    def test_the_mode_dates_from_the_newest_write_of_its_owner(self) -> None:
        policy = decode_policy(fixture("recoverypolicy")).value
        assert policy.spec.mode is Mode.ENFORCE
        assert policy.spec.selector.match_labels == {"team": "a"}
        assert (policy.spec.priority, policy.spec.budget.limit, policy.generation) == (5, 3, 3)
        assert policy.created_at == at("09:51:09")
        assert policy.mode_since == at("09:51:11"), "not 09:51:13, when another owner wrote the priority"
        assert not policy.deleting

    def test_a_mode_that_no_one_owns_dates_from_the_creation(self) -> None:
        policy = decode_policy(changed("recoverypolicy", metadata__managedFields=None)).value
        assert policy.mode_since == policy.created_at

    def test_a_status_write_does_not_date_the_mode(self) -> None:
        owner = {"time": "2026-11-21T12:00:00Z", "subresource": "status", "fieldsV1": {"f:spec": {"f:mode": {}}}}
        policy = decode_policy(changed("recoverypolicy", metadata__managedFields=[owner])).value
        assert policy.mode_since == policy.created_at

    def test_what_this_version_does_not_know_is_refused_with_its_path(self) -> None:
        with pytest.raises(msgspec.ValidationError, match=r"'Automatic' - at `\$\.spec\.mode`"):
            decode_policy(changed("recoverypolicy", spec__mode="Automatic"))

    def test_one_of_the_cluster_has_no_namespace(self) -> None:
        policy = decode_policy(changed("recoverypolicy", metadata__namespace=None)).value
        assert (policy.namespace, policy.title) == ("", "ClusterRecoveryPolicy standard")


class TestConfigs:
    def test_what_the_platform_allows_and_pauses(self) -> None:
        spec = {"paused": True, "pauseReason": "maintenance", "allow": {"failJob": True}}
        config = decode_config(recovery_config(spec)).value
        assert (config.name, config.uid, config.generation) == ("default", "c-1", 2)
        assert config.spec == ConfigSpec(paused=True, pause_reason="maintenance", allow=AllowSpec(fail_job=True))
        assert config.unreadable == ""

    def test_its_status_is_the_ledger_of_the_fleet(self) -> None:
        suspicion = {"node": "gpu-3", "incident": "i-1", "at": "2026-11-21T10:00:00Z"}
        config = decode_config(recovery_config({}, {"suspicions": [suspicion]})).value
        assert config.fleet == FleetLedger(suspicions=(Suspicion("gpu-3", "i-1", at("10:00:00")),))
        assert config.resource_version == "7"
        assert decode_config(recovery_config({})).value.fleet == FleetLedger()

    def test_a_status_that_cannot_be_read_is_never_taken_for_an_empty_one(self) -> None:
        config = decode_config(recovery_config({"paused": False}, {"quarantined": [{"node": 3}]})).value
        assert "at `$.status.quarantined[0].node" in config.unreadable
        assert "so all recoveries are paused" in message(config.pause)

    @pytest.mark.parametrize("spec", [{"paused": "yes"}, {"allow": None}, []])
    def test_one_that_cannot_be_read_pauses_everything(self, spec: object) -> None:
        config = decode_config(recovery_config(spec)).value
        assert "at `$.spec" in config.unreadable
        assert "so all recoveries are paused" in message(config.pause)


def with_an_unknown_class(status: Body) -> Body:
    """The status as it is written again. Time that was booked without a class counts as class Unknown."""
    totals = status["totals"]
    if "idleGpuSecondsByClass" in totals:
        return status
    return {**status, "totals": {**totals, "idleGpuSecondsByClass": {"Unknown": totals["idleGpuSeconds"]}}}


def in_sentences(status: Body) -> Body:
    """A ledger as it is written today, without the codes that earlier versions did not write."""
    incident = dict(status["incident"])
    for name in ("told", "tooLate", "wouldMessage", "heldReason"):
        incident.pop(name, None)
    attempts = [in_one_sentence(each) for each in incident.get("attempts", [])]
    considered = [f"{each['action']}: {each['message']}" for each in incident.pop("alternatives", [])]
    incident |= {name: found for name, found in (("attempts", attempts), ("considered", considered)) if found}
    requests = [
        {name: value for name, value in each.items() if name != "reason"} for each in status.get("requests", [])
    ]
    told = in_one_sentence(status | {"incident": in_one_sentence(incident)})
    history = [in_one_sentence(each) for each in status.get("history", [])]
    return told | {name: found for name, found in (("requests", requests), ("history", history)) if found}


def in_one_sentence(record: Body) -> Body:
    message, then = record["message"], record.get("then")
    told = record | {"reason": f"{message}; then {then}" if then else message}
    return {name: value for name, value in told.items() if name not in ("message", "then")}


def recovery_config(spec: object, status: object = None) -> bytes:
    metadata = {"name": "default", "uid": "c-1", "resourceVersion": "7", "generation": 2}
    body = {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": spec}
    return json.dumps(body if status is None else {**body, "status": status}).encode()


class TestLedgers:
    def test_what_a_controller_of_version_1_wrote_is_read_and_its_incident_goes_on(self) -> None:
        """The fixture was written by the last commit before version 2."""
        found = decode_recovery_group(fixture("recoverygroup-v1")).value
        assert not found.labelled
        assert found.schema_version == 1, "as found"
        assert found.ledger.schema_version == WITHOUT_RESUMING, "as it is written next"
        incident = found.ledger.incident
        assert incident is not None
        assert incident.closing is None
        assert (found.ledger.phase, found.ledger.epoch, incident.charged) == (Phase.TEARING_DOWN, 2, True)
        assert incident.target == Target("0960e724-676e-452b-8e2e-6b0ceae771f6", (JOB_UID,))
        assert (incident.pinned.backoff_initial_seconds, incident.pinned.on_exhausted) == (0.0, "Hold")
        assert (incident.suspension, found.ledger.requests) == (None, ())
        assert [closed.outcome for closed in found.ledger.history] == [Outcome.RECOVERED]

    def test_the_label_of_birth_settings_counts_by_its_value(self) -> None:
        for value, labelled in (("true", True), ("false", False), ("", False)):
            labels = {"recovery.trainjob.dev/birth-settings": value, "a": "b"}
            assert decode_recovery_group(changed("recoverygroup", metadata__labels=labels)).value.labelled is labelled

    def test_what_a_controller_of_version_2_wrote_is_read(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup-v2")).value
        assert (found.schema_version, found.ledger.phase) == (2, Phase.BACKOFF)
        incident = found.ledger.incident
        assert incident is not None
        assert incident.suspension == Suspension(until=found.ledger.next_attempt_at, landed=True)
        assert [(answer.verb, answer.accepted) for answer in found.ledger.requests] == [
            ("reset-budget", True),
            ("restart", False),
        ]

    def test_what_a_controller_of_version_3_wrote_is_read(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup-v3")).value
        incident = found.ledger.incident
        assert (found.schema_version, found.ledger.phase) == (3, Phase.HELD)
        assert incident is not None
        assert incident.held is not None
        assert incident.held.reason is Reason.BAD_CHECKPOINT
        assert "a suspected bad checkpoint" in incident.held.message
        assert [rule.name for rule in incident.pinned.rules] == ["preempted"]
        assert [mark.node for mark in found.ledger.failures] == ["gpu-2"]

    @pytest.mark.parametrize(
        ("name", "version"), [("v4", WITHOUT_RESUMING), ("v5", WITHOUT_SIZES), ("v6", SCHEMA_VERSION)]
    )
    def test_nothing_that_stands_in_a_ledger_is_lost_when_it_is_written_again(self, name: str, version: int) -> None:
        raw = fixture(f"recoverygroup-{name}")
        status = json.loads(raw)["status"]
        assert status["schemaVersion"] == version
        written = json.loads(msgspec.json.encode(decode_recovery_group(raw).value.ledger))
        assert written == with_an_unknown_class(status)

    @pytest.mark.parametrize("version", range(1, 4))
    def test_nothing_that_stands_in_an_earlier_ledger_is_lost_when_it_is_written_again(self, version: int) -> None:
        raw = fixture(f"recoverygroup-v{version}")
        status = json.loads(raw)["status"]
        assert status["schemaVersion"] == version
        written = json.loads(msgspec.json.encode(decode_recovery_group(raw).value.ledger))
        assert written["schemaVersion"] == WITHOUT_RESUMING
        assert in_sentences(written) == {**with_an_unknown_class(status), "schemaVersion": WITHOUT_RESUMING}

    @pytest.mark.parametrize("version", range(1, 4))
    def test_every_sentence_of_the_earlier_versions_is_known(self, version: int) -> None:
        ledger = decode_recovery_group(fixture(f"recoverygroup-v{version}")).value.ledger
        assert ledger.incident is not None
        reasons = [ledger.reason, ledger.incident.reason, *(each.reason for each in ledger.incident.attempts)]
        reasons += [*(each.reason for each in ledger.history), *(each.reason for each in ledger.requests)]
        assert Reason.UNKNOWN not in reasons

    def test_a_ledger_as_the_controller_wrote_it(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup")).value
        assert found.workload_uid == "1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert found.name == "llm-1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert (found.group, found.resource_version, found.schema_version) == ("llm", "958", 1)
        assert (found.ledger.epoch, found.ledger.phase) == (2, Phase.HELD)

    def test_a_ledger_of_a_bare_job_set_says_so(self) -> None:
        reference = {"kind": "JobSet", "name": "llm", "uid": "bare"}
        found = decode_recovery_group(changed("recoverygroup", spec={"workloadRef": reference})).value
        assert (found.workload_kind, found.group, found.workload_uid) == ("JobSet", "llm", "bare")
        assert decode_recovery_group(fixture("recoverygroup")).value.workload_kind == "TrainJob"

    def test_no_status_is_an_empty_ledger(self) -> None:
        found = decode_recovery_group(changed("recoverygroup", status=None)).value
        assert (found.ledger, found.schema_version) == (Ledger(), WITHOUT_RESUMING)

    def test_a_newer_ledger_keeps_its_version_and_nothing_else(self) -> None:
        status = {"schemaVersion": 7, "epoch": 9, "phase": "Levitating"}
        found = decode_recovery_group(changed("recoverygroup", status=status)).value
        assert (found.ledger, found.schema_version) == (Ledger(), 7)

    @pytest.mark.parametrize("status", [{"phase": "Levitating"}, {"schemaVersion": "one"}, {"epoch": None}, []])
    def test_a_ledger_that_cannot_be_read_is_never_taken_for_an_empty_one(self, status: object) -> None:
        body = json.loads(fixture("recoverygroup"))
        body["status"] = status
        found = decode_recovery_group(json.dumps(body).encode()).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION != SCHEMA_VERSION
        assert found.ledger.message.startswith("status is not a ledger of this version: ")

    def test_nor_is_one_of_a_version_that_never_was(self) -> None:
        found = decode_recovery_group(changed("recoverygroup", status={"schemaVersion": 0, "epoch": 9})).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION
        assert found.ledger.message == "status has schemaVersion 0, which never was"
