"""Bugs planted in the controller, which the simulation has to find.

Each replaces one part of the product, by monkeypatching a module, with code that a tired engineer might have written.
They were written from the product and from the names of the invariants, without a look at the checkers: a canary made
for its checker would prove nothing.
"""

from recovery.scenario.modelled_job import JobAdmission, PlannedRuntime
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.manifests import NATIVE_CODE
from recovery.sim.trials.plan import TrialPlan
from tests.simulation.canaries import decisions, fleet, ledgers, watching, writes
from tests.simulation.canaries.canary import Canary, Property


def _any(plan: TrialPlan) -> bool:
    return True


def _has_two_installations(plan: TrialPlan) -> bool:
    return plan.installations > 1


def _has(*kinds: FaultKind) -> Property:
    return lambda plan: any(fault.key.kind in kinds for fault in plan.faults)


def _exits_by_policy(plan: TrialPlan) -> bool:
    """A container exits with the code that its Job's podFailurePolicy handles."""
    runtimes = (PlannedRuntime.NATIVE, PlannedRuntime.UNLIMITED)
    ruled = {str(job) for job in plan.jobs if job.runtime in runtimes and job.policy is not None}
    exits = (FaultKind.CONTAINER_KILL, FaultKind.CRASH_LOOP)
    return any(f.key.kind in exits and f.code == NATIVE_CODE and f.job in ruled for f in plan.faults)


def _restarted_by_its_jobset(plan: TrialPlan) -> bool:
    """The JobSet of a job restarts it for each exit of its container."""
    return any(job.runtime is PlannedRuntime.UNLIMITED and job.policy is not None for job in plan.jobs)


def _rough(plan: TrialPlan) -> bool:
    """Requests fail often, or processes die often."""
    return plan.rates.process >= 0.01 or plan.rates.request >= 0.05


def _backs_off(plan: TrialPlan) -> bool:
    return any("backoff" in (job.policy or {}) for job in plan.jobs)


def _delays_under_kueue(plan: TrialPlan) -> bool:
    """A restart of one of Kueue's jobs has to wait, and Kueue evicts the job."""
    queued = {str(job) for job in plan.jobs if job.under_kueue and "backoff" in (job.policy or {})}
    return any(fault.key.kind is FaultKind.KUEUE_EVICT and fault.job in queued for fault in plan.faults)


def _ruled(action: str, *kinds: FaultKind) -> Property:
    """A policy has a rule with that action, and one of these faults takes place."""

    def has(plan: TrialPlan) -> bool:
        ruled = any(rule["action"] == action for job in plan.jobs for rule in (job.policy or {}).get("rules", ()))
        return ruled and any(fault.key.kind in kinds for fault in plan.faults)

    return has


def _resumed(plan: TrialPlan) -> bool:
    """Its Jobs are older than their runs, and their pods older than the condition that reports the resume."""
    return plan.manager_burst < 30 and any(job.policy is not None for job in plan.jobs)


def _starts_later(plan: TrialPlan) -> bool:
    """A job is created suspended, and a policy recovers it."""
    enforced = [job for job in plan.jobs if (job.policy or {}).get("mode", "Enforce") == "Enforce"]
    return any(job.admission is not JobAdmission.AT_ONCE and job.policy is not None for job in enforced)


def _overlaps(plan: TrialPlan) -> bool:
    """A job whose ranks save when they get SIGTERM is suspended."""
    saves = {str(job) for job in plan.jobs if job.saves is not None and job.policy is not None}
    suspends = (FaultKind.USER_SUSPEND, FaultKind.KUEUE_EVICT)
    return any(fault.key.kind in suspends and fault.job in saves for fault in plan.faults)


def _left_alone(plan: TrialPlan) -> bool:
    """Kubernetes replaces the rank that is lost, and no one restarts the others."""
    left = {str(job) for job in plan.jobs if job.policy is not None and job.policy.get("restart") == "None"}
    return _observes(plan) or any(fault.job in left for fault in plan.faults)


def _observes(plan: TrialPlan) -> bool:
    return any((job.policy or {}).get("mode") == "Observe" for job in plan.jobs)


