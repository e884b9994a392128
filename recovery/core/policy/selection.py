"""Which policy applies to a workload: the one that its annotation names, else by priority, else the oldest."""

from collections.abc import Iterable

import msgspec

from recovery.core.model.annotations import POLICY_ANNOTATION
from recovery.core.model.config import ConfigFacts
from recovery.core.model.facts import WorkloadFacts
from recovery.core.policy.resolved import Policy, PolicyFacts, resolve
from recovery.core.policy.spec import PolicyError


class PolicySet(msgspec.Struct, frozen=True):
    """The policies and the RecoveryConfig that apply to the workloads of one namespace."""

    policies: tuple[PolicyFacts, ...] = ()
    """The RecoveryPolicies of the namespace, and all ClusterRecoveryPolicies."""
    config: ConfigFacts | None = None
    """None: there is no RecoveryConfig, so its defaults apply."""


def select(policies: Iterable[PolicyFacts], workload: WorkloadFacts) -> PolicyFacts | None:
    """The policy that applies: the workload's annotation, else the highest priority, then the oldest, then by name.

    A policy of the namespace takes precedence over every policy of the cluster, regardless of priority, because cluster
    policies are the default. An annotation that names no existing policy selects none, so that a user who asked for one
    policy does not get another.
    """
    present = [policy for policy in policies if not policy.deleting]
    wanted = workload.annotations.get(POLICY_ANNOTATION)
    if wanted is not None:
        matching = [policy for policy in present if policy.name == wanted]
    else:
        matching = [
            policy
            for policy in present
            if all(workload.labels.get(key) == value for key, value in policy.spec.selector.match_labels.items())
        ]
    return min(
        matching,
        key=lambda policy: (not policy.namespace, -policy.spec.priority, policy.created_at, policy.name),
        default=None,
    )


def applicable(laid_down: PolicySet, workload: WorkloadFacts) -> Policy | PolicyError | None:
    """The policy that applies, resolved. None: none applies. PolicyError: it cannot be used. The error names it."""
    chosen = select(laid_down.policies, workload)
    if chosen is None:
        return None
    try:
        return resolve(chosen, laid_down.config)
    except PolicyError as error:
        return PolicyError(f"{chosen.title}: {error}")
