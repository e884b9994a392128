"""Which policy applies to a workload, and why that one, in words."""

from collections.abc import Sequence

import msgspec

from recovery.core.facts import WorkloadFacts
from recovery.core.policy import POLICY_ANNOTATION, Policy, PolicyError, PolicyFacts, applicable, select


class Selection(msgspec.Struct, frozen=True):
    """The answer. `policy` None: none applies, or the one that applies cannot be read."""

    why: str
    name: str = ""
    """Empty: none applies."""
    policy: Policy | None = None
    error: PolicyError | None = None

    @property
    def decides(self) -> Policy | PolicyError | None:
        """As `decide` takes it."""
        return self.policy if self.error is None else self.error


def policy_of(policies: Sequence[PolicyFacts], workload: WorkloadFacts) -> Selection:
    """`policies`: those of the workload's namespace."""
    chosen = select(policies, workload)
    wanted = workload.annotations.get(POLICY_ANNOTATION)
    if chosen is None:
        return Selection(_why_none(policies, wanted))
    why = (
        f"named by the job's annotation {POLICY_ANNOTATION}" if wanted is not None else _why(policies, workload, chosen)
    )
    found = applicable(policies, workload)
    if isinstance(found, PolicyError):
        return Selection(why, chosen.name, error=found)
    return Selection(why, chosen.name, policy=found)


def _why_none(policies: Sequence[PolicyFacts], wanted: str | None) -> str:
    if wanted is not None:
        return f"the job's annotation {POLICY_ANNOTATION} names {wanted!r}, and there is no such RecoveryPolicy"
    if not policies:
        return "the namespace has no RecoveryPolicy"
    names = ", ".join(sorted(policy.name for policy in policies))
    return f"no RecoveryPolicy of the namespace selects the job's labels (there are: {names})"


def _why(policies: Sequence[PolicyFacts], workload: WorkloadFacts, chosen: PolicyFacts) -> str:
    rivals = [other for other in policies if other is not chosen and select([other], workload) is not None]
    if not rivals:
        return "the only one that selects the job"
    highest = max(other.spec.priority for other in rivals)
    if chosen.spec.priority > highest:
        return f"of {len(rivals) + 1} that select the job the one with the highest priority ({chosen.spec.priority})"
    return f"of those with priority {chosen.spec.priority} that select the job the oldest"
