"""The table of `recovery status`: on terminals of 100 and 80 columns, in a pipe, its order, and what comes next."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from recovery.cli.main import app
from recovery.ports import JOBS, RECOVERY_CONFIGS
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_explain import history
from tests.unit.cli.test_status import Watched, open_incident, row, status
from tests.unit.fake_api import Object

PAUSED = {"recovery.trainjob.dev/paused": "true"}
LONG = "llama-3-405b-supervised-finetuning-with-long-context-run-000142"
"""A job name of the maximum length."""


def incident(phase: str, ledger: Object | None = None, **changes: Any) -> Object:
    """`status` of a RecoveryGroup with an open incident. `changes`: fields of it; `ledger`: fields beside it."""
    found = open_incident(phase) | (ledger or {})
    return found | {"incident": found["incident"] | changes}


HELD = incident("Held", {"idleGPUs": 512}, step={"type": "Held", "reason": "RuleHold", "message": "a verdict"})
EXHAUSTED = incident(
    "Held", {"nextAttemptAt": "2026-11-02T10:12:00Z"}, step={"type": "Held", "reason": "BudgetExhausted"}
)


class Screen:
    """The command's output on a terminal. (Not a fixture: a fixture sees another stdout than the test.)"""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        self._capsys = capsys
        monkeypatch.setattr("sys.stdout.isatty", lambda: True)
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setenv("NO_COLOR", "1")

    def status(self, *arguments: str) -> list[str]:
        with pytest.raises(SystemExit) as ended:
            app(["status", *arguments])
        assert ended.value.code == 0
        return self._capsys.readouterr().out.splitlines()


def fleet(cluster: PlainCluster) -> None:
    """Jobs in many states, in no particular order."""
    cluster.add_policy(mode="Enforce")
    cluster.add_policy("watching", namespace="team-b", mode="Observe")
    for name in ("bert", "llama-3-70b-pretrain", "vit-paused"):
        cluster.add_job(name)
    cluster.add_job("vit-paused")["metadata"]["annotations"] = PAUSED
    cluster.add_job("whisper", running=1)
    failed = {"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-02T08:20:00Z"}
    cluster.add_job("over")["status"] = {"conditions": [failed]}
    cluster.add_job("asleep")["spec"]["suspend"] = True
    for name, group in {
        "llama-3-405b-sft-0142": HELD,
        "mixtral": EXHAUSTED,
        "gemma": incident("Scheduling", {"idleGPUs": 1024}),
        "falcon": incident("Starting"),
    }.items():
        cluster.add_job(name)
        cluster.add_group(name, group)
    cluster.add_job("watched", namespace="team-b")


