"""Draws walks: a seed determines the whole walk, and always gives the same one.

The drawn jobs are small, valid and varied. The steps are drawn without knowledge of the state in which they will run: a
step that finds no target does nothing, in every cluster alike.
"""

import random
from collections.abc import Sequence
from typing import TypeVar

from tests.walks.plan import Act, ActKind, Container, ContainerKind, JobPlan, Json, Step, Walk, WorkloadPlan

T = TypeVar("T")

WALKS_IN_CI = 24
"""Seeds from 0: as many as fit into 150 s on two cores."""
TRAINER = "node"
"""Name of the container that trains, as in Trainer's runtimes."""
JOB_NAMES = ("node", "eval", "log")
MOST_PODS = 8
FEWEST_STEPS = 6
MOST_STEPS = 15
"""Without the final steps that repair what is still broken."""
FAIL_JOB_CODE = 42
FAIL_INDEX_CODE = 43
RESTART_CODE = 44
SIMULTANEOUS_SHARE = 0.12
DEADLINE_EVERY = 8
"""One in this many walks is about a deadline, alternately of a TrainJob and of a Job."""

_WEIGHTS = {
    ActKind.EXIT: 34,
    ActKind.DELETE_POD: 10,
    ActKind.EVICT: 8,
    ActKind.SUSPEND: 12,
    ActKind.RESIZE: 8,
    ActKind.TAINT: 6,
    ActKind.REBOOT: 6,
    ActKind.RESTART_JOB_SET: 5,
    ActKind.DELETE_JOB: 5,
    ActKind.DELETE_JOB_SET: 2,
    ActKind.FINISH: 4,
    ActKind.EXPIRE: 2,
    ActKind.LOSE_NODE: 1,
}
"""How often each act happens. Acts that undo another one (resume, untaint, recovery) follow it by rule."""
_SECONDS = {
    ActKind.EXIT: 7.0,
    ActKind.DELETE_POD: 9.0,
    ActKind.EVICT: 9.0,
    ActKind.FINISH: 5.0,
    ActKind.TAINT: 9.0,
    ActKind.LOSE_NODE: 60.0,
}
"""Average seconds of each act on the real control plane; a lost pod is replaced after 10 s or more. Other acts: 4 s."""
ENOUGH_SECONDS = 75.0
"""A walk that takes this long gets no more than the fewest steps, so that CI does not wait for a single walk."""
_UNDONE_BY = {
    ActKind.SUSPEND: ActKind.RESUME,
    ActKind.TAINT: ActKind.UNTAINT,
    ActKind.LOSE_NODE: ActKind.RECOVER_NODES,
}
_AT_ONCE = (ActKind.EXIT, ActKind.DELETE_POD, ActKind.EVICT, ActKind.RESIZE, ActKind.SUSPEND, ActKind.RESTART_JOB_SET)
"""Acts that may happen at the same time as another one."""


