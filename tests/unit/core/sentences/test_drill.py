"""What becomes of a drill, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.drill import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (
        explained(
            Sentence.EVENT_OF_DRILL, Reason.DRILL_ACCEPTED, drill="lose-a-rank-x7k2p", said="all 4 ranks are Ready"
        ),
        "drill lose-a-rank-x7k2p: all 4 ranks are Ready",
    ),
    (
        because(Reason.DRILL_LIMIT_OF_DAY, count=12, limit=12),
        "12 repeats of drills of this job count within 24 hours, and RecoveryConfig spec.drills.perJobAndDay is 12; "
        "wait, or raise it",
    ),
    (
        because(Reason.DRILL_OVERLAPS, other="lose-a-rank-x7k2p"),
        "drill lose-a-rank-x7k2p of the same job is running; wait until it ends, or run recovery chaos abort "
        "lose-a-rank-x7k2p",
    ),
    (
        because(Reason.DRILL_TOO_LONG, expires="2026-11-21T18:00:00Z"),
        "spec.expiresAt is 2026-11-21T18:00:00Z; use a time in the future, at most 4 hours after the creation of the "
        "drill",
    ),
    (
        because(Reason.DRILL_NAMES_NO_MEMBER, pod="llm-node-0-3-x2x2x", job="research/llm"),
        "pod llm-node-0-3-x2x2x is no member of research/llm, or has ended already, so its failure is no drill",
    ),
    (because(Reason.DRILL_AS_EXPECTED, what="recovered in 20.1 s"), "as expected: recovered in 20.1 s"),
    (because(Reason.DRILL_UNEXPECTED_INCIDENTS, count=0, expected=1), "0 incidents were opened, 1 expected"),
    (because(Reason.DRILL_UNEXPECTED_INCIDENTS, count=1, expected=0), "1 incident was opened, 0 expected"),
    (
        because(Reason.DRILL_NOT_RECOVERED, incident="0d2f5c9e-7", state="ended as Held"),
        "incident 0d2f5c9e-7 ended as Held",
    ),
    (because(Reason.DRILL_TOO_SLOW, seconds="91", limit="90"), "the recovery took 91 s, longer than 90 s"),
    (
        because(Reason.DRILL_TOO_COSTLY, gpu_seconds="20480", limit="20000"),
        "the incidents left 20480 GPU-seconds idle, more than 20000",
    ),
    (
        because(Reason.DRILL_RESUMED_EARLIER, step=0, expected="any checkpoint"),
        "the training continued from step 0, before any checkpoint",
    ),
    (
        because(Reason.DRILL_RESUME_UNKNOWN, why="no agent reports training steps"),
        "it is not known from which step the training continued: no agent reports training steps",
    ),
    (
        because(Reason.DRILL_DISTURBED, what="incident 0d2f5c9e-8 (Exit1)"),
        "something else than the drill happened during it: incident 0d2f5c9e-8 (Exit1)",
    ),
    (
        because(Reason.DRILL_ABANDONED, expires="2026-11-21T13:00:00Z"),
        "the client that ran the drill did not end it before 2026-11-21T13:00:00Z",
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[str(why.sentence) for why, _ in TOLD])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
