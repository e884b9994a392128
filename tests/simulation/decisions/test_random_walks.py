"""Random walks: for any events in any order, the invariants hold, and in the end no group hangs."""

from datetime import timedelta
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.incident.preconditions import barred
from recovery.core.incident.requests import Verb
from recovery.core.model.fleet_ledger import FleetLimits
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.native_policy_facts import FailurePolicyFacts
from recovery.core.model.rules import ExitCodes, Operator, Rule, RuleAction, When
from recovery.core.plan.actions import (
    SuspendWorkload,
)
from recovery.core.plan.suspension import marked_by
from recovery.core.policy.resolved import Backoff
from recovery.core.policy.spec import FencingMode, Mode, OnExhausted, OnTerminalFailure, Restart
from tests.simulation.decisions.walk import RANKS, Walk
from tests.unit.core.diagnosis.test_native_policies import on_condition, on_exit
from tests.unit.core.driver import Controller, policy
from tests.unit.core.groups import group, training
from tests.unit.core.world import at

STEPS = settings(max_examples=40)
MANY_STEPS = settings(STEPS, max_examples=200)

rank = st.integers(0, RANKS - 1)
LOSSES = st.one_of(
    st.tuples(st.sampled_from(["deleted", "evicted"]), rank),
    st.tuples(st.just("exited"), rank, st.sampled_from([1, 42, 137])),
)
PLATFORM = st.one_of(
    st.sampled_from([("job deleted",), ("controller restarted",), ("actions are lost",), ("reconcile",)]),
    st.sampled_from([("actions come twice",), ("actions are late",)]),
    st.sampled_from([("unreadable",), ("readable",)]),
    st.tuples(st.sampled_from(["stale cache", "stale ledger"]), st.integers(1, 6)),
    st.tuples(st.just("nothing moves"), st.integers(1, 20)),
    st.tuples(st.just("clock"), st.sampled_from([-40, -2, 3, 40])),
)
PEOPLE = st.one_of(
    st.sampled_from([("paused",), ("not paused",), ("suspended",), ("unsuspended",), ("recovery resume",)]),
    st.sampled_from([("takes the suspension over",), ("observe",), ("enforce",), ("no policy",), ("bad",)]),
    st.sampled_from([("paused everywhere",), ("no restarts",), ("other terms",), ("may not fail jobs",)]),
    st.tuples(st.just("asks"), st.sampled_from(list(Verb)), st.booleans()),
)
NODES = st.one_of(st.tuples(st.just("node silent"), rank), st.sampled_from([("nodes back",), ("proven dead",)]))
ENDS = st.sampled_from([("succeeded",), ("job fails",), ("jobset failed",), ("deleted job",)])
WAIT = st.tuples(st.just("wait"), st.integers(1, 20))
WORLDS = {
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
WORLD = st.sampled_from(list(WORLDS))
PATIENT = {
    "plain": training(RANKS, backoff_limit=50),
    "restarts in place": training(RANKS, restart_policy="OnFailure", backoff_limit=50),
    "has a deadline": training(RANKS, backoff_limit=50).with_workload(active_deadline_seconds=3600),
    "restarts itself": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=1),
    "restarts itself at once": training(RANKS, failure_policy=FailurePolicyFacts(max_restarts=50), backoff_limit=0),
}
"""Groups that the platform does not give up, however often they lose a member."""
TERMS: dict[str, dict[str, Any]] = {
    "hold": {},
    "backoff": {"backoff": Backoff(initial=timedelta(seconds=5))},
    "suspend": {"window_seconds": 40, "on_exhausted": OnExhausted.SUSPEND},
    "fail": {"on_exhausted": OnExhausted.FAIL_JOB, "may_fail_jobs": True},
    "anew": {
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
"""What policies set besides the mode, and how many recoveries they allow."""


@MANY_STEPS
@given(
    WORLD,
    st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM, PEOPLE, ENDS), max_size=14),
    st.integers(0, 3),
    st.sampled_from(list(TERMS)),
)
def test_whatever_happens_the_invariants_hold(world: str, steps: list[tuple[Any, ...]], limit: int, terms: str) -> None:
    walk = Walk(WORLDS[world], Controller(policy(limit=limit, **TERMS[terms])), limit=limit, **TERMS[terms])
    for step in steps:
        walk.take(step)


@MANY_STEPS
@given(
    WORLD,
    st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM, PEOPLE), max_size=14),
    st.integers(0, 3),
    st.sampled_from(list(TERMS)),
)
def test_once_all_is_quiet_nothing_waits_for_what_will_not_come(
    world: str, steps: list[tuple[Any, ...]], limit: int, terms: str
) -> None:
    """Reconciles only when something has changed or a plan has asked for it: no timer may be forgotten."""
    walk = Walk(WORLDS[world], Controller(policy(limit=limit, **TERMS[terms])), limit=limit, **TERMS[terms])
    for step in steps:
        walk.take(step)
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
        exhausted = ledger.incident.pinned.budget_limit == 0 or plan.requeue_at is not None or ledger.incident.held
        assert exhausted or barred(workload, policy_) is not None, ledger.incident.message


@STEPS
@given(st.sampled_from(list(PATIENT)), st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM), max_size=12))
def test_in_the_end_no_one_hangs_and_nothing_is_open(world: str, steps: list[tuple[Any, ...]]) -> None:
    _no_one_hangs(Walk(PATIENT[world], Controller(policy(limit=20))), steps)


@MANY_STEPS
@given(st.lists(st.one_of(LOSSES, NODES, WAIT, PLATFORM), max_size=12))
def test_in_the_end_no_one_hangs_where_restarts_are_withheld(steps: list[tuple[Any, ...]]) -> None:
    backoff = Backoff(initial=timedelta(seconds=3), longest=timedelta(seconds=10))
    walk = Walk(PATIENT["has a deadline"], Controller(policy(limit=20, backoff=backoff)))
    _no_one_hangs(walk, steps)
    assert not any(isinstance(action, SuspendWorkload) for action in walk.controller.done)


def _no_one_hangs(walk: Walk, steps: list[tuple[Any, ...]]) -> None:
    for step in steps:
        walk.take(step)
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


@STEPS
@given(WORLD, st.lists(st.one_of(LOSSES, WAIT, PLATFORM), max_size=12), st.sampled_from(["observe", "none"]))
def test_observe_and_none_never_touch_the_workload(world: str, steps: list[tuple[Any, ...]], which: str) -> None:
    mild = policy(Mode.OBSERVE) if which == "observe" else policy(restart=Restart.NONE)
    walk = Walk(WORLDS[world], Controller(mild))
    for step in steps:
        walk.take(step)
    assert walk.controller.workload_actions == []
    assert walk.controller.ledger.totals.charged == 0 or which == "none"


@STEPS
@given(WORLD, st.lists(st.one_of(LOSSES, WAIT, PLATFORM, ENDS), max_size=10))
def test_the_ledger_survives_its_encoding(world: str, steps: list[tuple[Any, ...]]) -> None:
    walk = Walk(WORLDS[world], Controller())
    for step in steps:
        walk.take(step)
    ledger = walk.controller.ledger
    assert msgspec.json.decode(msgspec.json.encode(ledger), type=Ledger) == ledger
    assert msgspec.convert(msgspec.to_builtins(ledger), type=Ledger) == ledger