def _has_sidecars(plan: TrialPlan) -> bool:
    return any(fault.key.kind is FaultKind.SIDECAR_KILL for fault in plan.faults)


def _has_interval(plan: TrialPlan) -> bool:
    return any("minInterval" in (job.policy or {}).get("backoff", {}) for job in plan.jobs)


def _has_deadline(plan: TrialPlan) -> bool:
    return any(job.deadline_seconds is not None for job in plan.jobs)


def _expires(plan: TrialPlan) -> bool:
    """The JobSet of a job that FailJob may fail has a TTL. The JobSet of its user's own is not created again."""
    mine = [job for job in plan.jobs if job.ttl_seconds is not None and job.runtime is not PlannedRuntime.BARE_JOBSET]
    fails = [job for job in mine if "FailJob" in str(job.policy)]
    return bool(fails) and _may("failJob", True, _any)(plan)


def _may(what: str, allowed: bool, then: Property) -> Property:
    """The RecoveryConfig allows it, or does not."""
    return lambda plan: plan.config["allow"][what] is allowed and then(plan)


def _cordons(then: Property) -> Property:
    """A quarantine cordons its node."""
    return lambda plan: plan.config["quarantine"]["cordon"] is True and then(plan)


def _reports(plan: TrialPlan) -> bool:
    return any(job.reports_every_seconds is not None and job.policy is not None for job in plan.jobs)


def _has_breaker(plan: TrialPlan) -> bool:
    """It takes more than one recovery in vain to open the breaker, and a job crashes again and again."""
    recoveries = plan.config.get("circuitBreaker", {}).get("recoveries", 1)
    return recoveries > 1 and any(fault.key.kind is FaultKind.CRASH_LOOP for fault in plan.faults)


_ENDS = (FaultKind.CONTAINER_KILL, FaultKind.CASCADE, FaultKind.CRASH_LOOP)
_SILENT = (FaultKind.NODE_PARTITION, FaultKind.NODE_POWER_LOSS, FaultKind.RACK_POWER_LOSS)
_AGAIN = (FaultKind.CRASH_LOOP, FaultKind.JOB_WITHOUT_PODS)
"""Faults that make a restart fail, so that another one follows in the same incident."""
_OFF_AND_ON = (FaultKind.POLICY_OBSERVE, FaultKind.POLICY_DELETE)

