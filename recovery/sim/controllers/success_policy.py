"""When enough indexes of a Job have succeeded.

Source: KEP-3998; `pkg/controller/job/success_policy.go` of Kubernetes 1.36.
"""

from collections.abc import Set as AbstractSet

from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.job_indexes import parse_indexes


def met(policy: Body | None, completions: int, succeeded: AbstractSet[int]) -> str | None:
    """The condition's message for the first rule that is met. None: no rule is met, or there is no policy."""
    if policy is None or not succeeded:
        return None
    for number, rule in enumerate(policy["rules"]):
        if _is_met(rule, completions, succeeded):
            return f"Matched rules at index {number}"
    return None


def _is_met(rule: Body, completions: int, succeeded: AbstractSet[int]) -> bool:
    count = rule.get("succeededCount")
    if rule.get("succeededIndexes") is None:
        return count is not None and len(succeeded) >= count
    required = parse_indexes(rule["succeededIndexes"], completions)
    if not required:
        return False
    there = len(required & succeeded)
    return there == len(required) or (count is not None and there >= count)
