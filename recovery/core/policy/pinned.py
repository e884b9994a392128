"""The part of a policy that is pinned when an incident opens. Later edits count from the next incident on."""

from recovery.core.model.pinned_policy import PinnedInPlace, PinnedPolicy
from recovery.core.policy.resolved import Policy


def pinned_policy_of(policy: Policy) -> PinnedPolicy:
    """The part of the policy that an incident pins."""
    return PinnedPolicy(
        policy_name=policy.name,
        policy_uid=policy.uid,
        policy_generation=policy.generation,
        restart=policy.restart,
        budget_limit=policy.budget_limit,
        budget_window_seconds=policy.budget_window.total_seconds(),
        start_timeout_seconds=policy.start_timeout.total_seconds(),
        grace_seconds=policy.grace_seconds,
        on_exhausted=policy.on_exhausted,
        on_terminal_failure=policy.on_terminal_failure,
        while_waiting=policy.while_waiting,
        capacity_wait_seconds=policy.capacity_wait.total_seconds(),
        backoff_initial_seconds=policy.backoff.initial.total_seconds(),
        backoff_factor=policy.backoff.factor,
        backoff_max_seconds=policy.backoff.longest.total_seconds(),
        backoff_min_interval_seconds=policy.backoff.min_interval.total_seconds(),
        rendezvous_timeout_seconds=policy.rendezvous_timeout.total_seconds(),
        resume_timeout_seconds=policy.resume_timeout.total_seconds(),
        finish_timeout_seconds=policy.finish_timeout.total_seconds(),
        rules=policy.rules,
        elastic=policy.elastic,
        override_native=policy.override_native,
        on_native_ignore=policy.on_native_ignore,
        settle_seconds=policy.settle.total_seconds(),
        in_place=PinnedInPlace(policy.in_place.max_in_a_row, policy.in_place.timeout.total_seconds())
        if policy.in_place.enabled
        else None,
        reset_after_seconds=policy.backoff.reset_after.total_seconds(),
        policy_digest=policy.digest,
    )
