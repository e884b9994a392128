"""Sentences about a group that others restart again and again."""

from recovery.core.model.reason import Explanation, Reason, because

ON_CRASH_LOOPS: tuple[tuple[Explanation, str], ...] = (
    (
        because(
            Reason.CRASH_LOOP,
            most=2,
            window="24h",
            policy="default",
            limit=2,
            jobset="llm",
            action="RestartJobSetAndIgnoreMaxRestarts",
            max_restarts=3,
            kind="TrainJob",
            job="llm",
            kueue="",
        ),
        "the group restarted more than 2 times within 24h, where policy default allows 2: a rule of the failurePolicy "
        "of JobSet llm has action RestartJobSetAndIgnoreMaxRestarts, which maxRestarts does not limit, and the "
        "controller cannot prevent that; to stop it, set spec.suspend: true in TrainJob llm; a failurePolicy cannot be "
        "changed: create the job again with another runtime, whose rule has action RestartJobSet (maxRestarts limits "
        "that) or FailJobSet",
    ),
    (
        because(
            Reason.CRASH_LOOP,
            most=1,
            window="1h",
            policy="default",
            limit=0,
            jobset="llm",
            action="",
            max_restarts=50,
            kind="JobSet",
            job="llm",
            kueue="queue training",
        ),
        "the group restarted more than once within 1h, where policy default allows 0: the failurePolicy of JobSet llm "
        "restarts it until maxRestarts 50 is exhausted, and the controller cannot prevent that; to stop it, set "
        "spec.active: false in its Workload, because Kueue owns spec.suspend; a failurePolicy cannot be changed: "
        "create the job again with another failurePolicy, whose maxRestarts is lower",
    ),
    (
        because(
            Reason.CRASH_LOOP,
            most=10,
            window="24h",
            policy="default",
            limit=10,
            jobset="llm",
            action="",
            max_restarts=0,
            kind="TrainJob",
            job="llm",
            kueue="",
        ),
        "the group restarted more than 10 times within 24h, where policy default allows 10: another client restarts "
        "JobSet llm or its Jobs, and the controller cannot prevent that; to stop it, set spec.suspend: true in "
        "TrainJob llm",
    ),
)
