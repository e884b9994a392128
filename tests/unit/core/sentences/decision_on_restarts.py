"""Sentences about a restart: its price, its delays, and its result."""

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

ON_RESTARTS: tuple[tuple[Explanation, str], ...] = (
    (explained(Sentence.BUDGET_LEFT, Reason.DEFAULT_RESTART, count=0, limit=1), "0 of 1 recoveries left"),
    (explained(Sentence.FREE_OF_CHARGE, Reason.RULE_RECREATE_GROUP, incident=""), "not charged to the budget"),
    (explained(Sentence.FREE_AS_DRILL, Reason.DEFAULT_RESTART, drill="d"), "not charged to the budget: it is drill d"),
    (
        explained(Sentence.FREE_OF_CHARGE, Reason.DEFAULT_RESTART, incident="0d2f5c9e-1"),
        "not charged to the budget: the same storm as incident 0d2f5c9e-1",
    ),
    (
        explained(
            Sentence.WITHHELD,
            Reason.MEMBER_LOST_AGAIN,
            why=("pod train-node-0-1-20 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 again"),
            until="2026-11-21T12:01:10Z",
            waits="attempt 2 in a row waits 1m",
            not_ours="a suspension would reset the deadline of the TrainJob (3600 s)",
        ),
        (
            "pod train-node-0-1-20 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 "
            "again; the restart waits until 2026-11-21T12:01:10Z (attempt 2 in a row waits 1m), and the job is "
            "not suspended meanwhile, because a suspension would reset the deadline of the TrainJob (3600 s)"
        ),
    ),
    (
        explained(
            Sentence.NO_BACKOFF,
            Reason.MEMBER_LOST_AGAIN,
            why=("pod train-node-0-1-30 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 again"),
            refused="another client has resumed this job before",
            hurry="",
        ),
        (
            "pod train-node-0-1-30 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 "
            "again; no backoff, because another client has resumed this job before"
        ),
    ),
    (
        explained(
            Sentence.NO_BACKOFF,
            Reason.START_TIMEOUT,
            why=(
                "not all ranks started within 60 s after they were scheduled; attempt 2: deleting Job train-node-0 "
                "again"
            ),
            refused="a suspension would reset the deadline of the TrainJob (3600 s)",
            hurry="the group has already had its time to start",
        ),
        (
            "not all ranks started within 60 s after they were scheduled; attempt 2: deleting Job train-node-0 "
            "again; no backoff, because a suspension would reset the deadline of the TrainJob (3600 s), and "
            "the group has already had its time to start"
        ),
    ),
    (
        explained(
            Sentence.BACKOFF_ENDS_EARLY,
            Reason.DEFAULT_RESTART,
            why=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the "
                "default of policy default (RecreateGroupOnPodRestart) applies: deleting Job "
                "train-node-0 so that all 4 ranks restart together (8 of 10 recoveries left)"
            ),
            hurry="Job train-node-0 is failing",
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the "
            "default of policy default (RecreateGroupOnPodRestart) applies: deleting Job "
            "train-node-0 so that all 4 ranks restart together (8 of 10 recoveries left); the "
            "backoff ends early, because Job train-node-0 is failing"
        ),
    ),
    (
        explained(
            Sentence.STAYS_SUSPENDED,
            Reason.DEFAULT_RESTART,
            why=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the "
                "default of policy default (RecreateGroupOnPodRestart) applies: deleting Job "
                "train-node-0 so that all 4 ranks restart together (0 of 1 recoveries left)"
            ),
            wait="10s",
            waits="attempt 2 in a row",
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the default of policy "
            "default (RecreateGroupOnPodRestart) applies: deleting Job train-node-0 so that all 4 ranks "
            "restart together (0 of 1 recoveries left); the job stays suspended for 10s first (attempt 2 in a "
            "row)"
        ),
    ),
    (explained(Sentence.IN_A_ROW, Reason.DEFAULT_RESTART, number=2), "attempt 2 in a row"),
    (explained(Sentence.IN_A_ROW_WAITS, Reason.DEFAULT_RESTART, number=2, wait="1m"), "attempt 2 in a row waits 1m"),
    (
        explained(Sentence.SINCE_LAST_RESTART, Reason.DEFAULT_RESTART, ended="2026-11-21T12:01:10Z", interval="5m"),
        "the last restart ended at 2026-11-21T12:01:10Z, and spec.backoff.minInterval is 5m",
    ),
    (because(Reason.TIME_TO_START), "the group has already had its time to start"),
    (
        explained(Sentence.LEFT_ALONE, Reason.JOB_FINISHING, why="Job train-node-0 has met its success criteria"),
        "Job train-node-0 has met its success criteria: the group is not restarted",
    ),
    (
        explained(
            Sentence.ADOPTED,
            Reason.PLATFORM_RESTART,
            said="Job train-node-0 is failing: BackoffLimitExceeded",
            jobset="train",
        ),
        (
            "Job train-node-0 is failing: BackoffLimitExceeded; JobSet train restarts the group "
            "itself: adopted as this incident's restart"
        ),
    ),
    (
        explained(
            Sentence.ADOPTED,
            Reason.PLATFORM_RESTART,
            said="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            jobset="",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; another client deleted the "
            "group's Job: adopted as this incident's restart"
        ),
    ),
    (
        because(Reason.MEMBER_REPLACED, evidence="pod train-node-0-3-20 (rank 3, node gpu-3) failed"),
        (
            "pod train-node-0-3-20 (rank 3, node gpu-3) failed before all ranks ran; its Job replaces the pod, "
            "and the other ranks are not restarted"
        ),
    ),
    (
        explained(
            Sentence.NOT_CARRIED_OUT,
            Reason.JOB_PAUSED,
            evidence="restart requested by anna: rank 3 is slow",
            bar="the job is paused by annotation",
        ),
        (
            "restart requested by anna: rank 3 is slow; the restart is decided but not carried out, because "
            "the job is paused by annotation"
        ),
    ),
    (
        because(Reason.API_REFUSES, evidence="pod train-node-0-2-10 (rank 2, node gpu-2) was deleted", error="jobs"),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) was deleted; the API server refuses what the controller "
            "decided: jobs"
        ),
    ),
    (
        explained(Sentence.RANKS_HAVE_MET, Reason.MEMBERS_RUN_AGAIN, ranks=4),
        "all 4 ranks have started or joined since, so no restart is needed",
    ),
    (
        explained(Sentence.READY_MEANWHILE, Reason.RUNS_WHOLE_AGAIN, ranks=4),
        ("all 4 ranks became Ready before the restart was carried out, so it is not needed"),
    ),
    (
        explained(Sentence.ALL_READY, Reason.ALL_RANKS_READY, ranks=4, source="ready", verified="false"),
        "all 4 ranks are Ready (source: ready, verified: false)",
    ),
    (
        explained(Sentence.ALL_JOINED, Reason.ALL_RANKS_READY, ranks=4, source="joined-probe", verified="true"),
        "all 4 ranks have joined (source: joined-probe, verified: true)",
    ),
    (
        because(Reason.TRAINING_PROGRESSES, ranks=4),
        "all 4 ranks are Ready, and the training makes progress (source: progress, verified: true)",
    ),
    (
        because(Reason.PROGRESS_NOT_SEEN, ranks=4, seconds=900, source="ready", verified="false"),
        ("all 4 ranks are Ready, but the training reported no progress within 900 s (source: ready, verified: false)"),
    ),
    (
        explained(
            Sentence.ALL_READY_AND_COMPLETE,
            Reason.ALL_RANKS_READY,
            ranks=4,
            what="the TrainJob",
            source="ready",
            verified="false",
        ),
        "all 4 ranks became Ready, and the TrainJob is complete (source: ready, verified: false)",
    ),
    (
        because(Reason.WAITING_FOR_PROGRESS, ranks=4),
        "all 4 ranks are Ready; waiting for the training to report progress",
    ),
    (
        because(
            Reason.FENCING,
            pod="pod train-node-0-2-10 (rank 2, node gpu-2)",
            fate=("node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it is assumed dead after 600 s"),
        ),
        (
            "fencing: pod train-node-0-2-10 (rank 2, node gpu-2) may still run: node gpu-2 has not answered "
            "since 12:00:00 (NodeStatusUnknown); it is assumed dead after 600 s"
        ),
    ),
    (
        because(Reason.WAITING_FOR_TEARDOWN, pod="pod train-node-0-3-10 (rank 3, node gpu-3)", more=0),
        "waiting for pod train-node-0-3-10 (rank 3, node gpu-3) to be deleted",
    ),
    (
        because(Reason.WAITING_FOR_TEARDOWN, pod="pod train-node-0-0-10 (rank 0, node gpu-0)", more=3),
        "waiting for pod train-node-0-0-10 (rank 0, node gpu-0) and 3 more to be deleted",
    ),
    (
        explained(Sentence.WAITING_FOR_FINALIZER, Reason.WAITING_FOR_TEARDOWN, jobs="train-node-0"),
        "waiting for Job train-node-0 to be deleted: its pods are gone, but a finalizer holds it",
    ),
    (
        explained(Sentence.WAITING_FOR_OLD_JOB_SET, Reason.WAITING_FOR_TEARDOWN, jobset="train"),
        "waiting for JobSet train and its Jobs to be deleted",
    ),
    (because(Reason.WAITING_FOR_JOB_SET), "waiting for Trainer to create the JobSet again"),
    (because(Reason.WAITING_FOR_RESUME, who="Trainer"), "waiting for Trainer to resume the job"),
    (
        because(Reason.TRAINER_RESUMES, jobset="llm"),
        "JobSet llm is suspended but its TrainJob is not: waiting for Trainer to resume the JobSet",
    ),
    (explained(Sentence.WAITING_FOR_JOB, Reason.WAITING_FOR_PODS), "waiting for JobSet to create the Job again"),
    (
        explained(
            Sentence.WAITING_FOR_SUCCESSOR, Reason.WAITING_FOR_PODS, pod="pod train-node-0-0-10 (rank 0, node gpu-0)"
        ),
        "waiting for the Job to replace pod train-node-0-0-10 (rank 0, node gpu-0) (a Job delays pods after failures)",
    ),
    (
        explained(
            Sentence.NO_SUCCESSOR_IN_TIME,
            Reason.START_TIMEOUT,
            seconds=900,
            pod="pod train-node-0-0-10 (rank 0, node gpu-0)",
        ),
        "pod train-node-0-0-10 (rank 0, node gpu-0) failed, and its Job has not created the next one within 900 s "
        "(a Job delays pods after failures)",
    ),
    (
        because(Reason.WAITING_FOR_PODS, count=0, ranks=4, placed=0),
        "0 of 4 pods exist so far, and 0 of them have a node",
    ),
    (
        because(
            Reason.PODS_REFUSED, job="train-node-0", why='pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus'
        ),
        ('Job train-node-0 cannot create its pods: pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus'),
    ),
    (because(Reason.WAITING_FOR_READY, who="the last pod", more=0), "waiting for the last pod to be Ready"),
    (
        because(Reason.WAITING_FOR_READY, who="pod train-node-0-0-20 (rank 0, node gpu-0)", more=3),
        "waiting for pod train-node-0-0-20 (rank 0, node gpu-0) and 3 more to be Ready",
    ),
    (because(Reason.JOB_WITHOUT_PODS, job="train-node-0", seconds=120), "Job train-node-0 has had no pods for 120 s"),
    (because(Reason.START_TIMEOUT, seconds=60), "not all ranks started within 60 s after they were scheduled"),
    (
        because(
            Reason.RENDEZVOUS_TIMEOUT,
            seconds=900,
            what="waiting for pod train-node-0-0-20 (rank 0, node gpu-0) and 3 more to be Ready",
        ),
        (
            "not all ranks joined within 900 s after all of them ran; waiting for pod train-node-0-0-20 (rank "
            "0, node gpu-0) and 3 more to be Ready"
        ),
    ),
    (
        because(Reason.BUDGET_WINDOW_PASSED, evidence="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted"),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; the group was held until the budget allowed "
            "another attempt"
        ),
    ),
    (
        explained(
            Sentence.HOLE_SEEN,
            Reason.NODE_SWALLOWS_PODS,
            what=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) waits: CreateContainerError: no space "
                "left, while members run on 3 other nodes"
            ),
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) waits: CreateContainerError: no space "
            "left, while members run on 3 other nodes"
        ),
    ),
    (
        because(
            Reason.NODE_SWALLOWS_PODS,
            what=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError, while "
                "members run on 3 other nodes"
            ),
            case="node gpu-3 is suspected (1 of 2 suspicions)",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError, while "
            "members run on 3 other nodes: node gpu-3 is suspected (1 of 2 suspicions)"
        ),
    ),
    (
        explained(
            Sentence.HOLE_NOT_QUARANTINED,
            Reason.QUARANTINE_CAP,
            held=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
                "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is "
                "from incident other-7)"
            ),
            refused="quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
            "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is from "
            "incident other-7), but the node is not quarantined: quarantine cap reached: 0 of 0 nodes "
            "(RecoveryConfig spec.quarantine.maxNodes 0)"
        ),
    ),
    (
        explained(
            Sentence.HOLE_QUARANTINED,
            Reason.NODE_SWALLOWS_PODS,
            held=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), while members "
                "run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is from "
                "incident other-7)"
            ),
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), while members run "
            "on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is from incident "
            "other-7): quarantining it; the group is not restarted, and the Job replaces the pod"
        ),
    ),
    (
        explained(
            Sentence.HOLE_QUARANTINED_POD_STAYS,
            Reason.NODE_SWALLOWS_PODS,
            held=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
                "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is "
                "from incident other-7)"
            ),
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space left, while "
            "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions; the one before is from "
            "incident other-7): quarantining it; the group is not restarted: delete the pod on that node by "
            "hand"
        ),
    ),
    (
        explained(Sentence.JOB_SET_WAS_FAILED, Reason.BUDGET_EXHAUSTED, jobset="train"),
        "the controller failed JobSet train",
    ),
    (
        because(
            Reason.NATIVE_POLICY,
            jobset="train",
            decided="Job train-node-0 has backoffLimit 0: it fails with its first pod",
        ),
        ("JobSet train failed, because Job train-node-0 has backoffLimit 0: it fails with its first pod"),
    ),
    (
        because(Reason.PLATFORM_GAVE_UP, jobset="train", detail="jobset failed due to one or more job failures"),
        ("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
    ),
    (
        explained(
            Sentence.LEFT_AS_IT_IS,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures); the "
            "controller leaves it as it is"
        ),
    ),
    (
        explained(
            Sentence.NOT_RECREATED,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
            refused="without a TrainJob nothing would create it again",
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures); the "
            "controller does not recreate it, because without a TrainJob nothing would create it again"
        ),
    ),
    (
        explained(Sentence.NO_ONE_RECREATES_IT, Reason.PLATFORM_GAVE_UP),
        "without a TrainJob nothing would create it again",
    ),
    (
        explained(
            Sentence.RECREATING_JOB_SET,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
            policy="default",
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures); "
            "policy default sets onTerminalFailure: RecreateJobSet: deleting it, so that Trainer creates it "
            "again"
        ),
    ),
    (because(Reason.RESTARTED_BY_HAND, verb="retry", by="", note=""), "retry requested"),
    (because(Reason.RESTARTED_BY_HAND, verb="retry", by="jane", note=""), "retry requested by jane"),
    (
        explained(
            Sentence.RESTART_BY_HAND, Reason.RESTARTED_BY_HAND, found="restart requested", jobs="train-node-0", ranks=4
        ),
        (
            "restart requested: deleting Job train-node-0 so that all 4 ranks restart together, not charged to "
            "the budget; the steps since the last checkpoint are lost"
        ),
    ),
    (
        explained(
            Sentence.ANSWERED_BY_INCIDENT,
            Reason.RESTARTED_BY_HAND,
            incident="0d2f5c9e-1",
            why=(
                "restart requested: deleting Job train-node-0 so that all 4 ranks restart together, not "
                "charged to the budget; the steps since the last checkpoint are lost"
            ),
        ),
        (
            "incident 0d2f5c9e-1: restart requested: deleting Job train-node-0 so that all 4 ranks restart "
            "together, not charged to the budget; the steps since the last checkpoint are lost"
        ),
    ),
    (
        explained(
            Sentence.ACCEPTED,
            Reason.BUDGET_RESET,
            verb="reset-budget",
            by="",
            note="",
            what="0 charges no longer count",
        ),
        "reset-budget: 0 charges no longer count",
    ),
    (
        explained(
            Sentence.ACCEPTED,
            Reason.BUDGET_RESET,
            verb="reset-budget",
            by="jane",
            note="",
            what="1 charge no longer counts",
        ),
        "reset-budget by jane: 1 charge no longer counts",
    ),
    (
        explained(Sentence.REFUSED, Reason.NO_INCIDENT, verb="retry", why="no incident is open"),
        "retry is refused: no incident is open",
    ),
    (because(Reason.BUDGET_RESET, charges=1, adopted=0), "1 charge no longer counts"),
    (
        because(Reason.BUDGET_RESET, charges=0, adopted=1),
        "0 charges no longer count, and neither do the restarts by others",
    ),
    (because(Reason.BACKOFF_SKIPPED), "the backoff is skipped: the job resumes as soon as its old pods are deleted"),
    (
        because(Reason.REQUEST_EXPIRED, at="2026-11-21T11:43:20+00:00"),
        "it was requested at 2026-11-21T11:43:20+00:00, which is too long ago",
    ),
    (
        because(Reason.REQUEST_PREMATURE, at="2026-12-03T01:46:40+00:00"),
        "it is dated 2026-12-03T01:46:40+00:00, which is in the future",
    ),
    (because(Reason.NO_INCIDENT), "no incident is open"),
    (
        because(Reason.NOTHING_HELD_BACK, phase="Decided"),
        "the group is in phase Decided, and only a group in Held or Backoff can be retried",
    ),
    (because(Reason.HELD_FOR_GOOD), "the group stays Held until its JobSet has failed"),
    (because(Reason.RESTART_UNDER_WAY, phase="TearingDown"), "a restart is in progress (phase TearingDown)"),
    (because(Reason.NO_JOB), "there is no Job to restart"),
    (
        explained(Sentence.JOB_SET_HAS_ENDED, Reason.JOB_SET_FAILED, jobset="train", state="Failed"),
        "JobSet train is Failed",
    ),
    (
        explained(Sentence.FORCE_OVERRIDES, Reason.OBSERVE_MODE, why="policy default is in mode Observe", job="llm"),
        "policy default is in mode Observe; recovery restart llm --reason TEXT --force overrides this",
    ),
)
