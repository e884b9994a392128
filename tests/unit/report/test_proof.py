"""The proof that a job recovers, in its report: as its ledger says it."""

import json
from datetime import timedelta

import pytest

from recovery.core.incident.proofs import RECOVERY_PROVEN
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger
from recovery.core.model.ledger_condition import LedgerCondition
from recovery.core.model.proof import RecoveryProof
from recovery.report.formats import ReportFormat
from recovery.report.proof_account import ProofAccount, proof_account
from recovery.report.rendering import rendered
from recovery.report.reports import job_report
from tests.unit.report.records import BEGAN, LLM, NOW, found, record

PROOF = RecoveryProof(BEGAN, 45.2, "0d2f5c9e-1", verified=True, source="agent", step=1200, run="one-pod-x7k2p")


def account(reason: str, status: str, proof: RecoveryProof = PROOF) -> ProofAccount:
    said = LedgerCondition(RECOVERY_PROVEN, status, reason, "why it counts or not", NOW)
    found_ = proof_account(Ledger(proof=proof, conditions=(said,)))
    assert found_ is not None
    return found_


def page(proof: ProofAccount, job: GroupKey = LLM) -> str:
    return rendered(job_report(LLM, found(record(), proofs={job: proof}), NOW), ReportFormat.MD)


def test_the_summary_says_that_a_recovery_proves_it() -> None:
    text = page(account("RecoveryProven", "True"))
    assert "2026-11-22 20:00:00 UTC proves that the job recovers: why it counts or not." in " ".join(text.split())


@pytest.mark.parametrize("reason", ["ProofExpired", "ProofOutdated"])
def test_the_summary_says_that_it_no_longer_does(reason: str) -> None:
    assert "no longer proves that the job recovers" in page(account(reason, "False"))


def test_the_summary_says_that_ready_pods_prove_nothing() -> None:
    unverified = RecoveryProof(BEGAN, 45.2, "0d2f5c9e-1", source="ready")
    assert "does not prove that the job recovers" in page(account("ProofNotVerified", "Unknown", unverified))


def test_without_a_proof_and_with_that_of_another_job_it_says_nothing() -> None:
    assert "the job recovers" not in rendered(job_report(LLM, found(record()), NOW), ReportFormat.MD)
    assert "the job recovers" not in page(account("RecoveryProven", "True"), GroupKey("team-b", "vision"))


def test_json_has_the_whole_proof() -> None:
    report = job_report(LLM, found(record(), proofs={LLM: account("RecoveryProven", "True")}), NOW)
    assert json.loads(rendered(report, ReportFormat.JSON))["proof"] == {
        "provenAt": "2026-11-22T20:00:00Z",
        "seconds": 45.2,
        "incident": "0d2f5c9e-1",
        "run": "one-pod-x7k2p",
        "step": 1200,
        "verified": True,
        "source": "agent",
        "counts": True,
        "reason": "RecoveryProven",
        "message": "why it counts or not",
    }


def test_a_ledger_without_a_proof_has_no_account() -> None:
    said = LedgerCondition(RECOVERY_PROVEN, "Unknown", "NeverProven", "", NOW - timedelta(days=1))
    assert proof_account(Ledger(conditions=(said,))) is None
