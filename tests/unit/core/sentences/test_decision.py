"""Decisions about a group, as sentences: details in, text out.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation
from recovery.core.sentences import render
from recovery.core.sentences.decision import TEXTS
from tests.unit.core.sentences.decision_on_crash_loops import ON_CRASH_LOOPS
from tests.unit.core.sentences.decision_on_joining import ON_JOINING
from tests.unit.core.sentences.decision_on_losses import ON_LOSSES
from tests.unit.core.sentences.decision_on_restarts import ON_RESTARTS
from tests.unit.core.sentences.decision_on_waits import ON_WAITS
from tests.unit.core.sentences.decision_without_incident import WITHOUT_INCIDENT

CASES = (*WITHOUT_INCIDENT, *ON_LOSSES, *ON_RESTARTS, *ON_WAITS, *ON_JOINING, *ON_CRASH_LOOPS)


@pytest.mark.parametrize(("why", "sentence"), CASES, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(CASES)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in CASES} == set(TEXTS)
