"""`recovery status`: one line for every TrainJob, with or without a RecoveryGroup."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.core.model.protection import ProtectionReason
from recovery.ports import JOB_SETS, JOBS, PODS, RECOVERY_CONFIGS, TRAIN_JOBS
from tests.unit.cli.cluster import PlainCluster, StoppedClock, metadata
from tests.unit.fake_api import Object


def status(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["status", *arguments])
    assert result.exit_code == 0, result.output
    return result


def row(name: str, *arguments: str) -> dict[str, str]:
    """The cells of a job, by column."""
    header, *lines = map(cells_of, status(*arguments).stdout.splitlines())
    cells = next(cells for cells in lines if name in cells)
    return dict(zip(header, cells, strict=True))


NAMESPACES = ("team-a", "team-b")


def cells_of(line: str) -> list[str]:
    """Split a line at two or more spaces."""
    return re.split(" {2,}", line)


STEPS: Mapping[str, Object] = {
    "Decided": {"type": "Waiting"},
    "Held": {"type": "Held", "reason": "BudgetExhausted"},
    "Backoff": {"type": "Restarting"},
    **{key: {"type": "Returning"} for key in ("Scheduling", "Starting", "Rendezvous", "Resuming")},
}


def open_incident(phase: str) -> Object:
    """`status` of a RecoveryGroup."""
    started = "2026-11-02T08:59:00Z"
    terms = {
        "policyName": "default",
        "policyUID": "p",
        "policyGeneration": 1,
        "restart": "RecreateGroupOnPodRestart",
        "budgetLimit": 10,
        "budgetWindowSeconds": 86400,
        "startTimeoutSeconds": 900,
    }
    restart = {"number": 1, "epoch": 1, "action": "RecreateGroup", "startedAt": started, "reason": "DefaultRestart"}
    return {
        "schemaVersion": SCHEMA_VERSION,
        "epoch": 1,
        "phase": phase,
        "incident": ({} if phase in {"Decided", "Held"} else {"attempts": [restart]})
        | {
            "id": "uid-team-1",
            "step": STEPS.get(phase, {"type": "Restarting"}),
            "number": 1,
            "startedAt": started,
            "detectedAt": started,
            "class": "PodFailed",
            "cause": "Exit137",
            "mode": "Enforce",
            "terms": terms,
            "gpus": 16,
            "ranks": 2,
            "reason": "DefaultRestart",
            "message": "pod llm-1 failed with exit code 137",
            "phases": [{"phase": phase, "startedAt": started}],
        },
        "totals": {"incidents": 1, "restarts": 1, "charged": 1},
        "budget": {"charges": ["2026-11-02T08:59:00Z"], "limit": 10, "remaining": 9},
        "cause": "Exit137",
        "action": "RecreateGroup",
        "idleGPUs": 16,
        "reason": "DefaultRestart",
        "message": "pod llm-1 failed with exit code 137",
    }


def test_a_healthy_job_is_reported_from_its_own_objects(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    narrow = {
        "JOB": "llm",
        "PHASE": "Healthy",
        "CAUSE": "-",
        "SINCE": "60m",
        "IDLE-GPUS": "0",
        "PROTECTED": "yes",
        "NEXT": "-",
    }
    assert row("llm") == narrow
    assert row("llm", "-o", "wide") == narrow | {
        "STEP": "-",
        "ACTION": "-",
        "RESTARTS": "0",
        "BUDGET": "10/10",
        "LAST-PROVEN": "never",
        "POLICY": "default(Enforce)",
        "KIND": "TrainJob",
        "AGE": "60m",
        "REMEDY": "-",
        "REASON": "-",
    }


def test_an_incident_is_reported_from_its_recovery_group(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("TearingDown"))
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["CAUSE"], cells["ACTION"]) == ("TearingDown", "Exit137", "RecreateGroup")
    assert (cells["IDLE-GPUS"], cells["RESTARTS"], cells["BUDGET"]) == ("16", "1", "9/10")


def test_the_training_step_is_shown_and_in_resuming_the_one_that_the_ranks_must_pass(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    step = {"lowest": 1100, "highest": 1102, "at": "2026-11-02T08:59:50Z", "absolute": True}
    status_ = open_incident("Resuming") | {"trainingStep": step}
    status_["incident"]["trainingSteps"] = {"before": 1200, "absolute": True, "resumed": 1000}
    cluster.add_group("llm", status_)
    assert row("llm", "-o", "wide")["STEP"] == "1100/1200"
    [told] = json.loads(status("-o", "json").stdout)
    assert told["trainingStep"] == step


WOULD = {"restarts": 3, "idleGpuSeconds": 600.0, "platformIdleGpuSeconds": 7800.0}
WOULD_WORDS = "Under Observe, Enforce would have made {} restarts and saved {} GPU-hours (estimated)."


def observed() -> Object:
    """`status` of a RecoveryGroup in Observe."""
    found = open_incident("Decided")
    return found | {"totals": found["totals"] | {"enforceEstimate": WOULD}}


def test_what_enforce_would_have_done_is_said_once_for_all_jobs_of_the_listing(cluster: PlainCluster) -> None:
    for name in ("llm", "vlm"):
        cluster.add_job(name)
        cluster.add_group(name, observed())
    cluster.add_policy()
    assert WOULD_WORDS.format(6, "4.00") in status().stderr
    assert "Enforce would" not in status("-o", "json").stderr
    (first, _) = json.loads(status("-o", "json").stdout)
    assert first["withEnforce"] == WOULD | {"savedGpuSeconds": 7200.0}


def test_where_enforce_would_have_done_nothing_nothing_is_said_of_it(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    assert "Enforce would" not in status().stderr


@pytest.mark.parametrize(
    ("change", "phase"),
    [
        ({"spec": {"suspend": True}}, "Suspended"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, "Complete"),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, "Failed"),
        ({"status": {"conditions": [{"type": "Failed", "status": "False"}]}}, "Healthy"),
    ],
)
def test_a_job_that_no_one_has_to_watch_says_why(cluster: PlainCluster, change: Object, phase: str) -> None:
    cluster.add_job("llm").update(change)
    cluster.add_policy()
    assert row("llm")["PHASE"] == phase


def test_a_job_that_is_being_deleted_says_so(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["deletionTimestamp"] = "2026-11-02T08:59:59Z"
    assert row("llm")["PHASE"] == "Deleting"


def test_a_job_without_a_policy_has_no_budget(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cells = row("llm", "-o", "wide")
    assert (cells["PHASE"], cells["POLICY"], cells["BUDGET"]) == ("NoPolicy", "-", "-")


def test_a_paused_job_and_an_unusable_policy_are_marked(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = {"recovery.trainjob.dev/paused": "true"}
    cluster.add_policy(budget={"window": "soon"})
    assert row("llm", "-o", "wide")["POLICY"] == "default(Invalid,paused)"


PAUSED = {"metadata": {"annotations": {"recovery.trainjob.dev/paused": "true"}}}


FREE = {"name": "spot", "when": {"onClass": ["PodDisrupted"]}, "action": "RecreateGroup", "charge": False}


def test_a_rule_that_charges_nothing_protects_in_part_once_the_budget_is_exhausted(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce", budget={"limit": 0}, rules=[FREE])
    assert row("llm")["PROTECTED"] == "in part: BudgetExhausted"
    [found] = json.loads(status("-o", "json").stdout)
    assert found["protection"] == {
        "protected": False,
        "reason": "BudgetExhausted",
        "message": "The budget of RecoveryPolicy team-a/default is exhausted, so the controller holds the next loss. "
        "It still restarts the group after a loss that rule spot decides or a preemption that no rule matches, which "
        "is not charged.",
        "remedy": "Run recovery reset-budget llm, or raise spec.budget.limit.",
        "stillRecovered": {"rules": ["spot"], "preemptions": True},
    }


@pytest.mark.parametrize(
    ("change", "spec", "answer"),
    [
        ({}, {"mode": "Enforce"}, "yes"),
        ({}, {"mode": "Observe"}, "no: Observe"),
        ({}, {"mode": "Enforce", "restart": "None"}, "no: RestartNone"),
        ({}, {"mode": "Enforce", "budget": {"limit": 0}}, "no: BudgetExhausted"),
        ({}, {"budget": {"window": "soon"}}, "no: PolicyUnusable"),
        (PAUSED, {"mode": "Enforce"}, "no: PausedByAnnotation"),
        ({"spec": {"suspend": True}}, {"mode": "Observe"}, "-"),
        ({"status": {"conditions": [{"type": "Complete", "status": "True"}]}}, {}, "-"),
        ({"status": {"conditions": [{"type": "Failed", "status": "True"}]}}, {}, "-"),
    ],
)
def test_a_column_says_whether_the_job_is_protected_and_if_not_why(
    cluster: PlainCluster, change: Object, spec: Object, answer: str
) -> None:
    job = cluster.add_job("llm")
    for field, value in change.items():
        job[field].update(value)
    cluster.add_policy(**spec)
    assert row("llm")["PROTECTED"] == answer


def test_a_job_whose_training_is_finishing_needs_no_protection(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=3)
    cluster.objects[PODS.plural][0]["status"] = {"phase": "Succeeded"}
    cluster.objects[JOBS.plural][0]["status"] = {"ready": 2, "succeeded": 1}
    assert row("llm")["PROTECTED"] == "-"
    assert "pods" not in cluster.plurals("list"), "its Job tells"


def test_a_group_without_a_training_container_is_seen_though_all_are_ready(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    containers = [{"name": "model"}, {"name": "data"}]
    cluster.objects[JOBS.plural][0]["spec"]["template"] = {"spec": {"containers": containers}}
    assert row("llm")["PROTECTED"] == "no: TrainingContainerUnknown"
    assert "pods" not in cluster.plurals("list")


def test_a_group_that_waits_for_a_person_is_not_protected(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("Held"))
    assert row("llm")["PROTECTED"] == "no: Held"
    assert row("llm", "-o", "wide")["REMEDY"] == "Run recovery retry llm to restart the group."


def test_the_brakes_of_the_cluster_show_in_every_row(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    config: Object = {"metadata": metadata("default", "", "config"), "spec": {"paused": True}}
    cluster.put(RECOVERY_CONFIGS, config)
    assert row("llm")["PROTECTED"] == "no: PausedGlobally"
    config["spec"] = {"circuitBreaker": {"recoveries": 2}}
    config["status"] = {
        "breaker": {
            "openedAt": "2026-11-02T08:59:00Z",
            "reason": "RecoveriesInVain",
            "recoveries": 2,
            "withinSeconds": 3600,
            "limit": 2,
        }
    }
    assert row("llm")["PROTECTED"] == "no: BreakerOpen"
    [found] = json.loads(status("-o", "json").stdout)
    assert found["protection"] == {
        "protected": False,
        "reason": "BreakerOpen",
        "message": "The circuit breaker is open: 2 recoveries within 60 minutes brought no progress "
        "(RecoveryConfig spec.circuitBreaker.recoveries 2).",
        "remedy": "Run recovery reset-breaker to close it.",
        "stillRecovered": None,
    }


def test_a_ledger_of_a_newer_version_is_not_guessed_at(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", {"schemaVersion": SCHEMA_VERSION + 1, "phase": "Meditating"})
    assert row("llm")["PHASE"] == "Unreadable"
    cluster.add_policy("acting", mode="Enforce", priority=1)
    assert row("llm")["PROTECTED"] == "no: LedgerUnreadable"


def test_all_namespaces_have_a_column_and_their_own_policies(cluster: PlainCluster) -> None:
    cluster.add_job("llm", namespace="team-b")
    cluster.add_job("llm", namespace="team-a")
    cluster.add_policy("loose", namespace="team-b", mode="Observe")
    lines = [cells_of(line) for line in status("-A").stdout.splitlines()]
    assert [line[:3] + line[-2:-1] for line in lines] == [
        ["NAMESPACE", "JOB", "PHASE", "PROTECTED"],
        ["team-a", "llm", "NoPolicy", "no: NoPolicy"],
        ["team-b", "llm", "Healthy", "no: Observe"],
    ]
    policies = [json.loads(status("-o", "json", "-n", namespace).stdout)[0]["policy"] for namespace in NAMESPACES]
    assert [policy["name"] for policy in policies] == ["", "loose"]


def test_a_namespace_is_chosen_by_name(cluster: PlainCluster) -> None:
    cluster.add_job("near", namespace="team-a")
    cluster.add_job("far", namespace="team-b")
    assert "far" not in status().stdout
    assert "near" not in status("-n", "team-b").stdout


@pytest.mark.parametrize(("arguments", "where"), [((), "in namespace team-a"), (("-A",), "in the cluster")])
def test_nothing_to_list_is_said_on_stderr(cluster: PlainCluster, arguments: tuple[str, ...], where: str) -> None:
    result = status(*arguments)
    assert (result.stdout, result.stderr) == ("", f"recovery: no TrainJobs or JobSets {where}\n")


def test_json_holds_what_the_table_holds_and_the_sentence(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("Starting"))
    assert json.loads(status("-o", "json").stdout) == [
        {
            "namespace": "team-a",
            "job": "llm",
            "kind": "TrainJob",
            "phase": "Starting",
            "standing": "Unknown",
            "cause": "Exit137",
            "action": "RecreateGroup",
            "idleGPUs": 16,
            "size": None,
            "restarts": 1,
            "trainingStep": None,
            "budget": {"remaining": 9, "limit": 10},
            "proof": None,
            "policy": {"kind": "RecoveryPolicy", "name": "default", "mode": "Enforce"},
            "paused": False,
            "suspendedBy": "",
            "resumeAt": None,
            "nextAttemptAt": None,
            "nextStep": {
                "message": "runs by",
                "at": "2026-11-02T09:14:00Z",
                "otherwise": "restarts",
                "command": "",
            },
            "createdAt": "2026-11-02T08:00:00Z",
            "since": "2026-11-02T08:59:00Z",
            "reason": "DefaultRestart",
            "message": "pod llm-1 failed with exit code 137",
            "withEnforce": {
                "restarts": 0,
                "idleGpuSeconds": 0.0,
                "platformIdleGpuSeconds": 0.0,
                "savedGpuSeconds": 0.0,
            },
            "protection": {
                "protected": True,
                "reason": "Protected",
                "message": "Incident uid-team-1 is being recovered. The controller restarts the group again if it has "
                "to.",
                "remedy": "",
                "stillRecovered": None,
            },
            "controller": {"leads": True, "message": ""},
        }
    ]
    cluster.objects[TRAIN_JOBS.plural].clear()
    cluster.objects[JOB_SETS.plural].clear()
    assert json.loads(status("-o", "json").stdout) == []


def test_long_lists_are_read_page_by_page(cluster: PlainCluster) -> None:
    for number in range(7):
        cluster.add_job(f"job-{number}")
    cluster.page_size = 3
    assert len(status().stdout.splitlines()) == 8
    pages = {"trainjobs": 3, "jobsets": 3, "recoverygroups": 1, "recoverypolicies": 1, "clusterrecoverypolicies": 1}
    assert Counter(cluster.plurals("list")) == pages | {"jobs": 3, "leases": 1, "deployments": 1}


def test_an_object_that_cannot_be_read_is_named_and_hides_nothing_else(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy("good")
    cluster.add_policy("odd", mode="Maybe")
    result = status()
    assert "RecoveryPolicy team-a/odd cannot be read: Invalid enum value 'Maybe'" in result.stderr
    assert "good(Observe)" in status("-o", "wide").stdout


def test_our_own_suspension_is_told_from_others_with_its_end(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("Backoff"))
    job["spec"]["suspend"] = True
    ours = {"recovery.trainjob.dev/suspended-by": "i", "recovery.trainjob.dev/resume-at": "2026-11-02T09:03:10Z"}
    job["metadata"]["annotations"] = ours
    assert (row("llm")["PHASE"], row("llm")["NEXT"]) == ("Backoff", "resumes 09:03:10Z")
    [data] = json.loads(status("-o", "json").stdout)
    assert (data["phase"], data["suspendedBy"], data["resumeAt"]) == ("Backoff", "i", "2026-11-02T09:03:10Z")
    ours["recovery.trainjob.dev/resume-at"] = "never"
    assert (row("llm")["PHASE"], row("llm")["NEXT"]) == ("Backoff", "resumes")


def test_a_backoff_without_a_suspension_is_told_with_its_end(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", open_incident("Backoff") | {"nextAttemptAt": "2026-11-02T09:03:10Z"})
    assert (row("llm")["PHASE"], row("llm")["NEXT"]) == ("Backoff", "restarts 09:03:10Z")


def test_a_bare_job_set_is_listed_and_wide_tells_the_kind_and_the_sentence(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_bare_job_set("raw")
    cluster.add_group("llm", open_incident("Starting"))
    lines = status("-o", "wide").stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["JOB", "llm", "raw"]
    create = "Create a RecoveryPolicy whose spec.selector matches the labels of the job."
    assert cells_of(lines[0])[-4:] == ["KIND", "AGE", "REMEDY", "REASON"]
    assert cells_of(lines[1])[-4:] == ["TrainJob", "60m", create, "pod llm-1 failed with exit code 137"]
    assert cells_of(lines[2])[-4:] == ["JobSet", "60m", create, "-"]


def test_yaml_holds_what_json_holds(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    assert yaml.safe_load(status("-o", "yaml").stdout) == json.loads(status("-o", "json").stdout)


def test_a_job_that_is_paused_without_a_policy_is_marked(cluster: PlainCluster) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = {"recovery.trainjob.dev/paused": "true"}
    assert row("llm", "-o", "wide")["POLICY"] == "(paused)"


def test_a_pause_of_all_recoveries_is_one_line_on_stderr(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    config = {"metadata": metadata("default", "", "config"), "spec": {"paused": True, "pauseReason": "new switches"}}
    cluster.put(RECOVERY_CONFIGS, config)
    assert status().stderr == "recovery: RecoveryConfig default pauses all recoveries: new switches\n"


def test_a_namespace_that_is_not_there_is_one_line(cluster: PlainCluster) -> None:
    result = CliRunner().invoke(app, ["status", "-n", "nope"])
    assert (result.exit_code, result.stdout, result.stderr) == (1, "", "recovery: there is no namespace 'nope'\n")


class Watched:
    """A cluster that changes after each reading. Ctrl-C comes after the last one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *happenings: Callable[[], object]) -> None:
        self._happenings = list(happenings)
        monkeypatch.setattr(StoppedClock, "sleep", self._sleep)

    async def _sleep(self, _seconds: float) -> None:
        if not self._happenings:
            raise KeyboardInterrupt
        self._happenings.pop(0)()

    def status(self, *arguments: str) -> Result:
        result = CliRunner().invoke(app, ["status", "--watch", *arguments])
        assert result.exit_code == 130, result.output
        return result


def test_the_documentation_names_every_reason() -> None:
    page = (Path(__file__).parents[3] / "docs" / "commands.md").read_text()
    assert [reason for reason in ProtectionReason if f"`{reason}`" not in page] == [ProtectionReason.PROTECTED]
