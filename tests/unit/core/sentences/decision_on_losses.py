"""Sentences about decisions on a loss."""

from recovery.core.model.reason import Explanation, Reason, because, explained
from recovery.core.model.sentence import Sentence

ON_LOSSES: tuple[tuple[Explanation, str], ...] = (
    (
        because(Reason.RESTART_NONE, policy="default"),
        "policy default sets restart: None, so the failure is left to Kubernetes",
    ),
    (
        because(Reason.DEFAULT_RESTART, policy="default", restart="RecreateGroupAfterStart"),
        ("no rule matched, so the default of policy default (RecreateGroupAfterStart) applies"),
    ),
    (
        explained(
            Sentence.RULE_SAYS,
            Reason.RULE_RECREATE_GROUP,
            rule="all",
            match="the class is NodeLost",
            action="RecreateGroup",
        ),
        "rule all (the class is NodeLost) says RecreateGroup",
    ),
    (
        explained(
            Sentence.RULE_IGNORES,
            Reason.RULE_IGNORE,
            rule="mine",
            match="exit code 7 of container node is in [7]",
            action="Ignore",
        ),
        ("rule mine (exit code 7 of container node is in [7]) says Ignore, so the failure is left to Kubernetes"),
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
        explained(
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
        explained(
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
        explained(
            Sentence.BUT_MEMBER_RUNS,
            Reason.QUARANTINE_NOT_ALLOWED,
            why="rule gpu (node gpu-2 has condition GpuPcieWatch=True) says ReplaceNode",
            refused=("node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"),
        ),
        (
            "rule gpu (node gpu-2 has condition GpuPcieWatch=True) says ReplaceNode, but node gpu-2 is not "
            "quarantined: RecoveryConfig does not allow it (spec.allow.cordon); the member on it still runs, "
            "so the group is not restarted"
        ),
    ),
    (because(Reason.NODE_UNKNOWN), "the node of the failure is not known"),
    (
        explained(Sentence.NODE_MAY_NOT_BE_CORDONED, Reason.QUARANTINE_NOT_ALLOWED, node="gpu-2"),
        ("node gpu-2 is not quarantined: RecoveryConfig does not allow it (spec.allow.cordon)"),
    ),
    (
        explained(
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
        "Job train-node-0 has 3 pods, and a restart would create it with 4 and so undo the resize",
    ),
    (
        because(
            Reason.FINISH_OVERDUE,
            done=explained(Sentence.CRITERIA_MET, Reason.JOB_FINISHING, job="train-node-0"),
            timeout="10m",
        ),
        (
            "Job train-node-0 has met its success criteria, but the job did not end within 10m of that and of the "
            "loss; a restart would discard finished work, so a person has to decide"
        ),
    ),
    (
        because(Reason.SAME_ERROR_AGAIN, code=1, message="\"KeyError: 'lr'\"", node="gpu-9", other="gpu-2"),
        (
            "exit code 1 with the same message (\"KeyError: 'lr'\") came back soon after the start, first on "
            "node gpu-2 and now on node gpu-9, so it counts as an error of the job, which a restart does not fix"
        ),
    ),
    (
        because(Reason.BAD_CHECKPOINT, code=1, message="'RuntimeError: loss is NaN at step <n>'", step=1200),
        (
            "exit code 1 with the same message ('RuntimeError: loss is NaN at step <n>') came back at the same "
            "step (1200) as before the restart: the checkpoint may be bad"
        ),
    ),
    (because(Reason.SETTLING), "evidence of the cause may still arrive: the rules are evaluated after spec.settle"),
    (
        because(Reason.STORM, what="3 nodes were lost within a minute", storm="storm-20261121T120000Z"),
        ("3 nodes were lost within a minute (storm-20261121T120000Z): waiting until no more nodes are lost"),
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
    (explained(Sentence.WOULD_LEAVE, Reason.RULE_IGNORE), "left it to Kubernetes"),
    (explained(Sentence.WOULD_FAIL, Reason.RULE_FAIL_JOB), "failed the JobSet"),
    (
        explained(
            Sentence.WOULD_HOLD,
            Reason.BUDGET_EXHAUSTED,
            why="the budget of policy default is exhausted (limit 0 within 24h)",
            on_exhausted="Hold",
        ),
        ("held the group (onExhausted: Hold), because the budget of policy default is exhausted (limit 0 within 24h)"),
    ),
    (
        explained(
            Sentence.WOULD_HOLD,
            Reason.RULE_FAIL_JOB_NOT_ALLOWED,
            why=(
                "rule mine (exit code 42 of container node is in [42]) says FailJob, which "
                "RecoveryConfig does not allow (spec.allow.failJob)"
            ),
            on_exhausted="",
        ),
        (
            "held the group, because rule mine (exit code 42 of container node is in [42]) says "
            "FailJob, which RecoveryConfig does not allow (spec.allow.failJob)"
        ),
    ),
    (
        explained(Sentence.WOULD_RESTART, Reason.RULE_RECREATE_GROUP, node="", jobs="llm-node-0", ranks=2, free=""),
        "deleted Job llm-node-0, so that all 2 ranks restart together",
    ),
    (
        explained(
            Sentence.WOULD_RESTART,
            Reason.RULE_RECREATE_GROUP,
            node="",
            jobs="train-node-0",
            ranks=4,
            free="not charged to the budget",
        ),
        "deleted Job train-node-0, so that all 4 ranks restart together, not charged to the budget",
    ),
    (
        explained(Sentence.WOULD_RECREATE_JOB_SET, Reason.PLATFORM_GAVE_UP, jobset="train"),
        "deleted JobSet train, so that Trainer creates it again",
    ),
    (
        explained(
            Sentence.WOULD_BY,
            Reason.RULE_FAIL_JOB,
            would="failed the JobSet",
            why="rule mine (exit code 42 of container node is in [42]) says FailJob",
        ),
        ("failed the JobSet (rule mine (exit code 42 of container node is in [42]) says FailJob)"),
    ),
    (
        explained(
            Sentence.WOULD_BUT_BREAKER,
            Reason.DEFAULT_RESTART,
            would="deleted Job train-node-0, so that all 4 ranks restart together",
            breaker=(
                "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; "
                "recovery reset-breaker closes it"
            ),
        ),
        (
            "Enforce would have deleted Job train-node-0, so that all 4 ranks restart together; "
            "the circuit breaker is open: 5 recoveries within 60 minutes brought no progress; "
            "recovery reset-breaker closes it"
        ),
    ),
    (
        explained(
            Sentence.WOULD_BUT_OBSERVE,
            Reason.PLATFORM_GAVE_UP,
            policy="default",
            would="deleted JobSet train, so that Trainer creates it again",
        ),
        "policy default was in mode Observe: Enforce would have deleted JobSet train, so that Trainer creates it again",
    ),
    (
        explained(
            Sentence.TOO_LATE_BY_BREAKER,
            Reason.ENFORCED_TOO_LATE,
            said=(
                "pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 1; Enforce would "
                "have deleted Job train-node-0, so that all 4 ranks restart together; the circuit "
                "breaker is open: 5 recoveries within 60 minutes brought no progress; recovery "
                "reset-breaker closes it"
            ),
            policy="default",
            workload="train",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) failed with exit code 1; Enforce would have deleted Job "
            "train-node-0, so that all 4 ranks restart together; the circuit breaker is open: 5 recoveries "
            "within 60 minutes brought no progress; recovery reset-breaker closes it; this happened while the "
            "circuit breaker was open, so nothing is done; if the ranks hang, run recovery restart train "
            "--reason TEXT"
        ),
    ),
    (
        explained(
            Sentence.TOO_LATE_BY_MODE,
            Reason.ENFORCED_TOO_LATE,
            said=(
                "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; policy default was in mode "
                "Observe: Enforce would have deleted Job train-node-0, so that all 4 ranks restart "
                "together"
            ),
            policy="default",
            workload="train",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; policy default was in mode Observe: "
            "Enforce would have deleted Job train-node-0, so that all 4 ranks restart together; this happened "
            "before policy default was in mode Enforce, so nothing is done; if the ranks hang, run recovery "
            "restart train --reason TEXT"
        ),
    ),
    (
        explained(Sentence.SINCE_BREAKER_CLOSED, Reason.MODE_SWITCHED),
        ("the circuit breaker was closed, and another member was lost after that, which opens a new incident"),
    ),
    (
        explained(Sentence.SINCE_ENFORCED, Reason.MODE_SWITCHED),
        ("the policy was switched to Enforce, and another member was lost after that, which opens a new incident"),
    ),
    (
        explained(
            Sentence.HELD,
            Reason.BUDGET_EXHAUSTED,
            found="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            why="the budget of policy default is exhausted (limit 0 within 2h)",
            then="",
        ),
        (
            "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; held, because the budget of policy "
            "default is exhausted (limit 0 within 2h)"
        ),
    ),
    (explained(Sentence.HELD_SUSPENDED, Reason.BUDGET_EXHAUSTED), "; the job is suspended to free its GPUs"),
    (explained(Sentence.HELD_FAILING, Reason.RULE_FAIL_JOB), "; the controller fails the JobSet"),
    (explained(Sentence.HELD_UNTIL_RETRY, Reason.SAME_ERROR_AGAIN), "; to try again, run recovery retry"),
    (
        explained(Sentence.HELD_FAILING_BY_BUDGET, Reason.BUDGET_EXHAUSTED),
        "; the controller fails the JobSet (onExhausted: FailJob)",
    ),
    (
        explained(
            Sentence.HELD_NOT_SUSPENDED, Reason.RESUMED_BY_OTHERS, why="another client has resumed this job before"
        ),
        "; the job is not suspended, because another client has resumed this job before",
    ),
    (
        explained(Sentence.HELD_NOT_FAILED, Reason.BUDGET_EXHAUSTED),
        "; the JobSet is not failed, because RecoveryConfig does not allow it (spec.allow.failJob)",
    ),
    (
        explained(
            Sentence.SEEN_THEN,
            Reason.RESTARTED_BY_HAND,
            found="pod train-node-0-3-10 (rank 3, node gpu-3) was deleted",
            what="retry requested",
        ),
        "pod train-node-0-3-10 (rank 3, node gpu-3) was deleted; retry requested",
    ),
    (
        explained(
            Sentence.STANDING_ASIDE,
            Reason.BACKOFF_LIMIT_ZERO,
            found="pod llm-0 failed",
            decided="Job llm has backoffLimit 0: it fails with its first pod",
        ),
        ("pod llm-0 failed; standing aside, because Job llm has backoffLimit 0: it fails with its first pod"),
    ),
    (
        explained(
            Sentence.NOTHING_DONE,
            Reason.JOB_PAUSED,
            found="not all ranks started within 60 s after they were scheduled",
            bar="the job is paused by annotation",
        ),
        (
            "not all ranks started within 60 s after they were scheduled; nothing is done, because the job is "
            "paused by annotation"
        ),
    ),
    (
        because(Reason.MEMBERS_RUN_AGAIN, ranks=4),
        "no sign of the failure is left and all 4 ranks run: waiting for them to be Ready",
    ),
    (
        explained(
            Sentence.RESTART,
            Reason.RULE_RECREATE_GROUP,
            found="pod train-node-0-2-10 (rank 2, node gpu-2) is lost: node gpu-2 was deleted",
            why="rule all (the class is NodeLost) says RecreateGroup",
            node="",
            jobs="train-node-0",
            ranks=4,
            left="0 of 1 recoveries left",
        ),
        (
            "pod train-node-0-2-10 (rank 2, node gpu-2) is lost: node gpu-2 was deleted; rule all (the class "
            "is NodeLost) says RecreateGroup: deleting Job train-node-0 so that all 4 ranks restart together "
            "(0 of 1 recoveries left)"
        ),
    ),
    (
        explained(
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
        explained(
            Sentence.RESTART_AGAIN,
            Reason.JOB_WITHOUT_PODS,
            found="Job train-node-0 has had no pods for 120 s",
            why="",
            attempt=2,
            node="",
            jobs="train-node-0",
        ),
        ("Job train-node-0 has had no pods for 120 s; attempt 2: deleting Job train-node-0 again"),
    ),
    (
        explained(
            Sentence.RESTART_AGAIN,
            Reason.RULE_RECREATE_GROUP,
            found="pod train-node-0-2-20 (rank 2, node gpu-2) failed with exit code 42",
            why="rule mine (exit code 42 of container node is in [42]) says RecreateGroup",
            attempt=2,
            node="",
            jobs="train-node-0",
        ),
        (
            "pod train-node-0-2-20 (rank 2, node gpu-2) failed with exit code 42; rule mine (exit code 42 of "
            "container node is in [42]) says RecreateGroup; attempt 2: deleting Job train-node-0 again"
        ),
    ),
    (
        explained(
            Sentence.SPARED,
            Reason.DEFAULT_RESTART,
            rule=because(
                Reason.POD_FAILURE_POLICY, number=0, job="train-node-0", action="Ignore", pod="train-node-0-1"
            ),
        ),
        "not charged to the budget: podFailurePolicy rule 0 of Job train-node-0 (action Ignore) matches pod "
        "train-node-0-1",
    ),
    (
        explained(
            Sentence.LEFT_TO_ITS_CREATOR, Reason.PLATFORM_RESTART, said="Job train-node-0 was deleted", creator="JobSet"
        ),
        "Job train-node-0 was deleted; JobSet creates it again: adopted as this incident's restart (not charged to the "
        "budget)",
    ),
    (explained(Sentence.JOB_SET_WAS_DELETED, Reason.PLATFORM_RESTART, jobset="train"), "JobSet train was deleted"),
    (
        explained(
            Sentence.LEFT_TO_ITS_CREATOR,
            Reason.PLATFORM_RESTART,
            said="Job train-node-0 was deleted with its JobSet",
            creator="",
        ),
        "Job train-node-0 was deleted with its JobSet; Trainer creates the JobSet again: adopted as this incident's "
        "restart (not charged to the budget)",
    ),
)
