"""Quarantine, suspicion, the breaker and the pause of the whole cluster, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.fleet import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (because(Reason.QUARANTINE_NOT_ALLOWED), "RecoveryConfig spec.allow.cordon does not allow quarantine"),
    (
        because(Reason.QUARANTINE_CAP, count=0, cap=0, field="RecoveryConfig spec.quarantine.maxNodes 0"),
        "quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)",
    ),
    (
        because(Reason.QUARANTINE_NAMESPACE_CAP, namespace="ml", count=5, cap=5),
        "namespace ml has caused 5 of the 5 quarantines that one namespace may cause without a condition, "
        "taint or device of the node that confirms them",
    ),
    (
        because(Reason.MESSAGE_UNCONFIRMED, namespace="ml", node="gpu-2"),
        "only messages of pods in namespace ml blame node gpu-2; a condition, taint or device of the node, or "
        "a job of another namespace, has to confirm them",
    ),
    (
        explained(Sentence.LAST_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=4, left=4),
        ("the group needs this node: 4 nodes fit its pods, and it takes 4"),
    ),
    (
        explained(Sentence.TOO_FEW_NODES, Reason.QUARANTINE_LAST_NODES, whose="the group", needed=3, left=2),
        ("the group needs this node: only 2 nodes fit its pods, and it takes 3"),
    ),
    (
        because(Reason.FEASIBLE_NODES_UNKNOWN),
        "it is not known yet whether enough other nodes fit the pods of all groups",
    ),
    (
        because(Reason.NODE_PROVEN, proof="XidOffTheBus", node="gpu-2"),
        "XidOffTheBus is proof enough against node gpu-2",
    ),
    (
        because(Reason.NODE_SUSPECTED, node="gpu-2", count=1, most=2, before=""),
        "node gpu-2 is suspected (1 of 2 suspicions)",
    ),
    (
        because(Reason.NODE_SUSPECTED, node="gpu-2", count=2, most=2, before="other-7"),
        "node gpu-2 is suspected (2 of 2 suspicions; the one before is from incident other-7)",
    ),
    (
        because(Reason.NODE_SUSPECTED_TWICE, node="gpu-2"),
        "this incident suspects node gpu-2 for the second time",
    ),
    (
        because(Reason.RECOVERIES_IN_VAIN, recoveries=1, minutes="60", limit=1),
        ("1 recovery within 60 minutes brought no progress (RecoveryConfig spec.circuitBreaker.recoveries 1)"),
    ),
    (
        because(Reason.RECOVERIES_IN_VAIN, recoveries=0, minutes="0", limit=0),
        ("0 recoveries within 0 minutes brought no progress (RecoveryConfig spec.circuitBreaker.recoveries 0)"),
    ),
    (
        because(Reason.BREAKER_OPEN, why="5 recoveries within 60 minutes brought no progress"),
        (
            "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; "
            "recovery reset-breaker closes it"
        ),
    ),
    (
        explained(
            Sentence.BREAKER_OPENED, Reason.RECOVERIES_IN_VAIN, why="5 recoveries within 60 minutes brought no progress"
        ),
        (
            "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; every policy of "
            "the cluster counts as mode Observe until someone runs recovery reset-breaker"
        ),
    ),
    (
        explained(
            Sentence.BREAKER_CLOSED, Reason.RECOVERIES_IN_VAIN, why="5 recoveries within 60 minutes brought no progress"
        ),
        (
            "the circuit breaker is closed: policies in mode Enforce act again; it had opened "
            "because 5 recoveries within 60 minutes brought no progress"
        ),
    ),
    (because(Reason.GLOBAL_PAUSE, config="default", why=""), "RecoveryConfig default pauses all recoveries"),
    (
        because(Reason.GLOBAL_PAUSE, config="default", why="storm"),
        "RecoveryConfig default pauses all recoveries: storm",
    ),
    (
        explained(
            Sentence.NO_USABLE_CONFIG,
            Reason.GLOBAL_PAUSE,
            error="RecoveryConfig default: spec.circuitBreaker.within: no duration",
        ),
        "RecoveryConfig default: spec.circuitBreaker.within: no duration",
    ),
    (
        explained(
            Sentence.CONFIG_UNREADABLE,
            Reason.GLOBAL_PAUSE,
            config="default",
            error="Expected `object`, got `array` - at `$.spec`",
        ),
        (
            "RecoveryConfig default cannot be read (Expected `object`, got `array` - at "
            "`$.spec`), so all recoveries are paused"
        ),
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
