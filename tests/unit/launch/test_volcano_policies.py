"""What happens to a Volcano Job that loses a pod: its policies, as Volcano refuses, ignores or follows them."""

import pytest

from recovery.launch.places import written
from recovery.launch.views import VolcanoJob
from recovery.launch.volcano_policies import check, settings
from tests.unit.launch.manifests import line, values, volcano_job

ALL = "{events: [PodFailed, PodEvicted], action: RestartJob}"


def job(policies: str = f"[{ALL}]", spec: str = "", worker: str = "") -> VolcanoJob:
    """A job of 1 master and 3 workers."""
    tasks = f"tasks: [{{name: worker, {worker}}}]" if worker else ""
    return volcano_job(f"kind: Job\nspec: {{policies: {policies}, {spec} {tasks}}}")


def codes(found: VolcanoJob) -> list[str]:
    return [each.code.name for each in check(found)]


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "start", "fix"),
    [
        ("{event: TaskCompleted, action: Complete}", "Volcano has no action 'Complete'", "did you mean CompleteJob?"),
        ("{event: TaskCompleted, action: SyncJob}", "Volcano has no action 'SyncJob'", "write one of AbortJob"),
        ("{event: TaskCompleted}", "a policy has no action", "write one of AbortJob"),
        ("{event: PodRunning, action: RestartJob}", "Volcano has no event 'PodRunning'", "did you mean"),
        (
            "{event: TaskComplete, action: CompleteJob}",
            "Volcano has no event 'TaskComplete'",
            "did you mean TaskCompleted?",
        ),
        (
            "{event: PodPending, exitCode: 3, action: AbortJob}",
            "a policy has both an event and an exitCode",
            "make two",
        ),
        ("{action: RestartJob}", "a policy has neither an event nor an exitCode", "write policies: "),
        ("{events: [], action: RestartJob}", "a policy has neither an event nor an exitCode", "write policies: "),
        ("{exitCode: 0, action: CompleteJob}", "exitCode 0 is no failure", "write event: TaskCompleted"),
        ("{event: PodFailed, action: AbortJob}", "event PodFailed stands in two policies", "keep one of them"),
        ('{event: "*", action: AbortJob}', "a policy for * stands beside others", "name the events"),
    ],
)
def test_volcano_refuses_the_job(policy: str, start: str, fix: str) -> None:
    (finding,) = check(job(f"[{ALL}, {policy}]"))

    assert finding.code.name == "volcano-refused"
    assert finding.message.startswith(start)
    assert finding.message.endswith(("Volcano refuses the job", "it refuses the job"))
    assert finding.fix.startswith(fix)


def test_an_action_of_an_exit_code_is_not_looked_at() -> None:
    (finding,) = check(job(f"[{ALL}, {{exitCode: 3, action: Restart}}]"))

    assert finding.message == "Volcano has no action 'Restart': the policy does nothing"
    assert written(finding.place.path) == "spec.policies[1].action"


@pytest.mark.parametrize("what", ["events: PodFailed", "exitCode: three", "event: [PodFailed]"])
def test_what_cannot_be_read_is_told_of_once(what: str) -> None:
    """Reading the field reports it, and this check adds nothing."""
    assert codes(job(f"[{{{what}, action: RestartJob}}]")) == []


def test_an_exit_code_stands_once() -> None:
    twice = "{exitCode: 3, action: AbortJob}, {exitCode: 3, action: RestartJob}"

    assert codes(job(f"[{ALL}, {twice}]")) == ["volcano-refused"]


def test_the_policies_of_a_task_are_judged_by_themselves() -> None:
    own = "policies: [{event: PodFailed, action: RestartJob}, {event: PodFailed, action: AbortJob}]"
    (finding,) = check(job(worker=own))

    assert written(finding.place.path) == "spec.tasks[1].policies[1].event"


def test_tasks_have_names_of_their_own() -> None:
    manifest = """
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: a}
spec: {tasks: [{name: a, replicas: 1}, {name: a, replicas: 1}]}
"""
    (finding,) = check(_whole(manifest))

    assert (finding.code.name, written(finding.place.path)) == ("volcano-refused", "spec.tasks[1].name")


@pytest.mark.parametrize(
    "policy",
    [
        "{event: TaskCompleted, action: CompleteJob}",
        "{events: [Unknown, JobUpdated], action: RestartJob}",
        "{event: PodPending, action: RestartPod, timeout: 5m}",
        "{event: TaskFailed, action: TerminateJob}, {exitCode: 3, action: AbortJob}",
        "{event: Unknown, events: [Unknown], action: ResumeJob}",
        '{event: "{{ .Values.event }}", action: "{{ .Values.action }}"}',
    ],
)
def test_what_volcano_takes_is_not_told_of(policy: str) -> None:
    assert codes(job(f"[{ALL}, {policy}]")) == []


# --- what a loss does ------------------------------------------------------------------------------------------------

FAILED, EVICTED = "at PodFailed a pod that fails is left as it is", "at PodEvicted a pod that is drained"


