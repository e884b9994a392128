"""When a JobSet fails, restarts, is complete, or may start its next ReplicatedJob.

Sources: jobset v0.12 `pkg/controllers/{failure_policy,success_policy,startup_policy,depends_on}.go`, KEP-262, KEP-672.
"""

import re
from typing import Any

from recovery.sim.api.kinds.kind import Body
from recovery.sim.controllers.jobset_jobs import REPLICATED_JOB_NAME, Children, condition
from recovery.sim.controllers.jobset_status import Counts, JobSetStatus

_RESTART = "RestartJobSet"
_RESTART_UNCOUNTED = "RestartJobSetAndIgnoreMaxRestarts"


def apply_failure_policy(jobset: Body, failed: list[Body], status: JobSetStatus) -> None:
    """React to failed Jobs: apply the policy's first matching rule. Without a policy the JobSet fails."""
    policy = jobset["spec"].get("failurePolicy")
    if policy is None:
        status.fail("FailedJobs", _with_job("jobset failed due to one or more job failures", _first(failed)))
        return
    rule, job = _deciding(policy.get("rules", ()), failed)
    action = rule["action"] if rule else _RESTART
    reason = f"FailurePolicy_{rule['name']}" if rule else "DefaultFailurePolicy"
    message = _with_job(f"applying {action} failure policy action", job)
    if action == "FailJobSet":
        status.fail("FailJobSetFailurePolicyAction", message)
    elif action == _RESTART_UNCOUNTED:
        status.restart(reason, message, counts_towards_max=False)
    elif status.restarts_counted >= policy.get("maxRestarts", 0):
        status.fail("ReachedMaxRestarts", _with_job("jobset failed due to reaching max number of restarts", job))
    else:
        status.restart(reason, message, counts_towards_max=True)


def succeeded(jobset: Body, jobs: Children) -> bool:
    """Whether as many Jobs are complete as the successPolicy requires."""
    policy = jobset["spec"]["successPolicy"]
    targets = policy.get("targetReplicatedJobs") or [each["name"] for each in jobset["spec"]["replicatedJobs"]]
    done = sum(job["metadata"]["labels"][REPLICATED_JOB_NAME] in targets for job in jobs.successful)
    if policy["operator"] == "Any":
        return done >= 1
    wanted: int = sum(each["replicas"] for each in jobset["spec"]["replicatedJobs"] if each["name"] in targets)
    return done >= wanted


def dependencies_met(jobset: Body, replicated: dict[str, Any], counts: Counts) -> bool:
    """Whether the ReplicatedJobs in `dependsOn` are Complete or Ready, as required. Finished Jobs count as ready."""
    replicas = {each["name"]: each["replicas"] for each in jobset["spec"]["replicatedJobs"]}
    for each in replicated.get("dependsOn", ()):
        name = each["name"]
        so_far = counts[name]["succeeded"] if each["status"] == "Complete" else _begun(counts[name])
        if so_far != replicas[name]:
            return False
    return True


def in_order(jobset: Body) -> bool:
    """startupPolicy InOrder: a ReplicatedJob waits until the one before it has started."""
    return bool(jobset["spec"]["startupPolicy"]["startupPolicyOrder"] == "InOrder")


def started(replicated: dict[str, Any], counts: Counts) -> bool:
    """Whether all its Jobs are ready or finished."""
    return bool(_begun(counts[replicated["name"]]) == replicated["replicas"])


def all_ready(jobset: Body, counts: Counts) -> bool:
    wanted = sum(each["replicas"] for each in jobset["spec"].get("replicatedJobs", ()))
    return bool(wanted == sum(each["ready"] + each["succeeded"] for each in counts.values()))


def _begun(counts: dict[str, int]) -> int:
    return counts["failed"] + counts["ready"] + counts["succeeded"]


def _deciding(rules: list[dict[str, Any]], failed: list[Body]) -> tuple[dict[str, Any] | None, Body]:
    """The first rule that matches a failed Job, and the first Job that it matches. No match: None and the first Job."""
    for rule in rules:
        matching = [job for job in failed if _matches(rule, job)]
        if matching:
            return rule, _first(matching)
    return None, _first(failed)


def _matches(rule: dict[str, Any], job: Body) -> bool:
    how = condition(job, "Failed")
    assert how is not None
    reasons, patterns = rule.get("onJobFailureReasons"), rule.get("onJobFailureMessagePatterns")
    if reasons and how["reason"] not in reasons:
        return False
    if patterns and not any(re.search(pattern, how["message"]) for pattern in patterns):
        return False
    targets = rule.get("targetReplicatedJobs")
    return not targets or job["metadata"]["labels"][REPLICATED_JOB_NAME] in targets


def _first(failed: list[Body]) -> Body:
    """The Job that failed first."""

    def at(job: Body) -> str:
        how = condition(job, "Failed")
        assert how is not None
        return str(how["lastTransitionTime"])

    return min(failed, key=at)


def _with_job(message: str, job: Body) -> str:
    return f"{message} (first failed job: {job['metadata']['name']})"
