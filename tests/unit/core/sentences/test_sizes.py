"""The size of an elastic group and its birth settings, as sentences.

The wording of these sentences is asserted only here. Other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import render
from recovery.core.sentences.sizes import TEXTS

WITHDRAWN = "so they are withdrawn"

TOLD: tuple[tuple[Explanation, str], ...] = (
    (
        because(Reason.NODES_NOT_REPLACED, placed=6, ranks=8, policy="default", nodes=6),
        "6 of 8 pods have a node, and the largest size that policy default allows for them is 6",
    ),
    (
        because(Reason.GROWTH_UNDONE, placed=7, ranks=8, policy="default", nodes=6),
        "the growth did not get its nodes: 7 of 8 pods have one, and the largest size that policy default allows for "
        "them is 6",
    ),
    (
        because(Reason.BELOW_MIN_NODES, placed=3, ranks=8, least=4),
        "3 of 8 pods have a node, and the smallest allowed size is 4: the group waits for room",
    ),
    (
        explained(
            Sentence.AVOIDS, Reason.RULE_AVOID_NODE, why="rule xid (class HardwareFault) says AvoidNode", node="gpu-2"
        ),
        "rule xid (class HardwareFault) says AvoidNode, so this group avoids node gpu-2",
    ),
    (
        explained(Sentence.AVOIDS_FOR, Reason.NODE_REFUSES_PODS, node="gpu-2", lasts="15m"),
        "this group avoids node gpu-2 for 15m",
    ),
    (
        because(Reason.NODE_REFUSES_PODS, node="gpu-2", count=2, status="NodeAffinity"),
        "the kubelet of node gpu-2 has refused 2 pods of this group (NodeAffinity)",
    ),
    (
        because(Reason.NODE_REFUSES_PODS, node="gpu-2", count=2, status=""),
        "the kubelet of node gpu-2 has refused 2 pods of this group",
    ),
    (
        because(Reason.NODE_NOT_AVOIDED, node="gpu-2", why="the group has several Jobs"),
        "node gpu-2 is not avoided: the group has several Jobs",
    ),
    (
        because(Reason.AVOIDANCE_ENDED, placed=7, ranks=8, nodes="gpu-2, gpu-3"),
        "7 of 8 pods have a node while the group avoids gpu-2, gpu-3, so it stops avoiding nodes",
    ),
    (
        because(Reason.SIZE_FIXED, why="Job llm-node-0 does not run all of its pods at once"),
        "the size of the group cannot be changed: Job llm-node-0 does not run all of its pods at once",
    ),
    (
        because(Reason.INDEX_SUCCEEDED, count=2, job="llm-node-0"),
        "the size of the group cannot be changed: 2 pods of Job llm-node-0 have succeeded, and another size would end "
        "the Job or run them again",
    ),
    (
        explained(
            Sentence.SHRINKS,
            Reason.NODES_NOT_REPLACED,
            found="pod llm-3 (rank 3, node gpu-3) is lost: node gpu-3 was deleted",
            why="6 of 8 pods have a node",
            attempt=2,
            jobs="llm-node-0",
            nodes=6,
            free="not charged to the budget",
            quota="Kueue keeps the quota of all 8 nodes reserved while the group is smaller",
        ),
        "pod llm-3 (rank 3, node gpu-3) is lost: node gpu-3 was deleted; 6 of 8 pods have a node; attempt 2: deleting "
        "Job llm-node-0 so that the group continues with 6 nodes (not charged to the budget); Kueue keeps the quota of "
        "all 8 nodes reserved while the group is smaller",
    ),
    (
        explained(Sentence.QUOTA_KEPT, Reason.KUEUE, nodes=8),
        "Kueue keeps the quota of all 8 nodes reserved while the group is smaller",
    ),
    (
        explained(
            Sentence.RUNS_SMALLER, Reason.WAITING_FOR_ROOM, nodes=6, wanted=8, since="2026-11-21 12:00:00Z", quota=""
        ),
        "has run with 6 of 8 nodes since 2026-11-21 12:00:00Z",
    ),
    (
        explained(Sentence.GROWS, Reason.ROOM_AGAIN, why="there is room", jobs="llm-node-0", nodes=8),
        "there is room: deleting Job llm-node-0 so that the group grows to 8 nodes",
    ),
    (
        because(Reason.ROOM_AGAIN, since="2026-11-21T12:00:00Z", nodes=8, before=6, where="gpu-8, gpu-9", spares=1),
        "since 2026-11-21T12:00:00Z there has been room for 8 nodes instead of 6 (on gpu-8, gpu-9, 1 of them spares)",
    ),
    (
        because(Reason.WAITING_FOR_ROOM, nodes=6, wanted=8, why="there is no room for more pods"),
        "runs with 6 of 8 nodes: there is no room for more pods",
    ),
    (
        because(Reason.TRYING_BIRTH_SETTINGS),
        "a dry run shows first whether the Job can be created with its new settings",
    ),
    (
        because(Reason.BIRTH_SETTINGS_REFUSED, why="exceeded quota"),
        f"the API server refuses the Job with its new settings, {WITHDRAWN}: exceeded quota",
    ),
    (
        because(Reason.BIRTH_SETTINGS_NOT_APPLIED),
        f"the API server creates the Job without its new settings, {WITHDRAWN}: check that the component "
        "birth-settings is installed, and that its webhook, if it has one, is served",
    ),
    (
        because(Reason.BIRTH_SETTINGS_OVERRULED),
        "JobSet runs with its feature gate ElasticJobSet and gives each Job the size of its template, so no other size "
        "would last",
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
