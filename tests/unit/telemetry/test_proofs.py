"""The metrics of the proof that a job recovers."""

from datetime import timedelta

import msgspec
import pytest

from recovery.core.incident.proofs import RECOVERY_PROVEN
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.proof import RecoveryProof
from recovery.core.policy.resolved import PolicyFacts
from recovery.core.policy.selection import applicable
from recovery.core.policy.spec import Mode, PolicySpec, ProofSpec
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import snapshot_of
from tests.unit.telemetry.world import BEGIN, KEY, UID, Group, HeldStore, Scrape, workload

VALID = "recovery_proof_valid"
TIMESTAMP = "recovery_proven_timestamp_seconds"
PROOF = RecoveryProof(BEGIN + timedelta(seconds=45), 45.0, "11111111-1", verified=True)
STATES = {
    "RecoveryProven": ("True", 1.0),
    "ProofExpired": ("False", 0.0),
    "ProofOutdated": ("False", 0.0),
    "ProofNotVerified": ("Unknown", 0.0),
    "NeverProven": ("Unknown", 0.0),
}


def asks(store: HeldStore, metrics: Telemetry, *, mode: Mode = Mode.ENFORCE, max_age: str | None = "720h") -> None:
    """A reconcile has read the policy and the pods of the job, which run."""
    spec = PolicySpec(mode=mode, drill=ProofSpec(max_age))
    store.policy_facts = (PolicyFacts("default", KEY.namespace, "p", 1, spec, BEGIN, BEGIN),)
    runs(store, metrics, pods=2)


def runs(store: HeldStore, metrics: Telemetry, *, pods: int) -> None:
    snapshot = msgspec.structs.replace(snapshot_of(KEY, pods), workload=workload())
    metrics.facts_read(KEY, snapshot, applicable(store.policies(KEY.namespace), workload()))


def says(store: HeldStore, reason: str, *, proof: RecoveryProof | None = PROOF) -> None:
    known = store.groups[UID]
    condition = LedgerCondition(RECOVERY_PROVEN, STATES[reason][0], reason, "", BEGIN)
    ledger = msgspec.structs.replace(known.ledger, conditions=(condition,), proof=proof)
    store.groups[UID] = msgspec.structs.replace(known, ledger=ledger)


@pytest.mark.parametrize("reason", STATES)
@pytest.mark.usefixtures("group")
def test_a_proof_is_valid_only_while_its_condition_is_true(store: HeldStore, metrics: Telemetry, reason: str) -> None:
    asks(store, metrics)
    says(store, reason)
    assert Scrape(metrics).of_job(VALID) == STATES[reason][1]


@pytest.mark.usefixtures("group")
def test_a_job_that_never_recovered_has_no_date_and_no_valid_proof(store: HeldStore, metrics: Telemetry) -> None:
    asks(store, metrics)
    scrape = Scrape(metrics)
    assert (scrape.of_job(TIMESTAMP), scrape.of_job(VALID)) == (None, 0.0)


@pytest.mark.usefixtures("group")
def test_the_date_is_that_of_the_last_proof_whether_it_counts_or_not(store: HeldStore, metrics: Telemetry) -> None:
    asks(store, metrics, max_age=None)
    says(store, "ProofOutdated")
    assert Scrape(metrics).of_job(TIMESTAMP) == PROOF.proven_at.timestamp()


@pytest.mark.parametrize(
    ("mode", "max_age"), [(Mode.ENFORCE, None), (Mode.OBSERVE, "720h")], ids=["no maxAge", "Observe"]
)
@pytest.mark.usefixtures("group")
def test_where_no_policy_asks_for_a_proof_there_is_no_series(
    store: HeldStore, metrics: Telemetry, mode: Mode, max_age: str | None
) -> None:
    asks(store, metrics, mode=mode, max_age=max_age)
    says(store, "ProofExpired")
    assert Scrape(metrics).of_job(VALID) is None


def test_a_job_without_running_members_needs_a_proof_only_during_an_incident(
    store: HeldStore, metrics: Telemetry, group: Group
) -> None:
    asks(store, metrics)
    runs(store, metrics, pods=0)
    assert Scrape(metrics).of_job(VALID) is None
    group.fails()
    assert Scrape(metrics).of_job(VALID) == 0.0
