"""Prints every sentence of the controller with example values, so that reviewers can read them aloud.

python -m tests.unit.core.sentences
"""

from datetime import UTC, datetime

from recovery.cli.next_step import ON_ITS_WAY
from recovery.core.model.protection import Protection, ProtectionReason
from recovery.core.sentences.protection import remedy, sentence
from tests.unit.core.sentences import (
    test_diagnosis,
    test_drill,
    test_fleet,
    test_incident,
    test_plan,
    test_proof,
    test_sizes,
)
from tests.unit.core.sentences.test_decision import CASES

ROOMS = {
    "diagnosis": test_diagnosis.TOLD,
    "fleet": test_fleet.TOLD,
    "incident": test_incident.TOLD,
    "plan": test_plan.TOLD,
    "proof": test_proof.TOLD,
    "drill": test_drill.TOLD,
    "sizes": test_sizes.TOLD,
    "decision": CASES,
}


def answer(reason: ProtectionReason) -> Protection:
    """The answer about a job, with an example of each detail."""
    return Protection(
        reason=reason,
        kind="TrainJob",
        job="llm",
        policy="RecoveryPolicy ml/default",
        rule="spot",
        incident="0d2f5c9e-1",
        child_job="llm-node-0",
        recovery_group="llm-0d2f5c9e",
        detail="spec.budget.limit: must be 0 or more",
        until=datetime(2026, 11, 21, 12, tzinfo=UTC),
    )


def main() -> None:
    for room, cases in ROOMS.items():
        print(f"## {room}")
        for why, text in cases:
            print(f"{why.reason} {why.sentence}: {text}")
    print("## protection")
    for reason in ProtectionReason:
        print(f"{reason}: {sentence(answer(reason))} {remedy(answer(reason))}".rstrip())
    print("## next step of recovery status")
    for phase, words in ON_ITS_WAY.items():
        print(f"{phase}: {words}")


if __name__ == "__main__":
    main()
