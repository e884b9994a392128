"""Whether the recovery of a group is proven, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.sentences import render
from recovery.core.sentences.proof import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (
        because(
            Reason.RECOVERY_PROVEN,
            how="drill one-pod-x7k2p",
            seconds=45,
            at_step=" and continued from step 1200",
            source="agent",
        ),
        "the group recovered from drill one-pod-x7k2p in 45 s and continued from step 1200, as its agent shows",
    ),
    (
        because(Reason.RECOVERY_PROVEN, how="incident 0d2f5c9e-7", seconds=45, at_step="", source="joined-probe"),
        "the group recovered from incident 0d2f5c9e-7 in 45 s, as its joined probe shows",
    ),
    (
        because(Reason.PROOF_EXPIRED, proven="2026-10-01 08:00:00Z", max_age="720h"),
        "the last proof is from 2026-10-01 08:00:00Z, and drill.maxAge of the policy is 720h",
    ),
    (
        because(Reason.PROOF_OUTDATED, what="the runtime and the image", proven="2026-10-01 08:00:00Z"),
        "the runtime and the image changed since the last proof, which is from 2026-10-01 08:00:00Z",
    ),
    (
        because(Reason.PROOF_NOT_VERIFIED, how="incident 0d2f5c9e-7", seconds=45),
        "the group recovered from incident 0d2f5c9e-7 in 45 s, but only Ready pods show it; a joined probe or the agent"
        " would prove it",
    ),
    (because(Reason.NEVER_PROVEN), "the group has not recovered from a failure yet"),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