def draw(seed: int) -> Walk:
    dice = random.Random(seed)
    if seed % DEADLINE_EVERY == DEADLINE_EVERY - 1:
        return _deadline_walk(seed, dice, of_the_train_job=seed // DEADLINE_EVERY % 2 == 0)
    workload = _workload(dice)
    return Walk(seed, workload, tuple(_steps(dice, workload)))


# Jobs.


def _workload(dice: random.Random) -> WorkloadPlan:
    kind = _one_of(dice, {"TrainJob": 3, "JobSet": 2})
    jobs: list[JobPlan] = []
    for name in JOB_NAMES[: _one_of(dice, {1: 5, 2: 3, 3: 2})]:
        taken = sum(job.pods * job.replicas for job in jobs)
        if taken < MOST_PODS:
            jobs.append(_job(dice, name, jobs, MOST_PODS - taken, of_train_job=kind == "TrainJob"))
    success: Json | None = None
    if dice.random() < 0.2:
        operator = dice.choice(("All", "Any"))
        success = {"operator": operator, "targetReplicatedJobs": [dice.choice(jobs).name]}
    ordered = dice.random() < 0.15 and not any(job.depends_on for job in jobs)
    return WorkloadPlan(
        kind,
        tuple(jobs),
        suspended=dice.random() < 0.3,
        failure_policy=_failure_policy(dice, jobs),
        success_policy=success,
        in_order=ordered,
    )


def _job(dice: random.Random, name: str, earlier: Sequence[JobPlan], room: int, *, of_train_job: bool) -> JobPlan:
    """Trainer runs the trainer once and gives each Job as many completions as pods."""
    containers = _containers(dice)
    pods = min(room, _one_of(dice, {1: 2, 2: 4, 3: 3, 4: 1}))
    is_trainer = of_train_job and name == TRAINER
    replicas = 2 if not is_trainer and 2 * pods <= room and dice.random() < 0.2 else 1
    completions = pods + dice.randint(1, 2) if not of_train_job and dice.random() < 0.15 else None
    restart_policy = _one_of(dice, {"Never": 3, "OnFailure": 2})
    never = restart_policy == "Never"
    per_index = dice.randint(0, 1) if never and dice.random() < 0.25 else None
    depends_on = None
    if earlier and dice.random() < 0.25:
        depends_on = (dice.choice(earlier).name, dice.choice(("Ready", "Complete")))
    rules = _failure_rules(dice, per_index=per_index is not None) if never and dice.random() < 0.6 else ()
    return JobPlan(
        name,
        containers,
        pods,
        completions=completions,
        replicas=replicas,
        restart_policy=restart_policy,
        backoff_limit=dice.randint(0, 2) if per_index is None else None,
        backoff_limit_per_index=per_index,
        max_failed_indexes=dice.randint(0, pods) if per_index is not None and dice.random() < 0.5 else None,
        failure_rules=rules,
        replacement_policy="Failed" if not rules and dice.random() < 0.2 else None,
        success_indexes="0" if dice.random() < 0.12 else None,
        depends_on=depends_on,
    )


def _containers(dice: random.Random) -> tuple[Container, ...]:
    restart_codes = (RESTART_CODE,) if dice.random() < 0.15 else ()
    containers = (Container(TRAINER, ContainerKind.TRAINER, restart_codes),)
    kinds = {
        ContainerKind.HELPER: 4,
        ContainerKind.SHIPPER: 4,
        ContainerKind.NATIVE: 4,
        ContainerKind.DEAF: 1,
        ContainerKind.ABSENT: 1,
    }
    count = _one_of(dice, {0: 4, 1: 4, 2: 2})
    return (*containers, *(Container(f"side-{number}", _one_of(dice, kinds)) for number in range(count)))


def _failure_rules(dice: random.Random, *, per_index: bool) -> tuple[Json, ...]:
    container = {"containerName": TRAINER} if dice.random() < 0.5 else {}
    rules: list[Json] = [
        {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [FAIL_JOB_CODE], **container}},
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Count", "onExitCodes": {"operator": "NotIn", "values": [FAIL_JOB_CODE, FAIL_INDEX_CODE]}},
    ]
    if per_index:
        rules.append({"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [FAIL_INDEX_CODE]}})
    return tuple(dice.sample(rules, dice.randint(1, len(rules))))


def _failure_policy(dice: random.Random, jobs: Sequence[JobPlan]) -> Json | None:
    if dice.random() < 0.2:
        return None
    rules: list[Json] = []
    if dice.random() < 0.3:
        rules.append({"name": "given", "action": "FailJobSet", "onJobFailureReasons": ["PodFailurePolicy"]})
    if dice.random() < 0.3:
        rule = {"name": "free", "action": "RestartJobSetAndIgnoreMaxRestarts"}
        rules.append({**rule, "targetReplicatedJobs": [dice.choice(jobs).name]})
    policy: Json = {"maxRestarts": dice.randint(0, 3), "restartStrategy": dice.choice(("Recreate", "BlockingRecreate"))}
    return {**policy, "rules": rules} if rules else policy


# What happens to the jobs.


def _steps(dice: random.Random, workload: WorkloadPlan) -> list[Step]:
    steps: list[Step] = []
    undo: dict[ActKind, int] = {}
    """Acts that still have to be undone, with the number of steps until then."""
    if workload.suspended:
        undo[ActKind.RESUME] = dice.randint(0, 1)
    for drawn in range(dice.randint(FEWEST_STEPS, MOST_STEPS)):
        if drawn >= FEWEST_STEPS and expected_seconds(steps) > ENOUGH_SECONDS:
            break
        due = [kind for kind, left in undo.items() if left == 0]
        undo = {kind: left - 1 for kind, left in undo.items() if left > 0}
        if due:
            steps += [Step((Act(kind),)) for kind in due]
            continue
        act = _act(dice, workload, undo)
        acts = [act]
        if act.kind in _AT_ONCE and dice.random() < SIMULTANEOUS_SHARE:
            acts.append(_act(dice, workload, undo, kinds=_AT_ONCE))
        for kind in {each.kind for each in acts} & _UNDONE_BY.keys():
            undo.setdefault(_UNDONE_BY[kind], dice.randint(0, 2))
        steps.append(Step(tuple(acts)))
    return [*steps, *(Step((Act(kind),)) for kind in undo)]


def expected_seconds(steps: Sequence[Step]) -> float:
    """Roughly how long the steps take if each finds a target."""
    last = max((step.not_before_seconds for step in steps), default=0.0)
    return max(last, sum(_SECONDS.get(act.kind, 4.0) for step in steps for act in step.acts))


def _act(
    dice: random.Random, workload: WorkloadPlan, undo: dict[ActKind, int], kinds: Sequence[ActKind] = tuple(_WEIGHTS)
) -> Act:
    """`undo`: an act that is not undone yet is not drawn again."""
    possible = {kind: _WEIGHTS[kind] for kind in kinds if _UNDONE_BY.get(kind) not in undo}
    kind = _one_of(dice, possible)
    place = round(dice.random(), 3)
    match kind:
        case ActKind.EXIT:
            code = _one_of(dice, {1: 4, FAIL_JOB_CODE: 3, 0: 3, FAIL_INDEX_CODE: 1, RESTART_CODE: 1, 137: 1})
            names = [each.name for job in workload.jobs for each in job.containers]
            return Act(kind, place, code, TRAINER if dice.random() < 0.6 else dice.choice(names))
        case ActKind.RESIZE:
            return Act(kind, place, dice.randint(1, 4))
        case ActKind.DELETE_POD | ActKind.DELETE_JOB | ActKind.LOSE_NODE:
            return Act(kind, place, _one_of(dice, {0: 2, 1: 1}))
        case _:
            return Act(kind, place)


def _deadline_walk(seed: int, dice: random.Random, *, of_the_train_job: bool) -> Walk:
    """A deadline that restarts with the resume: nothing may happen when the first count would have run out.

    By either count, the steps stay some seconds away from every moment at which something is due.
    """
    seconds = dice.randint(22, 26)
    job = JobPlan(
        TRAINER,
        _containers(dice),
        dice.randint(1, 3),
        restart_policy=dice.choice(("Never", "OnFailure")),
        backoff_limit=dice.randint(0, 2),
        deadline_seconds=None if of_the_train_job else seconds,
    )
    workload = WorkloadPlan(
        "TrainJob" if of_the_train_job else dice.choice(("TrainJob", "JobSet")),
        (job,),
        suspended=dice.random() < 0.3,
        deadline_seconds=seconds if of_the_train_job else None,
        failure_policy=dice.choice((None, {"maxRestarts": 0, "restartStrategy": "Recreate"})),
    )
    suspend = [Step((Act(ActKind.SUSPEND),), 6.0)] if not workload.suspended else []
    steps = [
        *suspend,
        Step((Act(ActKind.RESUME),), 14.0),
        Step((Act(ActKind.REST),), 28.0),
        Step((Act(ActKind.REST),), 14.0 + seconds + 8.0),
    ]
    return Walk(seed, workload, tuple(steps))


def _one_of(dice: random.Random, weights: dict[T, int]) -> T:
    return dice.choices(list(weights), list(weights.values()))[0]
