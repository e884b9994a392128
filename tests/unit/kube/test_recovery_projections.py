"""What the controller keeps of its own kinds: policies, the config and ledgers."""

import json

import msgspec
import pytest

from recovery.core.model.config import AllowSpec, ConfigSpec
from recovery.core.model.fleet_ledger import FleetLedger, Suspicion
from recovery.core.model.ledger import (
    SCHEMA_VERSION,
    Ledger,
    Phase,
)
from recovery.core.policy.spec import Mode
from recovery.kube.projections.recovery import (
    UNREADABLE_SCHEMA_VERSION,
    decode_config,
    decode_policy,
    decode_recovery_group,
)
from tests.unit.kube.projected import at, changed
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
        suspicion |= {"reason": "an exit", "namespace": "ml"}
        config = decode_config(recovery_config({}, {"suspicions": [suspicion]})).value
        assert config.fleet == FleetLedger(suspicions=(Suspicion("gpu-3", "i-1", at("10:00:00"), "an exit", "ml"),))
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


def recovery_config(spec: object, status: object = None) -> bytes:
    metadata = {"name": "default", "uid": "c-1", "resourceVersion": "7", "generation": 2}
    body = {"metadata": {**metadata, "creationTimestamp": "2026-11-21T09:00:00Z"}, "spec": spec}
    return json.dumps(body if status is None else {**body, "status": status}).encode()


class TestLedgers:
    def test_the_label_of_birth_settings_counts_by_its_value(self) -> None:
        for value, labelled in (("true", True), ("false", False), ("", False)):
            labels = {"recovery.trainjob.dev/birth-settings": value, "a": "b"}
            assert decode_recovery_group(changed("recoverygroup", metadata__labels=labels)).value.labelled is labelled

    @pytest.mark.parametrize("name", ["tearing-down", "resuming", "shrinking"])
    def test_nothing_in_a_ledger_is_lost_when_it_is_written_again(self, name: str) -> None:
        raw = fixture(f"recoverygroup-{name}")
        written = json.loads(msgspec.json.encode(decode_recovery_group(raw).value.ledger))
        assert written == json.loads(raw)["status"]

    def test_a_ledger_as_the_controller_wrote_it(self) -> None:
        found = decode_recovery_group(fixture("recoverygroup")).value
        assert found.workload_uid == "1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert found.name == "llm-1a93898b-ffca-4ca8-9e18-ad099985668f"
        assert (found.group, found.resource_version, found.schema_version) == ("llm", "958", SCHEMA_VERSION)
        assert (found.ledger.epoch, found.ledger.phase) == (2, Phase.HELD)

    def test_a_ledger_of_a_bare_job_set_says_so(self) -> None:
        reference = {"kind": "JobSet", "name": "llm", "uid": "bare"}
        found = decode_recovery_group(changed("recoverygroup", spec={"workloadRef": reference})).value
        assert (found.workload_kind, found.group, found.workload_uid) == ("JobSet", "llm", "bare")
        assert decode_recovery_group(fixture("recoverygroup")).value.workload_kind == "TrainJob"

    def test_no_status_is_an_empty_ledger(self) -> None:
        found = decode_recovery_group(changed("recoverygroup", status=None)).value
        assert (found.ledger, found.schema_version) == (Ledger(), SCHEMA_VERSION)

    def test_a_newer_ledger_keeps_its_version_and_nothing_else(self) -> None:
        status = {"schemaVersion": SCHEMA_VERSION + 1, "epoch": 9, "phase": "Levitating"}
        found = decode_recovery_group(changed("recoverygroup", status=status)).value
        assert (found.ledger, found.schema_version) == (Ledger(), SCHEMA_VERSION + 1)

    @pytest.mark.parametrize(
        "status",
        [
            {"schemaVersion": SCHEMA_VERSION, "phase": "Levitating"},
            {"schemaVersion": "one"},
            {"schemaVersion": SCHEMA_VERSION, "epoch": None},
            [],
            {},
            {"epoch": 9},
        ],
        ids=["a phase", "a version", "an epoch", "a list", "empty", "no version"],
    )
    def test_a_ledger_that_cannot_be_read_is_never_taken_for_an_empty_one(self, status: object) -> None:
        body = json.loads(fixture("recoverygroup"))
        body["status"] = status
        found = decode_recovery_group(json.dumps(body).encode()).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION != SCHEMA_VERSION
        assert found.ledger.message.startswith("status is not a ledger of this version: ")

    def test_a_ledger_whose_step_contradicts_its_phase_cannot_be_read(self) -> None:
        """A person has edited it. To act on it could restart the group twice."""
        body = json.loads(fixture("recoverygroup-resuming"))
        body["status"]["incident"]["step"] = {"type": "Waiting"}
        found = decode_recovery_group(json.dumps(body).encode()).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION
        assert found.ledger.message.startswith("status contradicts itself: ")

    @pytest.mark.parametrize("version", [0, SCHEMA_VERSION - 1])
    def test_a_ledger_of_a_version_from_before_the_first_release_cannot_be_read(self, version: int) -> None:
        found = decode_recovery_group(changed("recoverygroup", status={"schemaVersion": version, "epoch": 9})).value
        assert found.schema_version == UNREADABLE_SCHEMA_VERSION
        assert found.ledger.message == f"status has schemaVersion {version}, the smallest is {SCHEMA_VERSION}"
