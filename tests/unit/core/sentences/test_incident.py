"""What bars the controller and limits its attempts, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.incident import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (as_said(Reason.GLOBAL_PAUSE, "all is paused"), "all is paused"),
    (
        explained(
            Sentence.BOTH,
            Reason.NODE_SWALLOWS_PODS,
            first=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
                "members run on 6 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is "
                "from incident other-7)"
            ),
            more=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError: no space left, while "
                "members run on 6 other nodes: node gpu-3 is suspected (2 of 2 suspicions; the one before is "
                "from incident other-7): quarantining it; the group is not restarted: delete the pod on that "
                "node by hand"
            ),
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
            "members run on 6 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is from "
            "incident other-7); pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError: no "
            "space left, while members run on 6 other nodes: node gpu-3 is suspected (2 of 2 suspicions; the "
            "one before is from incident other-7): quarantining it; the group is not restarted: delete the pod "
            "on that node by hand"
        ),
    ),
    (explained(Sentence.JOB_WAS_DELETED, Reason.JOB_DELETED), "the job was deleted"),
    (because(Reason.JOB_DELETED, what="the TrainJob"), "the TrainJob is being deleted"),
    (because(Reason.JOB_COMPLETE, what="the TrainJob", state="Complete"), "the TrainJob is Complete"),
    (because(Reason.JOB_SUSPENDED, what="the TrainJob"), "the TrainJob is suspended"),
    (because(Reason.NO_JOB_SET, kind="TrainJob"), "the TrainJob has no JobSet"),
    (because(Reason.JOB_SET_DELETED, what="JobSet llm"), "JobSet llm is being deleted"),
    (because(Reason.JOB_SET_REPLACED), "the JobSet was replaced by another"),
    (
        because(Reason.STALE_FACTS, resources="jobs, pods", since="2026-11-21T12:00:00+00:00"),
        "the watches of jobs, pods have been silent since 2026-11-21T12:00:00+00:00",
    ),
    (
        because(Reason.UNDECODABLE, first="Pod ml/pod-0 cannot be read: no", more=49),
        (
            "Pod ml/pod-0 cannot be read: no (and 49 more); nothing is done about this job until that is "
            "corrected or deleted"
        ),
    ),
    (
        because(
            Reason.UNDECODABLE,
            first="Pod team-a/llm-0 cannot be read: Expected `str`, got `int` - at `$.status.phase`",
            more=0,
        ),
        (
            "Pod team-a/llm-0 cannot be read: Expected `str`, got `int` - at `$.status.phase`; nothing is done "
            "about this job until that is corrected or deleted"
        ),
    ),
    (because(Reason.POLICY_GONE), "the RecoveryPolicy was deleted or no longer selects this job"),
    (because(Reason.POLICY_INVALID, error="spec: no"), "the RecoveryPolicy cannot be used: spec: no"),
    (
        explained(Sentence.SWITCHED_TO_OBSERVE, Reason.OBSERVE_MODE, policy="default"),
        "policy default was switched to Observe",
    ),
    (explained(Sentence.IN_MODE_OBSERVE, Reason.OBSERVE_MODE, policy="default"), "policy default is in mode Observe"),
    (because(Reason.JOB_PAUSED), "the job is paused by annotation"),
    (
        because(Reason.BUDGET_EXHAUSTED, policy="default", limit=1, window="1h"),
        "the budget of policy default is exhausted (limit 1 within 1h)",
    ),
    (
        explained(
            Sentence.ATTEMPTS_BY_BUDGET, Reason.ATTEMPTS_EXHAUSTED, count=2, policy="default", limit=2, window="1h"
        ),
        ("2 attempts of this incident have failed and the budget of policy default (limit 2 within 1h) allows no more"),
    ),
    (
        explained(
            Sentence.ATTEMPTS_WHATEVER_BUDGET,
            Reason.ATTEMPTS_EXHAUSTED,
            count=20,
            policy="default",
            limit=25,
            window="1h",
        ),
        (
            "20 attempts of this incident have failed, and no incident gets more within 1h, even if the budget "
            "of policy default (limit 25 within 1h) is not exhausted"
        ),
    ),
    (because(Reason.FAILING_JOB_SET), "the controller is failing its JobSet"),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
