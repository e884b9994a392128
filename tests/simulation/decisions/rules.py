"""The rules that walks keep, and what the walks of each rule are drawn from.

Hypothesis draws from these tables in `make simulation`, the same walks in every run. `make soak ARGS=walks` draws from
them at random.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec

from recovery.core.incident.preconditions import barred
from recovery.core.incident.requests import Verb
from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import SuspendWorkload
from recovery.core.plan.suspension import marked_by
from recovery.core.policy.resolved import Backoff, Policy
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, OnTerminalFailure, Restart
from tests.simulation.decisions.walk import RANKS, Walk
from tests.unit.core.diagnosis.test_native_policies import on_condition, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

Step = tuple[Any, ...]
StepKind = tuple[Sequence[Any], ...]
"""The values of each place of a step: of its name first, then of what it has. A step takes one of each."""
Terms = Mapping[str, Any]
"""What a policy sets besides how many recoveries it allows."""

_RANK = range(RANKS)
LOSSES: tuple[StepKind, ...] = (
    (("deleted", "evicted"), _RANK),
    (("exited",), _RANK, (1, 42, 137)),
)
PLATFORM: tuple[StepKind, ...] = (
    (("job deleted", "controller restarted", "actions are lost", "reconcile"),),
    (("actions come twice", "actions are late"),),
    (("unreadable", "readable"),),
    (("stale cache", "stale ledger"), range(1, 7)),
    (("nothing moves",), range(1, 21)),
    (("clock",), (-40, -2, 3, 40)),
)
PEOPLE: tuple[StepKind, ...] = (
    (("paused", "not paused", "suspended", "unsuspended", "recovery resume"),),
    (("takes the suspension over", "observe", "enforce", "no policy", "bad"),),
    (("paused everywhere", "no restarts", "other terms", "may not fail jobs"),),
    (("asks",), tuple(Verb), (False, True)),
)
NODES: tuple[StepKind, ...] = ((("node silent",), _RANK), (("nodes back", "proven dead"),))
ENDS: tuple[StepKind, ...] = ((("succeeded", "job fails", "jobset failed", "deleted job"),),)
WAIT: tuple[StepKind, ...] = ((("wait",), range(1, 21)),)

WORLDS: Mapping[str, World] = {
    "plain": training(RANKS),
    "backoffLimit 2": training(RANKS, backoff_limit=2),
    "backoffLimit 0": training(RANKS, backoff_limit=0),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=2), backoff_limit=1),
    "has rules": training(RANKS, rules=(on_exit("FailJob", 42), on_condition("Ignore"))),
    "has not trained": group(RANKS, born=-1),
    "has a deadline": training(RANKS, backoff_limit=50).with_workload(active_deadline_seconds=3600),
    "restarts in place": training(RANKS, restart_policy="OnFailure"),
    "restarts in place, backoffLimit 2": training(RANKS, restart_policy="OnFailure", backoff_limit=2),
}
PATIENT: Mapping[str, World] = {
    "plain": training(RANKS, backoff_limit=50),
    "restarts in place": training(RANKS, restart_policy="OnFailure", backoff_limit=50),
    "has a deadline": training(RANKS, backoff_limit=50).with_workload(active_deadline_seconds=3600),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=1),
    "restarts itself at once": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=0),
}
"""Groups that the platform does not give up, however often they lose a member."""
TERMS: Mapping[str, Terms] = {
    "hold": {},
    "backoff": {"backoff": Backoff(initial=timedelta(seconds=5))},
    "suspend": {"window_seconds": 40, "on_exhausted": OnExhausted.SUSPEND},
    "fail": {"on_exhausted": OnExhausted.FAIL_JOB, "may_fail_jobs": True},
    "recreated": {
        "on_terminal_failure": OnTerminalFailure.RECREATE_JOB_SET,
        "backoff": Backoff(initial=timedelta(seconds=5)),
        "on_exhausted": OnExhausted.SUSPEND,
        "window_seconds": 60,
    },
    "rules": {
        "rules": (
            Rule("skip", RuleAction.IGNORE, When(on_exit_codes=ExitCodes(Operator.IN, (42,)))),
            Rule("node", RuleAction.REPLACE_NODE, When(on_exit_codes=ExitCodes(Operator.IN, (1,)))),
            Rule("free", RuleAction.RECREATE_GROUP, When(on_class=("PodDisrupted",)), charge=False),
        ),
        "limits": FleetLimits(may_cordon=True, max_nodes=1, breaker_recoveries=50),
        "fencing": FencingMode.ASSUME_DEAD,
        "assume_dead_seconds": 5,
        "may_assume_dead": True,
    },
    "fail rule": {
        "rules": (Rule("end", RuleAction.FAIL_JOB, When(on_exit_codes=ExitCodes(Operator.IN, (42,)))),),
        "may_fail_jobs": True,
        "fencing": FencingMode.ASSUME_DEAD,
        "assume_dead_seconds": 0,
    },
    "after start": {"restart": Restart.RECREATE_GROUP_AFTER_START, "backoff": Backoff(initial=timedelta(seconds=5))},
}
MILD_TERMS: Mapping[str, Terms] = {"observe": {"mode": Mode.OBSERVE}, "none": {"restart": Restart.NONE}}
SHORT_BACKOFF: Mapping[str, Terms] = {
    "short backoff": {"backoff": Backoff(initial=timedelta(seconds=3), longest=timedelta(seconds=10))}
}
PLAIN: Mapping[str, Terms] = {"hold": {}}


@dataclass(frozen=True)
class WalkPlan:
    """A drawn walk: the rule that it must keep, how it begins, and its steps."""

    rule: str
    world: str
    terms: str
    limit: int
    """How many recoveries the policy allows."""
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class WalkRule:
    """What must hold at the end of a walk, and what such walks are drawn from."""

    holds: Callable[[Walk], None]
    """Raises AssertionError if the rule is broken. `Walk` itself checks what must hold for each reconcile."""
    steps: tuple[StepKind, ...]
    most_steps: int
    worlds: Mapping[str, World]
    terms: Mapping[str, Terms]
    limits: Sequence[int]


def keep(plan: WalkPlan) -> None:
    """Take the walk. An exception: it breaks an invariant."""
    rule = RULES[plan.rule]
    terms = {"limit": plan.limit, **rule.terms[plan.terms]}
    walk = Walk(rule.worlds[plan.world], Controller(policy(**terms)), **terms)
    for step in plan.steps:
        walk.take(step)
    rule.holds(walk)


def _nothing_more(walk: Walk) -> None:
    """The walk has checked each of its reconciles."""


def _nothing_waits_in_vain(walk: Walk) -> None:
    """Reconciles only when something has changed or a plan has asked for it: no timer may be forgotten."""
    walk.skew = 0
    walk.nodes_back()
    walk.event("readable")
    plan = walk.reconcile()
    for _ in range(150):
        before = walk.world
        walk.pass_a_second()
        closing = plan.ledger.incident is not None and plan.ledger.incident.closing is not None
        due = plan.requeue_at is not None and plan.requeue_at <= at(walk.now)
        if due or closing or walk.world != before:
            plan = walk.reconcile()
    ledger, workload = walk.controller.ledger, walk.world.workload
    assert workload is not None
    wanted = ledger.incident is not None and ledger.incident.suspension is not None
    assert (marked_by(workload) is not None) <= (wanted and ledger.phase is Phase.HELD)
    if ledger.incident is not None:
        policy_ = walk.controller.policy
        assert ledger.phase is Phase.HELD or barred(workload, policy_) is not None, ledger.incident.message
        exhausted = (
            ledger.incident.pinned.budget_limit == 0 or plan.requeue_at is not None or ledger.incident.step.verdict
        )
        assert exhausted or barred(workload, policy_) is not None, ledger.incident.message


def _no_one_hangs(walk: Walk) -> None:
    walk.nodes_back()
    walk.event("readable")
    for _ in range(60):
        walk.tick()
    assert walk.controller.ledger.incident is None
    assert walk.controller.ledger.phase is Phase.HEALTHY
    assert walk.world.job.uid not in walk.hung
    assert all(walk.world.pod(index).ready for index in range(RANKS))
    ids = [incident.id for incident in walk.controller.recorded]
    assert len(ids) == len(set(ids)) == walk.controller.ledger.totals.incidents
    assert walk.controller.ledger.epoch == walk.controller.ledger.totals.restarts


def _no_one_hangs_and_nothing_is_suspended(walk: Walk) -> None:
    _no_one_hangs(walk)
    assert not any(isinstance(action, SuspendWorkload) for action in walk.controller.done)


def _workload_is_untouched(walk: Walk) -> None:
    assert walk.controller.workload_actions == []
    assert isinstance(walk.controller.policy, Policy)
    assert walk.controller.ledger.totals.charged == 0 or walk.controller.policy.mode is not Mode.OBSERVE


def _ledger_survives_its_encoding(walk: Walk) -> None:
    ledger = walk.controller.ledger
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger
    assert msgspec.convert(msgspec.to_builtins(ledger), type=Ledger) == ledger


_ALL = LOSSES + NODES + WAIT + PLATFORM + PEOPLE
_WITHOUT_PEOPLE = LOSSES + NODES + WAIT + PLATFORM
_LOSSES_AND_PLATFORM = LOSSES + WAIT + PLATFORM
RULES: Mapping[str, WalkRule] = {
    "the invariants hold": WalkRule(_nothing_more, _ALL + ENDS, 14, WORLDS, TERMS, range(4)),
    "nothing waits for what will not come": WalkRule(_nothing_waits_in_vain, _ALL, 14, WORLDS, TERMS, range(4)),
    "no one hangs": WalkRule(_no_one_hangs, _WITHOUT_PEOPLE, 12, PATIENT, PLAIN, (20,)),
    "no one hangs where restarts are withheld": WalkRule(
        _no_one_hangs_and_nothing_is_suspended,
        _WITHOUT_PEOPLE,
        12,
        {"has a deadline": PATIENT["has a deadline"]},
        SHORT_BACKOFF,
        (20,),
    ),
    "Observe and None do not touch the workload": WalkRule(
        _workload_is_untouched, _LOSSES_AND_PLATFORM, 12, WORLDS, MILD_TERMS, (10,)
    ),
    "the ledger survives its encoding": WalkRule(
        _ledger_survives_its_encoding, _LOSSES_AND_PLATFORM + ENDS, 10, WORLDS, PLAIN, (10,)
    ),
}
