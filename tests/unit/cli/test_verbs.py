"""The on-call commands: what they write, what they refuse before they write, and what they print."""

import json
import os
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from recovery.core.incident.requests import Request, parse
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import LEASES, RECOVERY_GROUPS
from tests.unit.cli.cluster import NOW, PlainCluster, lease, metadata
from tests.unit.cli.test_explain import incident_details
from tests.unit.cli.test_status import open_incident
from tests.unit.fake_api import Object

PREFIX = "recovery.trainjob.dev/"


@pytest.fixture(autouse=True)
def _no_controller(cluster: PlainCluster) -> None:
    """There is no Lease unless a test adds one."""
    cluster.objects[LEASES.plural].clear()


def run(*arguments: str, exit_code: int = 0) -> Result:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == exit_code, result.output
    return result


def refused(*arguments: str) -> str:
    """The one line that gives the reason."""
    result = run(*arguments, exit_code=1)
    assert result.stdout == ""
    [line] = result.stderr.splitlines()
    return line


def annotations(of: Object) -> dict[str, str]:
    found = of["metadata"].get("annotations", {})
    return {name.removeprefix(PREFIX): value for name, value in found.items()}


def suspend(job: Object, incident: str = "inc-1") -> None:
    """Suspend the job as the controller does."""
    job["spec"]["suspend"] = True
    ours = {f"{PREFIX}suspended-by": incident, f"{PREFIX}resume-at": "2026-11-02T09:03:10Z"}
    job["metadata"].setdefault("annotations", {}).update(ours)


# --- pause and resume ----------------------------------------------------------------------------------------------


def paused_words(title: str) -> str:
    name = title.partition("/")[2]
    return (
        f"{title} is paused: the group is not restarted until `recovery resume {name}`; a rank that is lost meanwhile "
        "counts then\n"
    )


