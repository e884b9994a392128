"""Our own suspension of a workload, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.plan import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (explained(Sentence.RESUMED_BEFORE, Reason.RESUMED_BY_OTHERS), "another client has resumed this job before"),
    (because(Reason.KUEUE, known_by="queue research"), "Kueue owns the suspension of this job (queue research)"),
    (
        because(Reason.DEADLINE, kind="JobSet", seconds=3600),
        "a suspension would reset the deadline of the JobSet (3600 s)",
    ),
    (
        because(Reason.SUSPENSION_RELEASED, why="the job is paused by annotation"),
        "the controller ends its suspension, because the job is paused by annotation",
    ),
    (because(Reason.RESUMED_BY_OTHERS), "another client has resumed it"),
    (because(Reason.NOT_SUSPENDED_IN_TIME), "it was not suspended in time"),
    (
        because(Reason.SUSPENSION_OVER, incident="0d2f5c9e-7", kind="TrainJob"),
        "the suspension of incident 0d2f5c9e-7 is over: the TrainJob is resumed",
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