@pytest.mark.parametrize(
    ("policies", "unanswered"),
    [
        ("null", [FAILED, EVICTED]),
        ("[{event: PodEvicted, action: RestartJob}]", [FAILED]),
        ("[{event: PodFailed, action: RestartJob}]", [EVICTED]),
        ("[{event: Unknown, action: RestartJob}]", [FAILED, EVICTED]),
        ("[{events: [PodFailed, PodEvicted], action: ResumeJob}]", [FAILED, EVICTED]),
    ],
)
def test_a_loss_that_no_policy_is_for(policies: str, unanswered: list[str]) -> None:
    (finding,) = check(job(policies))

    assert finding.code.name == "group-not-restarted"
    assert [told for told in (FAILED, EVICTED) if told in finding.message] == unanswered


@pytest.mark.parametrize("action", ["RestartTask", "RestartPod", "RestartPartition"])
def test_a_restart_of_some_leaves_the_others_hanging(action: str) -> None:
    (finding,) = check(job(f"[{{events: [PodFailed, PodEvicted], action: {action}}}]"))

    assert finding.message.startswith(f"{action} at PodFailed restarts ")
    assert written(finding.place.path) == "spec.policies[0].action"


@pytest.mark.parametrize(
    "found",
    [
        job('[{event: "*", action: RestartJob}]'),
        # The user decided that a failure ends the job.
        job("[{event: PodFailed, action: AbortJob}, {event: PodEvicted, action: RestartJob}]"),
        job("[{exitCode: 1, action: AbortJob}, {exitCode: 137, action: RestartJob}, "
            "{event: PodEvicted, action: RestartJob}]"),
        # No pod waits.
        job("null", worker="replicas: 0"),
    ],
)  # fmt: skip
def test_a_loss_that_is_answered_is_not_told_of(found: VolcanoJob) -> None:
    assert codes(found) == []


def test_the_policies_of_a_task_go_first() -> None:
    own = "policies: [{event: PodFailed, action: RestartPod}]"
    (finding,) = check(job(worker=own))

    assert finding.message.startswith("RestartPod at PodFailed restarts that pod")


def test_one_task_with_accelerators_is_a_group_without_the_plugin() -> None:
    assert codes(_gpus(restart="RestartTask")) == []
    assert codes(_gpus(restart="RestartPod")) == ["group-not-restarted"]
    assert codes(_gpus(restart="RestartPod", devices="cpu: 4")) == []


@pytest.mark.parametrize(("policy", "told"), [("Always", "restartPolicy Always re"), ("null", "(the default of pods)")])
def test_a_pod_that_always_restarts_is_never_complete(policy: str, told: str) -> None:
    (finding,) = check(job(worker=f"template: {{spec: {{restartPolicy: {policy}}}}}"))

    assert finding.code.name == "never-completes"
    assert told in finding.message


def test_a_restart_in_place_asks_no_policy() -> None:
    assert codes(job(worker="template: {spec: {restartPolicy: OnFailure}}")) == ["restarted-in-place"]


@pytest.mark.parametrize(
    ("max_retry", "told"),
    [
        ("null", ["maxRetry 3 (the default) ends the job at failure 3 in all of its life"]),
        ("0", ["maxRetry 3 (the default) ends the job at failure 3 in all of its life"]),
        ("2", ["maxRetry 2 ends the job at failure 2 in all of its life"]),
        ("1", ["maxRetry 1 ends the job at the first failure"]),
        ("4", []),
    ],
)
def test_few_retries(max_retry: str, told: list[str]) -> None:
    found = list(check(job(spec=f"maxRetry: {max_retry},")))

    assert [each.message.partition(":")[0] for each in found] == told


def test_without_a_restart_no_retry_is_used() -> None:
    assert codes(job("[{events: [PodFailed, PodEvicted], action: AbortJob}]", spec="maxRetry: 1,")) == []


def test_explain_launch_tells_what_is_done() -> None:
    found = values(settings(job("[{event: PodEvicted, action: RestartJob}]", spec="maxRetry: null,")))

    assert found == {
        ("task master", "at PodFailed"): "SyncJob",
        ("task master", "at PodEvicted"): "RestartJob",
        ("task worker", "at PodFailed"): "SyncJob",
        ("task worker", "at PodEvicted"): "RestartJob",
        ("Job", "maxRetry"): "3",
    }


def test_the_fix_is_what_the_prepared_job_has() -> None:
    assert line(next(check(job("null")))).endswith(f"(write policies: [{ALL}])")


def _gpus(restart: str, devices: str = "nvidia.com/gpu: 8") -> VolcanoJob:
    return _whole(f"""
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {{name: a}}
spec:
  policies: [{{events: [PodFailed, PodEvicted], action: {restart}}}]
  tasks:
  - {{name: a, replicas: 4, template: {{spec: {{restartPolicy: Never, containers: [
      {{name: a, resources: {{limits: {{{devices}}}}}}}]}}}}}}
""")


def _whole(manifest: str) -> VolcanoJob:
    return volcano_job(manifest, base="none")
