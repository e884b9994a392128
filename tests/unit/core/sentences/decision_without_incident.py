"""Sentences about a group without an incident, and why it has none."""

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

WITHOUT_INCIDENT: tuple[tuple[Explanation, str], ...] = (
    (because(Reason.WORKLOAD_GONE), "the workload does not exist"),
    (because(Reason.NO_POLICY), "no RecoveryPolicy applies to this job"),
    (
        explained(Sentence.NO_USABLE_POLICY, Reason.POLICY_INVALID, error="spec.budget.limit: -1"),
        "the RecoveryPolicy that applies cannot be used: spec.budget.limit: -1",
    ),
    (
        explained(Sentence.PAUSED_UNTIL_RESUMED, Reason.JOB_PAUSED, loss="", more=0, after="15m"),
        "paused by annotation: the group is not restarted until the job is resumed; a rank that is lost meanwhile "
        "counts then, unless the rank runs again and the loss is more than 15m old",
    ),
    (
        explained(
            Sentence.PAUSED_UNTIL_RESUMED,
            Reason.JOB_PAUSED,
            loss="pod p (rank 3, node n) failed with exit code 1",
            more=1,
            after="15m",
        ),
        "paused by annotation; pod p (rank 3, node n) failed with exit code 1 (1 more like it): the group is not "
        "restarted until the job is resumed; this loss counts then, unless the rank runs again and the loss is "
        "more than 15m old",
    ),
    (
        explained(
            Sentence.PAUSED_UNTIL_THEN,
            Reason.GLOBAL_PAUSE,
            pause="all is paused",
            loss="pod p failed",
            more=0,
            after="15m",
        ),
        "all is paused; pod p failed: the group is not restarted until the pause ends; this loss counts then, unless "
        "the rank runs again and the loss is more than 15m old",
    ),
    (because(Reason.NO_FAILURE, signs=0), "no failure"),
    (
        because(Reason.BASELINE, loss="pod p (rank 3, node n) failed with exit code 1", more=1, job="llm"),
        "pod p (rank 3, node n) failed with exit code 1 (1 more like it): the rank runs again, and the loss is "
        "old or from before mode Enforce, so nothing is done; if the ranks hang, run recovery restart llm "
        "--reason TEXT",
    ),
    (
        because(Reason.RANKS_HANG, hung=15, ranks=16),
        "15 of 16 ranks still run and hang, because they had met the rank that was lost",
    ),
    (
        because(Reason.STILL_BROKEN, loss="pod p (rank 3, node n) was deleted", incident="1a-2", job="llm", forced=0),
        "pod p (rank 3, node n) was deleted, and the other ranks have hung since; incident 1a-2 closed without a "
        "restart; run recovery retry llm",
    ),
    (
        because(Reason.STILL_BROKEN, loss="pod p (rank 3, node n) was deleted", incident="1a-2", job="llm", forced=1),
        "pod p (rank 3, node n) was deleted, and the other ranks have hung since; incident 1a-2 closed without a "
        "restart; run recovery restart llm --reason TEXT --force",
    ),
    (because(Reason.NO_FAILURE, signs=1), "no failure (1 sign of an older or expected restart is ignored)"),
    (
        explained(
            Sentence.LOST_BUT_FINISHING,
            Reason.JOB_FINISHING,
            evidence="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            done="Job train-node-0 has met its success criteria",
            timeout="10m",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted, but Job train-node-0 has met its success "
            "criteria: the group is not restarted for 10m"
        ),
    ),
    (
        because(
            Reason.NODE_SILENT,
            fate=("node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it is assumed dead after 60 s"),
        ),
        (
            "no failure yet: node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it is assumed "
            "dead after 60 s"
        ),
    ),
    (
        because(Reason.NOT_STARTED, words="pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff", incidents=0),
        "has not started: pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff",
    ),
    (
        because(Reason.NOT_STARTED, words="pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff", incidents=2),
        "does not run whole: pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff",
    ),
    (
        explained(
            Sentence.NOT_STARTED_BY_NODE,
            Reason.NOT_STARTED,
            why=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError, while "
                "members run on 3 other nodes: node gpu-3 is suspected (1 of 2 suspicions)"
            ),
            incidents=0,
        ),
        (
            "has not started: pod train-node-0-3-10 (rank 3, node gpu-3) waits: "
            "CreateContainerError, while members run on 3 other nodes: node gpu-3 is suspected "
            "(1 of 2 suspicions)"
        ),
    ),
    (because(Reason.JOB_SET_FAILED, jobset="train"), "JobSet train is Failed; this has been reported already"),
    (
        explained(Sentence.FAILED_LONG_AGO, Reason.JOB_SET_FAILED, jobset="train"),
        "JobSet train failed long ago, or before this policy existed: nothing is done",
    ),
    (
        because(
            Reason.INCIDENT_RECORDED,
            incident="1a93898b-2",
            message="all 4 ranks are Ready (source: ready, verified: false)",
        ),
        ("incident 1a93898b-2 is closed: all 4 ranks are Ready (source: ready, verified: false)"),
    ),
    (
        because(Reason.JOB_BACKS_OFF, lost=16, job="train-node-0", until="2026-11-21T12:10:00Z"),
        "16 pods of Job train-node-0 were deleted before all ranks ran, and its back-off keeps it from creating others "
        "until 2026-11-21T12:10:00Z",
    ),
)
