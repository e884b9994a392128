"""Which policy applies to a workload, and why that one, in words."""

import msgspec

from recovery.core.model.annotations import POLICY_ANNOTATION
from recovery.core.model.facts import WorkloadFacts
from recovery.core.policy.resolved import Policy, PolicyFacts
from recovery.core.policy.selection import PolicySet, applicable, select
from recovery.core.policy.spec import PolicyError
from recovery.ports import CLUSTER_RECOVERY_POLICIES, RECOVERY_POLICIES


class AppliedPolicy(msgspec.Struct, frozen=True):
    """The policy that applies, and why. `policy` None: none applies, or the one that applies cannot be used."""

    why: str
    kind: str = ""
    """RecoveryPolicy or ClusterRecoveryPolicy. Empty: none applies."""
    name: str = ""
    """Empty: none applies."""
    policy: Policy | None = None
    error: PolicyError | None = None

    @property
    def decides(self) -> Policy | PolicyError | None:
        """The policy argument of `decide`."""
        return self.policy if self.error is None else self.error


def policy_of(laid_down: PolicySet, workload: WorkloadFacts) -> AppliedPolicy:
    """The policy for the workload. `laid_down`: the policies for its namespace."""
    chosen = select(laid_down.policies, workload)
    wanted = workload.annotations.get(POLICY_ANNOTATION)
    if chosen is None:
        return AppliedPolicy(_why_none(laid_down, wanted))
    why = (
        f"named by the job's annotation {POLICY_ANNOTATION}"
        if wanted is not None
        else _why(laid_down, workload, chosen)
    )
    kind = RECOVERY_POLICIES.kind if chosen.namespace else CLUSTER_RECOVERY_POLICIES.kind
    found = applicable(laid_down, workload)
    if isinstance(found, PolicyError):
        return AppliedPolicy(why, kind, chosen.name, error=found)
    return AppliedPolicy(why, kind, chosen.name, policy=found)


def _why_none(laid_down: PolicySet, wanted: str | None) -> str:
    if wanted is not None:
        return f"the job's annotation {POLICY_ANNOTATION} names {wanted!r}, and there is no policy of that name"
    if not laid_down.policies:
        return "there is no RecoveryPolicy in the namespace and no ClusterRecoveryPolicy"
    titles = ", ".join(sorted(policy.title for policy in laid_down.policies))
    return f"no policy selects the job's labels (there are: {titles})"


def _why(laid_down: PolicySet, workload: WorkloadFacts, chosen: PolicyFacts) -> str:
    selecting = [policy for policy in laid_down.policies if select([policy], workload) is not None]
    rivals = [
        policy for policy in selecting if policy is not chosen and bool(policy.namespace) == bool(chosen.namespace)
    ]
    others = len(selecting) - len(rivals) - 1
    notes = "" if chosen.namespace else "; the namespace has none that does"
    if others:
        notes = f"; the namespace's go before the cluster's, of which {others} would select it as well"
    if not rivals:
        return f"the only one that selects the job{notes}" if not others else f"the namespace's only one{notes}"
    highest = max(other.spec.priority for other in rivals)
    if chosen.spec.priority > highest:
        words = f"of {len(rivals) + 1} that select the job the one with the highest priority ({chosen.spec.priority})"
    else:
        words = f"of those with priority {chosen.spec.priority} that select the job the oldest"
    return f"{words}{notes}"
