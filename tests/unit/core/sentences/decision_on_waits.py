"""Sentences about ranks that wait for a node."""

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

ON_WAITS: tuple[tuple[Explanation, str], ...] = (
    (
        because(
            Reason.WAITING_FOR_CAPACITY,
            pod="pod train-node-0-3-21 (rank 3, not scheduled)",
            why="0/16 nodes are available",
        ),
        ("waiting for capacity: pod train-node-0-3-21 (rank 3, not scheduled): 0/16 nodes are available"),
    ),
    (
        because(Reason.WAITS_FOR_EACH_OTHER, other="ml/other", more=1, held=2, own=1),
        "group ml/other and 1 more also wait, and hold 2 nodes that would take ranks of this group, which holds 1 "
        "node: they may wait for each other for ever; suspend or delete one of the jobs, and set whileWaiting: "
        "HoldThenRelease for the next time",
    ),
    (
        explained(Sentence.WAITS_ON_NODES, Reason.WAITING_FOR_CAPACITY),
        "the other ranks keep their nodes, and their exits do not end the job",
    ),
    (
        explained(Sentence.WAITS_WITHOUT_NODES, Reason.WAITING_FOR_CAPACITY),
        "the exits of the other ranks do not end the job, but with restartPolicy Never a rank that exits leaves its "
        "node, and others may take it: whileWaiting Release suits this job better",
    ),
    (
        explained(Sentence.WAITS_ON_ITS_OWN, Reason.WAITING_FOR_CAPACITY),
        "the exits of the other ranks count towards the backoffLimit of their Job",
    ),
    (
        explained(
            Sentence.WAIT_IS_LIMITED,
            Reason.WAITING_FOR_CAPACITY,
            limit=explained(Sentence.DEADLINE_RUNS, Reason.DEADLINE, seconds=3600),
        ),
        "the job may fail before it has a node, because its deadline of 3600 s goes on",
    ),
    (
        because(Reason.RELEASED, waiting="waiting for capacity: pod train-node-0-3-21", ranks=8, wait="30s"),
        "waiting for capacity: pod train-node-0-3-21; the job is suspended, so that others can have its GPUs; it "
        "resumes when there is room for all 8 ranks, after 30s at the earliest",
    ),
    (explained(Sentence.DEADLINE_RUNS, Reason.DEADLINE, seconds=3600), "its deadline of 3600 s goes on"),
)
