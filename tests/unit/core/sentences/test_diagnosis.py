"""What happened and who else decides about it, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.diagnosis import TEXTS

LOSSES = explained(
    Sentence.LOSSES, Reason.MEMBER_LOST, kind="PodDisrupted", count=16, detail="EvictionByEvictionAPI", seconds=3
)
TOLD: tuple[tuple[Explanation, str], ...] = (
    (because(Reason.MEMBER_LOST, evidence="pod llm-0 failed"), "pod llm-0 failed"),
    (LOSSES, "16 pods were disrupted (EvictionByEvictionAPI) within 3 s"),
    (
        explained(Sentence.LOSSES, Reason.MEMBER_LOST, kind="PodDeleted", count=1, detail="", seconds=1),
        "1 pod was deleted",
    ),
    (
        explained(Sentence.LOST_TOGETHER, Reason.MEMBER_LOST, losses=LOSSES, first="pod llm-0 was disrupted"),
        "16 pods were disrupted (EvictionByEvictionAPI) within 3 s; the first of them: pod llm-0 was disrupted",
    ),
    (
        because(Reason.MEMBER_LOST_AGAIN, evidence="Job train-node-0 is failing: BackoffLimitExceeded"),
        "Job train-node-0 is failing: BackoffLimitExceeded",
    ),
    (
        explained(Sentence.LOST_AGAIN_SINCE, Reason.MEMBER_LOST_AGAIN, evidence="pod llm-node-0-1 failed"),
        "pod llm-node-0-1 failed; a member was lost again since",
    ),
    (
        explained(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job="train-node-0"),
        "Job train-node-0 has met its success criteria",
    ),
    (
        explained(Sentence.MEMBER_SUCCEEDED, Reason.JOB_FINISHING, who="pod train-node-0-0-20"),
        "pod train-node-0-0-20 has Succeeded, so the training is finishing",
    ),
    (
        explained(Sentence.CONTAINER_SUCCEEDED, Reason.JOB_FINISHING, containers="node", pod="llm-node-0-1"),
        "container node of pod llm-node-0-1 has exited 0, so the training is finishing",
    ),
    (
        because(Reason.COLLECTIVE_ANNOTATED, whose="the TrainJob", value="SelfHealing"),
        "the annotation recovery.trainjob.dev/collective of the TrainJob says SelfHealing",
    ),
    (
        because(Reason.COLLECTIVE_UNKNOWN, whose="the pod template of Job train-node-0", value="elastic"),
        (
            "the annotation recovery.trainjob.dev/collective of the pod template of Job train-node-0 says elastic, "
            "which is none of Required, SelfHealing, Independent"
        ),
    ),
    (
        because(Reason.COLLECTIVE_BY_LAUNCH, shown_by="torchrun --max-restarts=3 of Job train-node-0"),
        "torchrun --max-restarts=3 of Job train-node-0 replaces a lost rank itself",
    ),
    (
        explained(Sentence.STARTS_ALL_RANKS, Reason.COLLECTIVE_BY_LAUNCH, shown_by="mpirun of Job train-launcher-0"),
        "mpirun of Job train-launcher-0 starts and ends the ranks of all pods, so only its own end and start count",
    ),
    (
        explained(
            Sentence.RANKS_ARE_INDEPENDENT, Reason.COLLECTIVE_BY_LAUNCH, shown_by="ray start of Job train-node-0"
        ),
        "with ray start of Job train-node-0 no rank waits for another",
    ),
    (
        because(Reason.COLLECTIVE_ASSUMED),
        "nothing in its launch shows that it replaces a lost rank itself",
    ),
    (
        because(Reason.POD_FAILURE_POLICY, number=0, job="train-node-0", action="Ignore", pod="train-node-0-1-20"),
        ("podFailurePolicy rule 0 of Job train-node-0 (action Ignore) matches pod train-node-0-1-20"),
    ),
    (
        because(Reason.JOB_FAILS_BY_ITS_SPEC, job="train-node-0", failing_reason="PodFailurePolicy"),
        "Job train-node-0 is failing with reason PodFailurePolicy, as its spec requires",
    ),
    (
        because(Reason.MAX_RESTARTS, jobset="train", limit=0),
        ("the failurePolicy of JobSet train allows no more restarts (maxRestarts 0 is exhausted)"),
    ),
    (
        because(Reason.FAILURE_POLICY, jobset="train", job="train-node-0"),
        "the failurePolicy of JobSet train decides on the failing Job train-node-0",
    ),
    (because(Reason.BACKOFF_LIMIT_ZERO, job="llm"), "Job llm has backoffLimit 0: it fails with its first pod"),
    (
        because(Reason.INDEX_FAILED, job="train-node-0", index="1", limit=2),
        "Job train-node-0 has given up index 1 (backoffLimitPerIndex 2)",
    ),
    (
        explained(Sentence.INDEX_FAILS_NOW, Reason.INDEX_FAILED, job="train-node-0", index="3", limit=2),
        "Job train-node-0 gives up index 3 with this failure (backoffLimitPerIndex 2)",
    ),
    (
        because(Reason.TRAINED_TO_THE_END, containers="node", pod="train-node-0-3-10", others="logs"),
        "container node of pod train-node-0-3-10 exited 0 and container logs failed the pod, so its Job decides what "
        "follows",
    ),
    (
        because(Reason.TRAINED_TO_THE_END, containers="node", pod="train-node-0-3-10", others=""),
        "container node of pod train-node-0-3-10 exited 0, but the pod failed, so its Job decides what follows",
    ),
    (
        explained(
            Sentence.TRAINED_BEFORE_POD_LOST, Reason.TRAINED_TO_THE_END, containers="node", pod="train-node-0-3-10"
        ),
        ("container node of pod train-node-0-3-10 exited 0 before the pod was lost, so its Job decides what follows"),
    ),
    (
        explained(Sentence.FAILURE_POLICY_AT_ONCE, Reason.FAILURE_POLICY, jobset="llm"),
        "the failurePolicy of JobSet llm decides as soon as a Job fails",
    ),
    (because(Reason.JOB_FAILING), "Job <job> is failing"),
    (
        because(Reason.BACKOFF_LIMIT, job="train-node-0", limit=5, exits=3, ranks=4),
        ("Job train-node-0 (backoffLimit 5) survives only 3 more exits, and 4 ranks may exit while they wait"),
    ),
    (
        explained(Sentence.INDEX_EXITS_UNKNOWN, Reason.BACKOFF_LIMIT, job="llm-node-0"),
        ("Job llm-node-0 has a backoffLimitPerIndex, and it is not known how many exits each index has left"),
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