@pytest.mark.parametrize(("given", "value"), [((), "true"), (("--reason", "net work"), "net work")])
def test_pause_writes_the_annotation(given: tuple[str, ...], value: str, cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    assert run("pause", "llm", *given).stdout == paused_words("TrainJob team-a/llm")
    assert annotations(job) == {"paused": value}


def test_pause_again_writes_nothing_and_keeps_the_reason(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    run("pause", "llm", "--reason", "net work")
    assert run("pause", "llm").stdout == "TrainJob team-a/llm is paused already: net work\n"
    assert (annotations(job), len(cluster.patches)) == ({"paused": "net work"}, 1)


def test_resume_takes_the_pause_away(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    run("pause", "llm")
    assert run("resume", "llm").stdout == "TrainJob team-a/llm: it is not paused any more\n"
    assert annotations(job) == {}
    assert run("resume", "llm").stdout == "TrainJob team-a/llm is neither paused nor suspended\n"


def test_resume_releases_our_suspension_and_what_marks_it(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    suspend(job)
    assert run("resume", "llm").stdout == "TrainJob team-a/llm: the suspension by incident inc-1 is released\n"
    assert (job["spec"]["suspend"], annotations(job)) == (False, {})


def test_resume_leaves_a_suspension_of_someone_else_alone(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    job["spec"]["suspend"] = True
    assert "it was not suspended by the controller: left as it is" in run("resume", "llm").stdout
    assert cluster.patches == []


def test_resume_all_releases_what_is_ours_and_leaves_what_people_have_paused(cluster: PlainCluster) -> None:
    here, bare, there = (
        cluster.add_job("llm"),
        cluster.add_bare_job_set("raw"),
        cluster.add_job("x", namespace="team-b"),
    )
    users = cluster.add_job("users")
    users["spec"]["suspend"] = True
    for ours in (here, bare, there):
        suspend(ours)
    here["metadata"]["annotations"][f"{PREFIX}paused"] = "mine"
    run("resume", "--all")
    assert cluster.patches == ["TrainJob team-a/llm", "JobSet team-a/raw"]
    assert annotations(here) == {"paused": "mine"}
    run("resume", "--all", "-A")
    assert [job["spec"]["suspend"] for job in (here, bare, there, users)] == [False, False, False, True]
    assert run("resume", "--all", "-A").stdout == "nothing in the cluster is suspended by the controller\n"


def test_resume_all_needs_none_of_our_definitions(cluster: PlainCluster) -> None:
    cluster.absent = {"recoverygroups", "recoverypolicies", "clusterrecoverypolicies", "recoveryconfigs"}
    job = cluster.add_job("llm")
    suspend(job)
    run("resume", "--all", "-A")
    assert job["spec"]["suspend"] is False


def test_each_job_is_reported_by_itself_and_any_failure_counts(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_bare_job_set("raw")
    cluster.denied = {("patch", "trainjobs")}
    result = run("pause", "lm", "llm", "raw", "raw", exit_code=1)
    assert result.stdout == paused_words("JobSet team-a/raw")
    assert result.stderr.splitlines() == [
        "recovery: there is no TrainJob or JobSet 'lm' in namespace 'team-a'; did you mean llm?",
        "recovery: team-a/llm: a permission is missing: patch trainjobs: forbidden",
    ]


@pytest.mark.parametrize("verb", [["pause"], ["resume"], ["restart", "--reason", "x"], ["retry"], ["reset-budget"]])
def test_a_namespace_that_is_not_there_is_named(verb: list[str], cluster: PlainCluster) -> None:
    assert refused(*verb, "llm", "-n", "nope") == "recovery: there is no namespace 'nope'"


# --- requests ------------------------------------------------------------------------------------------------------


def asked_for(job: Object, verb: str) -> Request | None:
    return parse(annotations(job).get(verb, ""))


def controller(cluster: PlainCluster, *, accepted: bool, message: str) -> None:
    """A controller that answers every request at once in the job's RecoveryGroup."""

    def answers(item: Object) -> None:
        for verb, value in annotations(item).items():
            told = {
                "verb": verb,
                "at": json.loads(value)["at"],
                "accepted": accepted,
                "reason": "RestartedByHand",
                "answer": message,
            }
            for group in cluster.objects.get(RECOVERY_GROUPS.plural, []):
                group["status"]["requests"] = [told]

    cluster.patched = answers


def enforced(cluster: PlainCluster, status: Object | None = None, **spec: Any) -> Object:
    job = cluster.add_job("llm")
    cluster.add_policy(**{"mode": "Enforce", **spec})
    cluster.add_group("llm", status or {"schemaVersion": SCHEMA_VERSION})
    return job


def test_restart_is_asked_for_with_reason_and_name_and_its_answer_is_printed(cluster: PlainCluster) -> None:
    job = enforced(cluster)
    controller(cluster, accepted=True, message="incident 7: deleting Job llm-node-0")
    result = run("restart", "llm", "--reason", "stuck")
    assert result.stdout == "TrainJob team-a/llm: incident 7: deleting Job llm-node-0\n"
    assert asked_for(job, "restart") == Request(at=NOW, reason="stuck", by="jane")


@pytest.mark.usefixtures("nameless_user")
def test_who_asks_from_a_container_is_named_by_the_number(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_one(*_: object) -> str:
        return ""

    monkeypatch.setattr("recovery.cli.requests.context_user", no_one)
    job = enforced(cluster)
    controller(cluster, accepted=True, message="done")
    run("restart", "llm", "--reason", "stuck")
    assert asked_for(job, "restart") == Request(at=NOW, reason="stuck", by=f"uid {os.getuid()}")


def test_a_refusal_by_the_controller_is_1(cluster: PlainCluster) -> None:
    enforced(cluster)
    controller(cluster, accepted=False, message="a restart is under way")
    assert refused("restart", "llm", "--reason", "x") == (
        "recovery: TrainJob team-a/llm: restart is refused: a restart is under way"
    )


def unanswered(cluster: PlainCluster) -> str:
    """The output of a request that gets no answer."""
    return refused("restart", "llm", "--reason", "x", "--wait", "3")


def test_without_an_answer_it_says_that_no_one_stands_for_election(cluster: PlainCluster) -> None:
    job = enforced(cluster)
    assert unanswered(cluster) == (
        "recovery: TrainJob team-a/llm: no answer to restart within 3 s: is a controller running? "
        "there is no Lease recovery-controller in any namespace; the request stands until 09:15:00Z"
    )
    assert asked_for(job, "restart") is not None


@pytest.mark.parametrize("namespace", ["recovery-system", "ml-infra"])
def test_without_an_answer_it_says_who_should_have_given_one(namespace: str, cluster: PlainCluster) -> None:
    enforced(cluster)
    other = {"metadata": metadata("kube-scheduler", "kube-system", "other"), "spec": {"holderIdentity": "node-1"}}
    cluster.put(LEASES, lease(namespace, renewed_at="2026-11-02T08:00:00Z"), other)
    found = f"Lease {namespace}/recovery-controller is held by pod-1, renewed at 2026-11-02T08:00:00Z; the request"
    assert found in unanswered(cluster)


def test_two_installations_are_both_named(cluster: PlainCluster) -> None:
    enforced(cluster)
    cluster.put(LEASES, lease(holder=""), lease("ml-infra"))
    said = unanswered(cluster)
    assert (
        "no process holds Lease recovery-system/recovery-controller; Lease ml-infra/recovery-controller is held" in said
    )


def test_who_may_not_list_leases_is_told_of_the_shipped_namespace_and_that_others_were_not_looked_at(
    cluster: PlainCluster,
) -> None:
    enforced(cluster)
    cluster.denied.add(("list", "leases"))
    assert "there is no Lease recovery-system/recovery-controller, and you may not list" in unanswered(cluster)
    cluster.put(LEASES, lease())
    assert "Lease recovery-system/recovery-controller is held by pod-1" in unanswered(cluster)
    cluster.denied.add(("get", "leases"))
    assert "Lease recovery-system/recovery-controller cannot be read, and you may not list" in unanswered(cluster)


def test_an_answer_that_is_not_waited_for_is_not_missed(cluster: PlainCluster) -> None:
    enforced(cluster)
    said = run("restart", "llm", "--reason", "x", "--wait", "0").stdout
    assert said == "TrainJob team-a/llm: restart is requested; `recovery explain llm` shows the answer\n"


@pytest.mark.parametrize(
    ("policy", "change", "why"),
    [
        (
            {"mode": "Observe"},
            {},
            "policy default is in mode Observe; recovery restart llm --reason TEXT --force overrides this",
        ),
        ({"selector": {"matchLabels": {"a": "b"}}}, {}, "no policy applies to it (no policy selects the job's labels"),
        ({"budget": {"window": "soon"}}, {}, "RecoveryPolicy team-a/default: spec.budget.window: 'soon'"),
        ({}, {"metadata": {"annotations": {f"{PREFIX}paused": "true"}}}, "the job is paused by annotation"),
        ({}, {"spec": {"suspend": True}}, "the TrainJob is suspended"),
        ({}, {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "the TrainJob is Complete"),
        ({}, {"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "the TrainJob has failed"),
    ],
)
def test_what_a_controller_would_refuse_is_refused_without_one(
    policy: Object, change: Object, why: str, cluster: PlainCluster
) -> None:
    job = enforced(cluster, **policy)
    for part, fields in change.items():
        job[part].update(fields)
    assert f"restart is refused: {why}" in refused("restart", "llm", "--reason", "x")
    assert cluster.patches == []


@pytest.mark.parametrize("paused", [False, True])
def test_force_restarts_in_observe_and_while_paused(paused: bool, cluster: PlainCluster) -> None:
    job = enforced(cluster, mode="Observe")
    if paused:
        job["metadata"]["annotations"] = {f"{PREFIX}paused": "true"}
    run("restart", "llm", "--reason", "x", "--force", "--wait", "0")
    found = asked_for(job, "restart")
    assert found is not None
    assert found.force


def test_restart_asks_although_it_may_not_list_cluster_policies(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    cluster.denied = {("list", "clusterrecoverypolicies")}
    run("restart", "llm", "--reason", "x", "--wait", "0")
    assert asked_for(job, "restart") is not None


def test_retry_asks_only_where_something_is_held_back(cluster: PlainCluster) -> None:
    held = open_incident("Held")
    held["incident"] |= incident_details()
    job = enforced(cluster, held)
    run("retry", "llm", "--wait", "0")
    assert asked_for(job, "retry") == Request(at=NOW, by="jane")


@pytest.mark.parametrize("phase", ["Healthy", "Scheduling"])
def test_retry_elsewhere_says_the_phase_and_does_nothing(phase: str, cluster: PlainCluster) -> None:
    enforced(cluster, open_incident(phase) if phase != "Healthy" else None)
    assert refused("retry", "llm") == (
        f"recovery: TrainJob team-a/llm: retry is refused: the group is in phase {phase}, "
        "and only a group in Held or Backoff can be retried"
    )
    assert cluster.patches == []


def test_reset_budget_asks_where_something_was_charged(cluster: PlainCluster) -> None:
    job = enforced(cluster, {"schemaVersion": SCHEMA_VERSION, "budget": {"charges": ["2026-11-02T08:00:00Z"]}})
    run("reset-budget", "llm", "--wait", "0")
    assert asked_for(job, "reset-budget") == Request(at=NOW, by="jane")


def test_reset_budget_of_what_was_never_charged_is_done_already(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    said = run("reset-budget", "llm").stdout
    assert said == "TrainJob team-a/llm: nothing has been charged, so there is nothing to reset\n"


def test_a_ledger_of_a_newer_version_gets_no_requests(cluster: PlainCluster) -> None:
    enforced(cluster, {"schemaVersion": SCHEMA_VERSION + 1})
    known = f"has schemaVersion {SCHEMA_VERSION + 1}, this version knows {SCHEMA_VERSION}, so nothing would act"
    assert known in refused("restart", "llm", "--reason", "x")


def test_explain_shows_requests_and_answers(cluster: PlainCluster) -> None:
    answer = {
        "verb": "retry",
        "at": "2026-11-02T08:30:00Z",
        "accepted": False,
        "reason": "NoIncident",
        "answer": "no incident is open",
    }
    job = enforced(cluster, {"schemaVersion": SCHEMA_VERSION, "requests": [answer]})
    value = msgspec.json.encode(Request(at=NOW, reason="stuck", by="jane")).decode()
    job["metadata"]["annotations"] = {f"{PREFIX}restart": value}
    told = run("explain", "llm").stdout
    assert "retry, requested at 2026-11-02 08:30:00Z: refused: no incident is open" in told
    assert "restart, requested at 2026-11-02 09:00:00Z by jane (stuck): no answer yet" in told
    data = json.loads(run("explain", "llm", "-o", "json").stdout)
    assert data["requests"] == [answer]
    assert [(each["verb"], each["reason"]) for each in data["pendingRequests"]] == [("restart", "stuck")]
