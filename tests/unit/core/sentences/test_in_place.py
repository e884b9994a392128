"""Restarts in place as sentences: details in, text out."""

import pytest

from recovery.core.model.reason import Explanation, Reason, as_said, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.in_place import TEXTS

LOST = as_said(Reason.MEMBER_LOST, "the process of rank 3 ended with exit code 137")
CASES = (
    (
        explained(
            Sentence.RESTART_IN_PLACE,
            Reason.DEFAULT_RESTART,
            found=LOST,
            why="no rule matched",
            ranks=4,
            left="9 of 10 recoveries left",
        ),
        "the process of rank 3 ended with exit code 137; no rule matched: the agents start all 4 ranks again in their "
        "pods (9 of 10 recoveries left)",
    ),
    (
        because(Reason.RESTARTED_ALONE),
        "the agents have started all ranks again in their pods, as an earlier answer permits",
    ),
    (because(Reason.AGENTS_DO_NOT_ASK), "no agent waits for a decision about it"),
    (because(Reason.MORE_THAN_A_PROCESS), "more than a process was lost, or an agent does not answer"),
    (because(Reason.RESTARTED_ALREADY), "this incident has restarted the group before"),
    (because(Reason.IN_PLACE_IN_A_ROW, count=3), "3 restarts in place have followed one another"),
    (because(Reason.SAME_ERROR_IN_PLACE), "the same error has led to a restart before"),
    (because(Reason.WAITING_FOR_AGENTS), "waiting for a report of the agents"),
    (because(Reason.AGENTS_GAVE_UP, stuck=0), "the agents could not start the ranks again in their pods"),
    (
        because(Reason.AGENTS_GAVE_UP, stuck=2),
        "the agents could not start the ranks again in their pods, because the kernel does not end a process in 2 of "
        "them",
    ),
    (
        because(
            Reason.AGENT_BLOCKS_START, pod="pod llm-2-x (rank 2, node gpu-2)", words="ErrImagePull: AGENT: not found"
        ),
        "the agent keeps pod llm-2-x (rank 2, node gpu-2) from starting: ErrImagePull: AGENT: not found",
    ),
    (
        explained(Sentence.LEAVES_OUT_AGENT, Reason.AGENT_BLOCKS_START, job="ml/train"),
        "the next Jobs of ml/train are created without the agent",
    ),
    (because(Reason.IN_PLACE_TIMEOUT, seconds=60), "not all ranks ran again in their pods within 60 s"),
)


@pytest.mark.parametrize(("why", "sentence"), CASES, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(CASES)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in CASES} == set(TEXTS)