CANARIES = (
    Canary("create before the old pods are gone", "OneIncarnation", writes.create_before_gone, _any, 2),
    Canary("pods force-deleted", "OneIncarnation", writes.force_deletes, _any, 7),
    Canary("deed before ledger", "LedgerBeforeAction", writes.action_before_ledger, _any, 2),
    Canary("deed beside ledger", "LedgerBeforeAction", writes.action_beside_ledger, _any, 7),
    Canary("cache trusted for absence", "JustifiedRestart", watching.cache_is_truth, _any, 1),
    Canary("no compare-and-swap", "LedgerSuccession", ledgers.last_write_wins, _any, 2),
    Canary("edge-triggered", "ConvergesAfterHealing", watching.only_changes, _rough, 65),
    Canary("no UID precondition", "OnlyTargets", writes.deletes_by_name, _any, 2),
    Canary("two charges for one incident", "OneCharge", ledgers.a_charge_for_each_attempt, _has(*_AGAIN), 20),
    Canary(
        "what others did is charged", "OneCharge", ledgers.a_charge_for_what_others_did, _restarted_by_its_jobset, 10
    ),
    Canary(
        "incidents that share a record are not counted",
        "FleetTotalsFold",
        ledgers.shared_records_are_counted_already,
        _observes,
        51,
    ),
    Canary("incidents begin when noticed", "LostTimeBooked", ledgers.incidents_begin_when_noticed, _any, 2),
    Canary("native decision ignored", "NativeFirst", decisions.no_native_decision, _exits_by_policy, 54),
    Canary("baseline taken for a failure", "BaselineUntouched", decisions.no_baseline, _has(*_OFF_AND_ON), 113),
    Canary(
        "a user's size is undone", "ResizeKept", decisions.sizes_of_users_are_undone, _has(FaultKind.USER_RESIZE), 90
    ),
    Canary("pods made before the resume are another run", "RecordedOnce", decisions.pods_by_creation, _resumed, 21),
    Canary("pods of all runs are of this one", "IncidentCaused", decisions.all_pods_are_of_this_run, _overlaps, 635),
    Canary("a group without an incident has met", "StandingConfirmed", ledgers.quiet_groups_have_met, _left_alone, 50),
    Canary("a sidecar counts as a rank", "HealthyUntouched", decisions.all_containers_train, _has_sidecars, 5),
    Canary("progress of the old incarnation", "ProgressIsNew", decisions.any_progress_will_do, _reports, 23),
    Canary("a training that only begins progresses", "ProgressIsNew", decisions.announced_is_progress, _reports, 23),
    Canary("deadline reset", "DeadlineHolds", decisions.deadlines_are_reset, _has_deadline, 3),
    Canary("forgotten watchdog", "WatchdogTouches", decisions.no_watchdog, _has(FaultKind.JOB_WITHOUT_PODS), 65),
    Canary(
        "own suspension read as the user's", "SuspensionReleased", decisions.suspension_is_the_user_s, _backs_off, 12
    ),
    Canary("a resumed job is left alone", "SomeoneActs", decisions.resumed_is_suspended, _starts_later, 11),
    Canary(
        "every suspension read as our own",
        "OneActorEndsARun",
        decisions.suspensions_are_all_ours,
        _delays_under_kueue,
        360,
    ),
    Canary("the interval is forgotten", "IntervalKept", decisions.first_attempts_never_wait, _has_interval, 2),
    Canary(
        "charge on Ignore",
        "ChargedByRule",
        decisions.ignored_but_charged,
        _ruled("Ignore", *_ENDS, FaultKind.POD_PREEMPT),
        101,
    ),
    Canary(
        "FailJob on a cascade's exit code",
        "FailJobForItsCause",
        decisions.every_exit_is_asked,
        _may("failJob", True, _ruled("FailJob", FaultKind.CASCADE)),
        3,
    ),
    Canary("a failed job expires", "FailedStaysFailed", writes.failed_jobs_expire, _expires, 336),
    Canary(
        "release of a foreign taint", "ForeignKept", fleet.lets_in, _may("cordon", True, _has(FaultKind.NODE_HELD)), 43
    ),
    Canary(
        "release of a cordon that an agent claims",
        "ForeignKept",
        fleet.cordons_have_one_owner,
        _may("cordon", True, _cordons(_has(FaultKind.NODE_HELD))),
        52,
    ),
    Canary(
        "a node without its taint stays quarantined",
        "QuarantineOnNode",
        fleet.entries_outlive_their_taints,
        _may("cordon", True, _has(FaultKind.USER_UNTAINT)),
        26,
    ),
    Canary(
        "force-delete without permission",
        "ForceOnlyTheDead",
        fleet.assumes_without_asking,
        _may("assumeDead", False, _has(*_SILENT)),
        160,
    ),
    Canary(
        "cap exceeded by two leaders",
        "QuarantineWithinCap",
        fleet.next_leader_starts_empty,
        _may("cordon", True, _has(FaultKind.RACK_OVERHEATS, *_ENDS)),
        23,
    ),
    Canary(
        "a message quarantines a node",
        "MessagesConfirmed",
        fleet.messages_are_proof,
        _may("cordon", True, _has(*_ENDS)),
        34,
    ),
    Canary(
        "one namespace fills the cap",
        "NamespaceWithinShare",
        fleet.first_come_first_served,
        _may("cordon", True, _has(FaultKind.CRASH_LOOP)),
        558,  # the first in twelve hundred seeds: two nodes of one namespace must be suspected within a day
    ),
    Canary("two installations act", "YoungerLeaseHolds", writes.holds_for_no_other, _has_two_installations, 84),
    Canary("one job opens the breaker", "BreakerShared", fleet.every_futile_recovery_counts, _has_breaker, 83),
)
