"""What is decided about a group, as sentences: details in, text out.

The wording of this room is asserted here and nowhere else; other tests assert the reason.
"""

import pytest

from recovery.core.model.reason import Explanation, Reason, Sentence, because, told
from recovery.core.sentences import render
from recovery.core.sentences.decision import TEXTS

TOLD: tuple[tuple[Explanation, str], ...] = (
    (because(Reason.WORKLOAD_GONE), "the workload is gone"),
    (because(Reason.NO_POLICY), "no RecoveryPolicy applies to this job"),
    (
        told(Sentence.NO_USABLE_POLICY, Reason.POLICY_INVALID, error="spec.budget.limit: -1"),
        "the RecoveryPolicy that applies cannot be used: spec.budget.limit: -1",
    ),
    (
        told(Sentence.PAUSED_UNTIL_RESUMED, Reason.JOB_PAUSED),
        "paused by annotation: nothing is watched for until it is resumed",
    ),
    (
        told(Sentence.PAUSED_UNTIL_THEN, Reason.GLOBAL_PAUSE, pause="all is paused"),
        "all is paused: nothing is watched for until then",
    ),
    (because(Reason.NO_FAILURE, signs=0), "no failure"),
    (
        because(Reason.BASELINE, loss="pod p (rank 3, node n) failed with exit code 1", more=1, job="llm"),
        "pod p (rank 3, node n) failed with exit code 1 (1 more like it): that is too long ago, or from before the "
        "policy was in mode Enforce, and the rank runs again, so nothing is done; if the ranks hang since, recovery "
        "restart llm --reason TEXT",
    ),
    (because(Reason.NO_FAILURE, signs=1), "no failure (1 older or expected signs of restarts are a baseline)"),
    (
        told(
            Sentence.LOST_BUT_FINISHING,
            Reason.JOB_FINISHING,
            evidence="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            done="Job train-node-0 has met its success criteria",
            timeout="10m",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted, but Job train-node-0 has "
            "met its success criteria: left alone for 10m"
        ),
    ),
    (
        because(
            Reason.NODE_SILENT,
            fate=("node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it is taken for dead after 60 s"),
        ),
        (
            "no failure yet: node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it "
            "is taken for dead after 60 s"
        ),
    ),
    (
        because(Reason.NOT_STARTED, words="pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff"),
        "has not started: pod llm-1 (rank 1, node gpu-1) waits: ImagePullBackOff",
    ),
    (
        told(
            Sentence.NOT_STARTED_BY_NODE,
            Reason.NOT_STARTED,
            why=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) waits: CreateContainerError, while "
                "members run on 3 other nodes: node gpu-3 is suspected (1 of 2 suspicions)"
            ),
        ),
        (
            "has not started: pod train-node-0-3-10 (rank 3, node gpu-3) waits: "
            "CreateContainerError, while members run on 3 other nodes: node gpu-3 is suspected "
            "(1 of 2 suspicions)"
        ),
    ),
    (because(Reason.JOB_SET_FAILED, jobset="train"), "JobSet train is Failed; its end has been reported"),
    (
        told(Sentence.FAILED_LONG_AGO, Reason.JOB_SET_FAILED, jobset="train"),
        "JobSet train failed before this policy or long ago: left alone",
    ),
    (
        because(
            Reason.INCIDENT_RECORDED,
            incident="1a93898b-2",
            message="all 4 ranks are Ready (source: ready, verified: false)",
        ),
        ("incident 1a93898b-2 is closed: all 4 ranks are Ready (source: ready, verified: false)"),
    ),
    (because(Reason.RESTART_NONE, policy="default"), "policy default says restart: None, so it is left to Kubernetes"),
    (
        because(Reason.DEFAULT_RESTART, policy="default", restart="RecreateGroupAfterStart"),
        ("no rule matched, so the default of policy default (RecreateGroupAfterStart) applies"),
    ),
    (
        told(
            Sentence.RULE_SAYS,
            Reason.RULE_RECREATE_GROUP,
            rule="all",
            match="its class is NodeLost",
            action="RecreateGroup",
        ),
        "rule all (its class is NodeLost) says RecreateGroup",
    ),
    (
        told(
            Sentence.RULE_IGNORES,
            Reason.RULE_IGNORE,
            rule="mine",
            match="exit code 7 of container node is in [7]",
            action="Ignore",
        ),
        ("rule mine (exit code 7 of container node is in [7]) says Ignore, so it is left to Kubernetes"),
    ),
    (
        because(
            Reason.RULE_FAIL_JOB_NOT_ALLOWED, says="rule mine (exit code 42 of container node is in [42]) says FailJob"
        ),
        (
            "rule mine (exit code 42 of container node is in [42]) says FailJob, which "
            "RecoveryConfig does not allow (spec.allow.failJob)"
        ),
    ),
    (
        told(
            Sentence.AND,
            Reason.NODE_SUSPECTED,
            why=("no rule matched, so the default of policy default (RecreateGroupOnPodRestart) applies"),
            more="node gpu-2 is suspected (1 of 1 suspicions)",
        ),
        (
            "no rule matched, so the default of policy default (RecreateGroupOnPodRestart) "
            "applies, and node gpu-2 is suspected (1 of 1 suspicions)"
        ),
    ),
    (
        told(
            Sentence.BUT,
            Reason.RULE_REPLACE_NODE,
            why="rule gpu (node gpu-2 has condition GpuFault=True) says ReplaceNode",
            refused=("node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"),
        ),
        (
            "rule gpu (node gpu-2 has condition GpuFault=True) says ReplaceNode, but node gpu-2 "
            "is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"
        ),
    ),
    (
        told(
            Sentence.BUT_MEMBER_RUNS,
            Reason.QUARANTINE_NOT_ALLOWED,
            why="rule gpu (node gpu-2 has condition GpuPcieWatch=True) says ReplaceNode",
            refused=("node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"),
        ),
        (
            "rule gpu (node gpu-2 has condition GpuPcieWatch=True) says ReplaceNode, but node "
            "gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon); its "
            "member still runs there, so the group is left as it is"
        ),
    ),
    (because(Reason.NODE_UNKNOWN), "no node is known for it"),
    (
        told(Sentence.NODE_MAY_NOT_BE_CORDONED, Reason.QUARANTINE_NOT_ALLOWED, node="gpu-2"),
        ("node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"),
    ),
    (
        told(
            Sentence.NOT_QUARANTINED,
            Reason.QUARANTINE_CAP,
            node="gpu-2",
            why="quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)",
        ),
        (
            "node gpu-2 is not quarantined: quarantine cap reached: 0 of 0 nodes (RecoveryConfig "
            "spec.quarantine.maxNodes 0)"
        ),
    ),
    (
        because(Reason.USER_RESIZED, job="train-node-0", size=3, template=4),
        "Job train-node-0 has 3 pods and its successor would have 4, so a restart would undo that size",
    ),
    (
        because(
            Reason.FINISH_OVERDUE,
            done=told(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job="train-node-0"),
            timeout="10m",
        ),
        (
            "Job train-node-0 has met its success criteria, but it has not ended within 10m after the loss; a restart "
            "would throw away what is done, so a person decides"
        ),
    ),
    (
        because(Reason.SAME_ERROR_AGAIN, code=1, message="\"KeyError: 'lr'\"", node="gpu-9", other="gpu-2"),
        (
            "exit code 1 with the same message (\"KeyError: 'lr'\") came early on node gpu-9 as on "
            "node gpu-2: an error of the job itself, which no restart fixes"
        ),
    ),
    (
        because(Reason.BAD_CHECKPOINT, code=1, message="'RuntimeError: loss is NaN at step <n>'", step=1200),
        (
            "exit code 1 with the same message ('RuntimeError: loss is NaN at step <n>') came at "
            "the same step (1200) as before the restart: a suspected bad checkpoint"
        ),
    ),
    (because(Reason.SETTLING), "its cause may still come in: the rules are asked when it has settled"),
    (
        because(Reason.STORM, what="3 nodes were lost within a minute", storm="storm-20261121T120000Z"),
        ("3 nodes were lost within a minute (storm-20261121T120000Z): waiting until no more are"),
    ),
    (
        because(
            Reason.GROUP_PENDING,
            policy="default",
            restart="RecreateGroupAfterStart",
            pod="pod train-node-0-3-11 (rank 3, not scheduled)",
        ),
        (
            "policy default says RecreateGroupAfterStart, and pod train-node-0-3-11 (rank 3, not "
            "scheduled) is Pending: the restart waits until the group has started"
        ),
    ),
    (told(Sentence.WOULD_LEAVE, Reason.RULE_IGNORE), "leave it to Kubernetes"),
    (told(Sentence.WOULD_FAIL, Reason.RULE_FAIL_JOB), "make the JobSet fail"),
    (
        told(
            Sentence.WOULD_HOLD,
            Reason.BUDGET_EXHAUSTED,
            why="the budget of policy default is exhausted (0 recoveries within 24h)",
            on_exhausted="Hold",
        ),
        (
            "hold the group (onExhausted: Hold), because the budget of policy default is "
            "exhausted (0 recoveries within 24h)"
        ),
    ),
    (
        told(
            Sentence.WOULD_HOLD,
            Reason.RULE_FAIL_JOB_NOT_ALLOWED,
            why=(
                "rule mine (exit code 42 of container node is in [42]) says FailJob, which "
                "RecoveryConfig does not allow (spec.allow.failJob)"
            ),
            on_exhausted="",
        ),
        (
            "hold the group, because rule mine (exit code 42 of container node is in [42]) says "
            "FailJob, which RecoveryConfig does not allow (spec.allow.failJob)"
        ),
    ),
    (
        told(Sentence.WOULD_RESTART, Reason.RULE_RECREATE_GROUP, node="", jobs="llm-node-0", ranks=2, free=""),
        "delete Job llm-node-0, so that all 2 ranks restart together",
    ),
    (
        told(
            Sentence.WOULD_RESTART,
            Reason.RULE_RECREATE_GROUP,
            node="",
            jobs="train-node-0",
            ranks=4,
            free="free of charge",
        ),
        "delete Job train-node-0, so that all 4 ranks restart together, free of charge",
    ),
    (
        told(Sentence.WOULD_RECREATE_JOB_SET, Reason.PLATFORM_GAVE_UP, jobset="train"),
        "delete JobSet train, so that Trainer creates it again",
    ),
    (
        told(
            Sentence.WOULD_BY,
            Reason.RULE_FAIL_JOB,
            would="make the JobSet fail",
            why="rule mine (exit code 42 of container node is in [42]) says FailJob",
        ),
        ("make the JobSet fail (rule mine (exit code 42 of container node is in [42]) says FailJob)"),
    ),
    (
        told(
            Sentence.WOULD_BUT_BREAKER,
            Reason.DEFAULT_RESTART,
            would="delete Job train-node-0, so that all 4 ranks restart together",
            breaker=(
                "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; "
                "recovery reset-breaker closes it"
            ),
        ),
        (
            "Enforce would now delete Job train-node-0, so that all 4 ranks restart together; "
            "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; "
            "recovery reset-breaker closes it"
        ),
    ),
    (
        told(
            Sentence.WOULD_BUT_OBSERVE,
            Reason.PLATFORM_GAVE_UP,
            policy="default",
            would="delete JobSet train, so that Trainer creates it again",
        ),
        ("policy default is in mode Observe: Enforce would now delete JobSet train, so that Trainer creates it again"),
    ),
    (
        told(
            Sentence.TOO_LATE_BY_BREAKER,
            Reason.ENFORCED_TOO_LATE,
            said=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 1; Enforce would "
                "now delete Job train-node-0, so that all 4 ranks restart together; the circuit "
                "breaker is open: 5 recoveries within 60 minutes brought no progress; recovery "
                "reset-breaker closes it"
            ),
            policy="default",
            workload="train",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 1; Enforce would "
            "now delete Job train-node-0, so that all 4 ranks restart together; the circuit "
            "breaker is open: 5 recoveries within 60 minutes brought no progress; recovery "
            "reset-breaker closes it; that was while the circuit breaker was open, so nothing is "
            "done: recovery restart train if its ranks hang"
        ),
    ),
    (
        told(
            Sentence.TOO_LATE_BY_MODE,
            Reason.ENFORCED_TOO_LATE,
            said=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; policy default is in mode "
                "Observe: Enforce would now delete Job train-node-0, so that all 4 ranks restart "
                "together"
            ),
            policy="default",
            workload="train",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; policy default is in mode "
            "Observe: Enforce would now delete Job train-node-0, so that all 4 ranks restart "
            "together; that was before policy default was in mode Enforce, so nothing is done: "
            "recovery restart train if its ranks hang"
        ),
    ),
    (
        told(Sentence.SINCE_BREAKER_CLOSED, Reason.MODE_SWITCHED),
        ("the circuit breaker was closed, and another member was lost since: that is an incident of its own"),
    ),
    (
        told(Sentence.SINCE_ENFORCED, Reason.MODE_SWITCHED),
        ("the policy was switched to Enforce, and another member was lost since: that is an incident of its own"),
    ),
    (
        told(
            Sentence.HELD,
            Reason.BUDGET_EXHAUSTED,
            found="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            why="the budget of policy default is exhausted (0 recoveries within 2h)",
            then="",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; held, because the budget of "
            "policy default is exhausted (0 recoveries within 2h)"
        ),
    ),
    (told(Sentence.HELD_SUSPENDED, Reason.BUDGET_EXHAUSTED), "; suspended, so that its GPUs are free"),
    (told(Sentence.HELD_FAILING, Reason.RULE_FAIL_JOB), "; the JobSet is made to fail"),
    (told(Sentence.HELD_UNTIL_RETRY, Reason.SAME_ERROR_AGAIN), "; recovery retry ends that"),
    (
        told(Sentence.HELD_FAILING_BY_BUDGET, Reason.BUDGET_EXHAUSTED),
        "; the JobSet is made to fail (onExhausted: FailJob)",
    ),
    (
        told(Sentence.HELD_NOT_SUSPENDED, Reason.RESUMED_BY_OTHERS, why="others have resumed this job before"),
        "; it is not suspended, because others have resumed this job before",
    ),
    (
        told(Sentence.HELD_NOT_FAILED, Reason.BUDGET_EXHAUSTED),
        "; it is not made to fail, because RecoveryConfig does not allow FailJob",
    ),
    (
        told(
            Sentence.SEEN_THEN,
            Reason.RESTARTED_BY_HAND,
            found="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            what="retry asked for",
        ),
        "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; retry asked for",
    ),
    (
        told(
            Sentence.STANDING_ASIDE,
            Reason.BACKOFF_LIMIT_ZERO,
            found="pod llm-0 failed",
            decided="Job llm has backoffLimit 0: it fails with its first pod",
        ),
        ("pod llm-0 failed; standing aside, because Job llm has backoffLimit 0: it fails with its first pod"),
    ),
    (
        told(
            Sentence.NOTHING_DONE,
            Reason.JOB_PAUSED,
            found="not all ranks ran within 60 s of being scheduled",
            bar="the job is paused by annotation",
        ),
        ("not all ranks ran within 60 s of being scheduled; nothing is done, because the job is paused by annotation"),
    ),
    (because(Reason.MEMBERS_RUN_AGAIN, ranks=4), "that is over and all 4 ranks run: waiting until they are Ready"),
    (
        told(
            Sentence.RESTART,
            Reason.RULE_RECREATE_GROUP,
            found="pod train-node-0-2-10 (rank 2, node gpu-2) is lost: node gpu-2 was deleted",
            why="rule all (its class is NodeLost) says RecreateGroup",
            node="",
            jobs="train-node-0",
            ranks=4,
            left="0 of 1 recoveries left",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) is lost: node gpu-2 was deleted; rule "
            "all (its class is NodeLost) says RecreateGroup: deleting Job train-node-0 so that "
            "all 4 ranks restart together (0 of 1 recoveries left)"
        ),
    ),
    (
        told(
            Sentence.RESTART,
            Reason.RULE_REPLACE_NODE,
            found="pod llm-1 (rank 1, node gpu-1) failed with exit code 137",
            why="rule killed (exit code 137 of container node is in [137]) says ReplaceNode",
            node="gpu-1",
            jobs="llm-node-0",
            ranks=2,
            left="9 of 10 recoveries left",
        ),
        (
            "pod llm-1 (rank 1, node gpu-1) failed with exit code 137; rule killed (exit code "
            "137 of container node is in [137]) says ReplaceNode: quarantining node gpu-1 and "
            "deleting Job llm-node-0 so that all 2 ranks restart together (9 of 10 recoveries "
            "left)"
        ),
    ),
    (
        told(
            Sentence.RESTART_AGAIN,
            Reason.JOB_WITHOUT_PODS,
            found="Job train-node-0 got no pods for 120 s",
            why="",
            attempt=2,
            node="",
            jobs="train-node-0",
        ),
        ("Job train-node-0 got no pods for 120 s; attempt 2: deleting Job train-node-0 once more"),
    ),
    (
        told(
            Sentence.RESTART_AGAIN,
            Reason.RULE_RECREATE_GROUP,
            found="pod train-node-0-2-20 (rank 2, node gpu-2) failed with exit code 42",
            why="rule mine (exit code 42 of container node is in [42]) says RecreateGroup",
            attempt=2,
            node="",
            jobs="train-node-0",
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) failed with exit code 42; rule mine "
            "(exit code 42 of container node is in [42]) says RecreateGroup; attempt 2: deleting "
            "Job train-node-0 once more"
        ),
    ),
    (told(Sentence.BUDGET_LEFT, Reason.DEFAULT_RESTART, count=0, limit=1), "0 of 1 recoveries left"),
    (told(Sentence.FREE_OF_CHARGE, Reason.RULE_RECREATE_GROUP, incident=""), "free of charge"),
    (
        told(Sentence.FREE_OF_CHARGE, Reason.DEFAULT_RESTART, incident="0d2f5c9e-1"),
        "free of charge: the same storm as incident 0d2f5c9e-1",
    ),
    (
        told(
            Sentence.WITHHELD,
            Reason.MEMBER_LOST_AGAIN,
            why=(
                "pod train-node-0-1-20 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 once more"
            ),
            until="2026-11-21T12:01:10Z",
            number=2,
            wait="1m",
            not_ours="a suspension would reset the deadline of the TrainJob (3600 s)",
        ),
        (
            "pod train-node-0-1-20 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job "
            "train-node-0 once more; not before 2026-11-21T12:01:10Z (attempt 2 in a row waits "
            "1m), and the job is not suspended until then, because a suspension would reset the "
            "deadline of the TrainJob (3600 s)"
        ),
    ),
    (
        told(
            Sentence.NO_BACKOFF,
            Reason.MEMBER_LOST_AGAIN,
            why=(
                "pod train-node-0-1-30 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job train-node-0 once more"
            ),
            refused="others have resumed this job before",
            hurry="",
        ),
        (
            "pod train-node-0-1-30 (rank 1, node gpu-1) was deleted; attempt 2: deleting Job "
            "train-node-0 once more; no backoff, because others have resumed this job "
            "before"
        ),
    ),
    (
        told(
            Sentence.NO_BACKOFF,
            Reason.START_TIMEOUT,
            why=("not all ranks ran within 60 s of being scheduled; attempt 2: deleting Job train-node-0 once more"),
            refused="a suspension would reset the deadline of the TrainJob (3600 s)",
            hurry="the group has been given its time to start",
        ),
        (
            "not all ranks ran within 60 s of being scheduled; attempt 2: deleting Job "
            "train-node-0 once more; no backoff, because a suspension would reset the deadline "
            "of the TrainJob (3600 s), and the group has been given its time to start"
        ),
    ),
    (
        told(
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
        told(
            Sentence.STAYS_SUSPENDED,
            Reason.DEFAULT_RESTART,
            why=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the "
                "default of policy default (RecreateGroupOnPodRestart) applies: deleting Job "
                "train-node-0 so that all 4 ranks restart together (0 of 1 recoveries left)"
            ),
            wait="10s",
            number=2,
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) was deleted; no rule matched, so the "
            "default of policy default (RecreateGroupOnPodRestart) applies: deleting Job "
            "train-node-0 so that all 4 ranks restart together (0 of 1 recoveries left); it "
            "stays suspended for 10s first (attempt 2 in a row)"
        ),
    ),
    (because(Reason.TIME_TO_START), "the group has been given its time to start"),
    (
        told(Sentence.LEFT_ALONE, Reason.JOB_FINISHING, why="Job train-node-0 has met its success criteria"),
        "Job train-node-0 has met its success criteria: left alone",
    ),
    (
        told(
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
        told(
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
            "pod train-node-0-3-20 (rank 3, node gpu-3) failed before all ranks ran; it is "
            "replaced without a restart of the others"
        ),
    ),
    (
        told(
            Sentence.NOT_CARRIED_OUT,
            Reason.JOB_PAUSED,
            evidence="restart asked for by anna: rank 3 is slow",
            bar="the job is paused by annotation",
        ),
        (
            "restart asked for by anna: rank 3 is slow; decided, but not carried out, because "
            "the job is paused by annotation"
        ),
    ),
    (
        because(Reason.API_REFUSES, evidence="pod train-node-0-2-10 (rank 2, node gpu-2) was deleted", error="jobs"),
        ("pod train-node-0-2-10 (rank 2, node gpu-2) was deleted; decided, but the API server refuses it: jobs"),
    ),
    (
        told(Sentence.RANKS_HAVE_MET, Reason.MEMBERS_RUN_AGAIN, ranks=4),
        "all 4 ranks have begun or joined since, so there is nothing to restart for",
    ),
    (
        told(Sentence.READY_MEANWHILE, Reason.RUNS_WHOLE_AGAIN, ranks=4),
        ("the restart was not carried out, and all 4 ranks have become Ready since: left alone"),
    ),
    (
        told(Sentence.ALL_READY, Reason.ALL_RANKS_READY, ranks=4, source="ready", verified="false"),
        "all 4 ranks are Ready (source: ready, verified: false)",
    ),
    (
        told(Sentence.ALL_JOINED, Reason.ALL_RANKS_READY, ranks=4, source="joined-probe", verified="true"),
        "all 4 ranks have joined (source: joined-probe, verified: true)",
    ),
    (
        because(Reason.TRAINING_PROGRESSES, ranks=4),
        "all 4 ranks are Ready, and the training progresses (source: progress, verified: true)",
    ),
    (
        because(Reason.PROGRESS_NOT_SEEN, ranks=4, seconds=900, source="ready", verified="false"),
        ("all 4 ranks are Ready, but the training reported no progress within 900 s (source: ready, verified: false)"),
    ),
    (
        told(
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
            fate=("node gpu-2 has not answered since 12:00:00 (NodeStatusUnknown); it is taken for dead after 600 s"),
        ),
        (
            "fencing: pod train-node-0-2-10 (rank 2, node gpu-2) may still run: node gpu-2 has "
            "not answered since 12:00:00 (NodeStatusUnknown); it is taken for dead after 600 s"
        ),
    ),
    (
        because(Reason.WAITING_FOR_TEARDOWN, pod="pod train-node-0-3-10 (rank 3, node gpu-3)", more=0),
        "waiting for pod train-node-0-3-10 (rank 3, node gpu-3) to be gone",
    ),
    (
        because(Reason.WAITING_FOR_TEARDOWN, pod="pod train-node-0-0-10 (rank 0, node gpu-0)", more=3),
        "waiting for pod train-node-0-0-10 (rank 0, node gpu-0) and 3 more to be gone",
    ),
    (
        told(Sentence.WAITING_FOR_FINALIZER, Reason.WAITING_FOR_TEARDOWN, jobs="train-node-0"),
        "waiting for Job train-node-0 to be gone: its pods are; a finalizer holds it",
    ),
    (
        told(Sentence.WAITING_FOR_OLD_JOB_SET, Reason.WAITING_FOR_TEARDOWN, jobset="train"),
        "waiting for JobSet train and its Jobs to be gone",
    ),
    (because(Reason.WAITING_FOR_JOB_SET), "waiting for Trainer to create the JobSet again"),
    (because(Reason.WAITING_FOR_RESUME, who="Trainer"), "waiting for Trainer to carry out that it is resumed"),
    (
        because(Reason.TRAINER_RESUMES, jobset="llm"),
        "JobSet llm is suspended, its TrainJob is not: waiting for Trainer to resume it",
    ),
    (told(Sentence.WAITING_FOR_JOB, Reason.WAITING_FOR_PODS), "waiting for JobSet to create the Job again"),
    (
        because(Reason.WAITING_FOR_PODS, count=0, ranks=4, placed=0),
        "0 of 4 pods have been created so far, 0 of them have a node",
    ),
    (
        because(
            Reason.PODS_REFUSED, job="train-node-0", why='pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus'
        ),
        ('Job train-node-0 cannot create its pods: pods "train-node-0-0-abc" is forbidden: exceeded quota: gpus'),
    ),
    (
        because(
            Reason.WAITING_FOR_CAPACITY,
            pod="pod train-node-0-3-21 (rank 3, not scheduled)",
            why="0/16 nodes are available",
        ),
        ("waiting for capacity: pod train-node-0-3-21 (rank 3, not scheduled): 0/16 nodes are available"),
    ),
    (because(Reason.WAITING_FOR_READY, who="the last pod", more=0), "waiting for the last pod to be Ready"),
    (
        because(Reason.WAITING_FOR_READY, who="pod train-node-0-0-20 (rank 0, node gpu-0)", more=3),
        "waiting for pod train-node-0-0-20 (rank 0, node gpu-0) and 3 more to be Ready",
    ),
    (because(Reason.JOB_WITHOUT_PODS, job="train-node-0", seconds=120), "Job train-node-0 got no pods for 120 s"),
    (because(Reason.START_TIMEOUT, seconds=60), "not all ranks ran within 60 s of being scheduled"),
    (
        because(
            Reason.RENDEZVOUS_TIMEOUT,
            seconds=900,
            what="waiting for pod train-node-0-0-20 (rank 0, node gpu-0) and 3 more to be Ready",
        ),
        (
            "not all ranks joined within 900 s of running; waiting for pod train-node-0-0-20 "
            "(rank 0, node gpu-0) and 3 more to be Ready"
        ),
    ),
    (
        because(Reason.BUDGET_WINDOW_PASSED, evidence="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted"),
        ("pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; held until the budget's window let it through"),
    ),
    (
        told(
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
        told(
            Sentence.HOLE_NOT_QUARANTINED,
            Reason.QUARANTINE_CAP,
            held=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space "
                "left, while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 "
                "suspicions, incident other-7 before)"
            ),
            refused="quarantine cap reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space "
            "left, while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 "
            "suspicions, incident other-7 before), but it is not quarantined: quarantine cap "
            "reached: 0 of 0 nodes (RecoveryConfig spec.quarantine.maxNodes 0)"
        ),
    ),
    (
        told(
            Sentence.HOLE_QUARANTINED,
            Reason.NODE_SWALLOWS_PODS,
            held=(
                "pod train-node-0-2-20 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), while "
                "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions, incident "
                "other-7 before)"
            ),
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) failed (UnexpectedAdmissionError), while "
            "members run on 3 other nodes: node gpu-2 is suspected (2 of 2 suspicions, incident "
            "other-7 before): quarantining it; nothing is restarted, its Job replaces the pod"
        ),
    ),
    (
        told(
            Sentence.HOLE_QUARANTINED_POD_STAYS,
            Reason.NODE_SWALLOWS_PODS,
            held=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space "
                "left, while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 "
                "suspicions, incident other-7 before)"
            ),
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) waits: CreateContainerError: no space "
            "left, while members run on 3 other nodes: node gpu-2 is suspected (2 of 2 "
            "suspicions, incident other-7 before): quarantining it; nothing is restarted, its "
            "pod there has to be deleted by hand"
        ),
    ),
    (told(Sentence.JOB_SET_WAS_FAILED, Reason.BUDGET_EXHAUSTED, jobset="train"), "JobSet train has been failed"),
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
        told(
            Sentence.LEFT_AS_IT_IS,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job "
            "failures); it is left as it is"
        ),
    ),
    (
        told(
            Sentence.NOT_RECREATED,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
            refused="a JobSet without a TrainJob would not be created again",
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job "
            "failures); it is not created again, because a JobSet without a TrainJob would not be "
            "created again"
        ),
    ),
    (
        told(Sentence.NOBODY_RECREATES_IT, Reason.PLATFORM_GAVE_UP),
        "a JobSet without a TrainJob would not be created again",
    ),
    (
        told(
            Sentence.RECREATING_JOB_SET,
            Reason.PLATFORM_GAVE_UP,
            gave_up=("the platform gave up: JobSet train is Failed (jobset failed due to one or more job failures)"),
            policy="default",
        ),
        (
            "the platform gave up: JobSet train is Failed (jobset failed due to one or more job "
            "failures); policy default says onTerminalFailure: RecreateJobSet: deleting it, so "
            "that Trainer creates it again"
        ),
    ),
    (because(Reason.RESTARTED_BY_HAND, verb="retry", by="", note=""), "retry asked for"),
    (because(Reason.RESTARTED_BY_HAND, verb="retry", by="jane", note=""), "retry asked for by jane"),
    (
        told(
            Sentence.RESTART_BY_HAND, Reason.RESTARTED_BY_HAND, found="restart asked for", jobs="train-node-0", ranks=4
        ),
        (
            "restart asked for: deleting Job train-node-0 so that all 4 ranks restart together, "
            "free of charge; no checkpoint is known of, so steps since the last one are lost"
        ),
    ),
    (
        told(
            Sentence.ANSWERED_BY_INCIDENT,
            Reason.RESTARTED_BY_HAND,
            incident="0d2f5c9e-1",
            why=(
                "restart asked for: deleting Job train-node-0 so that all 4 ranks restart together, "
                "free of charge; no checkpoint is known of, so steps since the last one are lost"
            ),
        ),
        (
            "incident 0d2f5c9e-1: restart asked for: deleting Job train-node-0 so that all 4 "
            "ranks restart together, free of charge; no checkpoint is known of, so steps since "
            "the last one are lost"
        ),
    ),
    (
        told(
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
        told(
            Sentence.ACCEPTED,
            Reason.BUDGET_RESET,
            verb="reset-budget",
            by="jane",
            note="",
            what="1 charges no longer count",
        ),
        "reset-budget by jane: 1 charges no longer count",
    ),
    (
        told(Sentence.REFUSED, Reason.NO_INCIDENT, verb="retry", why="no incident is open"),
        "retry is refused: no incident is open",
    ),
    (because(Reason.BUDGET_RESET, charges=1), "1 charges no longer count"),
    (because(Reason.BACKOFF_SKIPPED), "the backoff is over: it is resumed as soon as the old group is gone"),
    (
        because(Reason.REQUEST_EXPIRED, at="2026-11-21T11:43:20+00:00"),
        "it was asked for at 2026-11-21T11:43:20+00:00, too long ago",
    ),
    (
        because(Reason.REQUEST_PREMATURE, at="2026-12-03T01:46:40+00:00"),
        "it is dated 2026-12-03T01:46:40+00:00, which is yet to come",
    ),
    (because(Reason.NO_INCIDENT), "no incident is open"),
    (because(Reason.NOTHING_HELD_BACK, phase="Decided"), "nothing is held back: the group is in phase Decided"),
    (because(Reason.HELD_FOR_GOOD), "the group is Held for good"),
    (because(Reason.RESTART_UNDER_WAY, phase="TearingDown"), "a restart is under way (phase TearingDown)"),
    (because(Reason.NO_JOB), "there is no Job to restart"),
    (told(Sentence.JOB_SET_HAS_ENDED, Reason.JOB_SET_FAILED, jobset="train", state="Failed"), "JobSet train is Failed"),
    (
        told(Sentence.FORCE_OVERRIDES, Reason.OBSERVE_MODE, why="policy default is in mode Observe"),
        "policy default is in mode Observe (force overrides that)",
    ),
)


@pytest.mark.parametrize(("why", "sentence"), TOLD, ids=[f"{why.sentence}-{n}" for n, (why, _) in enumerate(TOLD)])
def test_the_sentence(why: Explanation, sentence: str) -> None:
    assert render(why) == sentence


def test_each_text_of_the_room_is_here() -> None:
    assert {why.sentence for why, _ in TOLD} == set(TEXTS)