def test_it_fits_100_columns(
    cluster: PlainCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet(cluster)
    assert Screen(capsys, monkeypatch, 100).status() == [
        "JOB                    PHASE       CAUSE           SINCE  IDLE-  PROTECTED     NEXT",
        "                                                          GPUS",
        "llama-3-405b-sft-0142  Held        Exit137         60s    512    no: Held      recovery explain JOB",
        "mixtral                Held        Exit137         60s    16     no: Held      restarts 10:12:00Z or",
        "                                                                               recovery retry JOB",
        "whisper                NotStarted  rank 1: Image   60m    16     -             recovery explain JOB",
        "                                   PullBackOff",
        "gemma                  Scheduling  Exit137         60s    1024   yes           waits for nodes",
        "falcon                 Starting    Exit137         60s    16     yes           runs by 09:14:00Z",
        "over                   Failed      -               40m    0      -             -",
        "vit-paused             Paused      -               -      0      no: PausedBy  recovery resume JOB",
        "                                                                 Annotation",
        "bert                   Healthy     -               60m    0      yes           -",
        "llama-3-70b-pretrain   Healthy     -               60m    0      yes           -",
        "asleep                 Suspended   -               60m    0      -             -",
    ]


def test_a_table_that_fits_says_whole_commands(
    cluster: PlainCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_job("mixtral")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("mixtral", HELD)
    assert Screen(capsys, monkeypatch, 100).status() == [
        "JOB      PHASE  CAUSE    SINCE  IDLE-GPUS  PROTECTED  NEXT",
        "mixtral  Held   Exit137  60s    512        no: Held   recovery explain mixtral",
    ]


@pytest.mark.parametrize("columns", [80, 100, 40])
def test_the_longest_names_break_no_table(
    columns: int, cluster: PlainCluster, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A narrower terminal gets a table of 80 columns. A long name takes several lines."""
    namespace = "platform-research-large-models"
    for name in (LONG, "a" * 63):
        cluster.add_job(name, namespace=namespace)["metadata"]["creationTimestamp"] = "2025-10-30T10:00:00Z"
    cluster.add_job("torn", namespace=namespace)
    cluster.add_group("torn", incident("TearingDown", {"idleGPUs": 16384}, mode="Enforce"), namespace=namespace)
    cluster.add_policy(namespace=namespace, budget={"window": "soon"})
    lines = Screen(capsys, monkeypatch, columns).status("-A")
    assert max(map(len, lines)) <= max(columns, 80)
    begins = [found.start() for found in re.finditer(r"\S+", lines[0])]
    for line in lines:
        assert all(line[at - 2 : at].strip() == "" for at in begins[1:]), "columns stay apart"
    namespaces, jobs, *_ = ("".join(line[begin:end].strip() for line in lines) for begin, end in pairwise(begins))
    assert namespace in namespaces
    assert (LONG in jobs) or columns < 100
    assert re.search(r"llama-3-405b-sup.*-run-000142", jobs)
    assert re.search(r"a+\.\.\.a+", jobs), "what has no place to break is cut in the middle"


def test_a_pipe_gets_a_line_for_each_job_and_all_of_it(cluster: PlainCluster) -> None:
    cluster.add_job(LONG)
    cluster.add_policy(mode="Enforce")
    cluster.add_group(LONG, EXHAUSTED)
    header, line = status("-A").stdout.splitlines()
    assert header.split() == ["NAMESPACE", "JOB", "PHASE", "CAUSE", "SINCE", "IDLE-GPUS", "PROTECTED", "NEXT"]
    assert line.split()[1] == LONG
    assert line.endswith(f"restarts 10:12:00Z or recovery retry {LONG} -n team-a")


@pytest.mark.parametrize(("variable", "coloured"), [("", True), ("NO_COLOR", False)])
def test_a_terminal_gets_colours_unless_it_wants_none(
    variable: str,
    coloured: bool,
    cluster: PlainCluster,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet(cluster)
    screen = Screen(capsys, monkeypatch, 100)
    monkeypatch.delenv("NO_COLOR")
    if variable:
        monkeypatch.setenv(variable, "1")
    text = "\n".join(screen.status())
    assert ("\x1b[1;31mHeld" in text) is coloured
    assert ("\x1b" in text) is coloured


# --- the order -------------------------------------------------------------------------------------------------------


def test_what_waits_for_a_person_is_first_then_what_is_under_way_then_what_is_well(cluster: PlainCluster) -> None:
    fleet(cluster)
    listed = [line.split()[1] for line in status("-A").stdout.splitlines()[1:]]
    assert listed == [
        *("llama-3-405b-sft-0142", "mixtral", "whisper"),
        *("gemma", "falcon"),
        "over",
        *("vit-paused", "watched"),
        *("bert", "llama-3-70b-pretrain"),
        "asleep",
    ]


def test_an_open_incident_that_no_one_handles_waits_for_a_person(cluster: PlainCluster) -> None:
    cluster.add_policy(mode="Enforce")
    for name, mode in (("a-recovers", "Enforce"), ("b-observed", "Observe")):
        cluster.add_job(name)
        cluster.add_group(name, incident("Scheduling", mode=mode))
    cluster.add_job("c-silent", ranks=4)
    cluster.goes_silent("gpu-3")
    listed = [line.split()[0] for line in status().stdout.splitlines()[1:]]
    assert listed == ["b-observed", "a-recovers", "c-silent"]


def test_data_are_by_name_as_before(cluster: PlainCluster) -> None:
    fleet(cluster)
    names = [job["job"] for job in json.loads(status("-o", "json").stdout)]
    assert names == sorted(names)


# --- since -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("job", "group", "since"),
    [
        ({}, None, "2026-11-02T08:00:00Z"),
        ({}, incident("Starting"), "2026-11-02T08:59:00Z"),
        ({}, history(), "2026-11-02T08:30:42Z"),
        (
            {"conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2026-11-02T08:40:00Z"}]},
            None,
            "2026-11-02T08:40:00Z",
        ),
        (
            {"conditions": [{"type": "Suspended", "status": "False", "lastTransitionTime": "2026-11-02T08:50:00Z"}]},
            None,
            "2026-11-02T08:50:00Z",
        ),
    ],
    ids=["runs", "incident", "recovered", "complete", "resumed"],
)
def test_since_when_it_is_as_it_is(job: Object, group: Object | None, since: str, cluster: PlainCluster) -> None:
    cluster.add_job("llm")["status"] = job
    cluster.add_policy(mode="Enforce")
    if group is not None:
        cluster.add_group("llm", group)
    [found] = json.loads(status("-o", "json").stdout)
    assert found["since"] == since


# --- what comes next -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("group", "words"),
    [
        (HELD, "recovery explain llm"),
        (EXHAUSTED, "restarts 10:12:00Z or recovery retry llm"),
        (incident("Held", step={"type": "Held", "reason": "AttemptsExhausted"}), "recovery retry llm"),
        (incident("Held", step={"type": "Held", "reason": "RuleFailJob", "failsJob": True}), "fails the job"),
        (incident("Fencing"), "waits for the node"),
        (incident("TearingDown"), "waits for old pods"),
        (incident("Backoff", {"nextAttemptAt": "2026-11-02T09:03:10Z"}), "restarts 09:03:10Z"),
        (incident("Backoff", {"nextAttemptAt": "2026-11-02T08:57:10Z"}), "overdue: restarts 08:57:10Z"),
        (incident("Backoff", reason="MembersRunAgain"), "closes"),
        (incident("Scheduling"), "waits for nodes"),
        (incident("Starting"), "runs by 09:14:00Z or restarts"),
        (incident("Rendezvous"), "waits for Ready"),
        (incident("Scheduling", mode="Observe"), "recovery explain llm"),
    ],
)
def test_what_comes_next_in_an_incident_and_when(group: Object, words: str, cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", group)
    assert row("llm")["NEXT"] == words


@pytest.mark.parametrize(
    ("annotations", "spec", "words"),
    [
        ({}, {"mode": "Enforce"}, "-"),
        ({}, {"mode": "Observe"}, "-"),
        (PAUSED, {"mode": "Enforce"}, "recovery resume llm"),
        ({}, {"mode": "Enforce", "budget": {"limit": 0}}, "recovery reset-budget llm"),
        ({}, {"budget": {"window": "soon"}}, "recovery explain llm"),
    ],
)
def test_what_a_person_can_do_about_a_job_that_runs(
    annotations: Object, spec: Object, words: str, cluster: PlainCluster
) -> None:
    cluster.add_job("llm")["metadata"]["annotations"] = annotations
    cluster.add_policy(**spec)
    assert row("llm")["NEXT"] == words


def test_a_job_that_stays_suspended_after_its_incident_says_how_it_is_resumed(cluster: PlainCluster) -> None:
    """Its ledger is gone, or no controller leads that could resume it."""
    suspended = cluster.add_job("llm")
    suspended["spec"]["suspend"] = True
    suspended["metadata"]["annotations"] = {
        "recovery.trainjob.dev/suspended-by": "i",
        "recovery.trainjob.dev/resume-at": "2026-11-02T09:03:10Z",
    }
    cluster.add_job("other")["spec"]["suspend"] = True
    assert row("llm")["NEXT"] == "resumes 09:03:10Z or recovery resume llm"
    assert row("other")["NEXT"] == "-"


def test_a_command_that_is_for_the_cluster_names_no_job(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    breaker = {
        "openedAt": "2026-11-02T08:59:00Z",
        "reason": "RecoveriesInVain",
        "recoveries": 2,
        "withinSeconds": 3600,
        "limit": 2,
    }
    config: Object = {"metadata": metadata("default", "", "config"), "spec": {"circuitBreaker": {"recoveries": 2}}}
    cluster.put(RECOVERY_CONFIGS, config | {"status": {"breaker": breaker}})
    [found] = json.loads(status("-A", "-o", "json").stdout)
    assert found["nextStep"] == {"message": "", "at": None, "otherwise": "", "command": "recovery reset-breaker"}


def test_data_have_the_command_with_its_namespace_and_the_moment(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", EXHAUSTED)
    [found] = json.loads(status("-o", "json").stdout)
    assert found["nextStep"] == {
        "message": "restarts",
        "at": "2026-11-02T10:12:00Z",
        "otherwise": "",
        "command": "recovery retry llm -n team-a",
    }


def test_a_job_that_has_not_started_is_explained(cluster: PlainCluster) -> None:
    cluster.add_job("llm", running=1)
    assert (row("llm")["PHASE"], row("llm")["PROTECTED"]) == ("NotStarted", "no: NoPolicy")
    assert row("llm")["NEXT"] == "recovery explain llm"
    cluster.objects[JOBS.plural][0]["status"]["ready"] = 2
    assert (row("llm")["PHASE"], row("llm")["PROTECTED"], row("llm")["NEXT"]) == ("NoPolicy", "no: NoPolicy", "-")


def test_of_a_job_that_is_gone_nothing_comes_next(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", HELD)
    watched = Watched(monkeypatch, cluster.objects.clear)
    lines = watched.status("-o", "json").stdout.splitlines()
    held, gone = map(json.loads, lines)
    assert (held["phase"], held["nextStep"]["command"]) == ("Held", "recovery explain llm -n team-a")
    assert (gone["phase"], gone["nextStep"]["command"], gone["since"]) == ("Deleted", "", None)
