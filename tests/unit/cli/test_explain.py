"""`recovery explain`: an account on which a person can act."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from recovery.cli.main import app
from recovery.core.model.ledger import SCHEMA_VERSION
from recovery.ports import PODS
from tests.unit.cli.cluster import PlainCluster
from tests.unit.cli.test_status import WOULD_WORDS, observed, open_incident
from tests.unit.fake_api import Object


def explain(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["explain", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


def section(text: str, title: str) -> list[str]:
    """The lines of a section, without their indentation."""
    _, _, rest = text.partition(f"\n{title}:\n")
    return [line.removeprefix("  ") for line in rest.split("\n\n")[0].rstrip("\n").splitlines()]


def test_a_healthy_job(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    text = explain("llm")
    assert text.splitlines()[:2] == [
        "TrainJob team-a/llm, created 60m ago",
        "Protected: yes. RecoveryPolicy team-a/default restarts the group when it loses a member.",
    ]
    assert section(text, "Policy") == [
        "RecoveryPolicy default, the only one that selects the job",
        "mode Enforce, restart RecreateGroupOnPodRestart, 10 of 10 recoveries left",
    ]
    assert section(text, "Now") == [
        "JobSet llm, 0 restarts of its own",
        "collective Required: nothing in its launch shows that it replaces a lost rank itself",
        "Job llm-node-0: 2 of 2 pods run and are Ready, 16 GPUs",
    ]
    assert section(text, "Decision") == ["no failure"]
    assert "Incident" not in text
    assert "History" not in text


def test_without_a_policy_it_says_why_none_applies(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    text = explain("llm")
    assert section(text, "Policy") == ["none: there is no RecoveryPolicy in the namespace and no ClusterRecoveryPolicy"]
    assert section(text, "Decision") == ["no RecoveryPolicy applies to this job"]


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        (
            {"mode": "Observe"},
            "Protected: no. RecoveryPolicy team-a/default only observes. Set spec.mode: Enforce to act.",
        ),
        (
            {"budget": {"window": "soon"}},
            "Protected: no. The policy cannot be used: RecoveryPolicy team-a/default: spec.budget.window: 'soon'",
        ),
    ],
)
def test_a_job_that_is_not_protected_says_why_and_what_to_do(cluster: PlainCluster, spec: Object, line: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy(**spec)
    assert explain("llm").splitlines()[1].startswith(line)


def test_a_job_that_has_not_started_needs_no_protection_yet(cluster: PlainCluster) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_policy(mode="Enforce")
    assert explain("llm").splitlines()[1] == (
        "Protected: not needed. The group has not run whole yet. Until then its Jobs replace a lost member."
    )
    assert json.loads(explain("llm", "-o", "json"))["protection"]["reason"] == "NotStarted"


def test_troubled_pods_are_named_with_what_is_known_of_their_nodes(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=3, running=1)
    cluster.add_policy()
    cluster.add_node("gpu-1", ready=False)
    cluster.add_node("gpu-2", ready=True)
    lines = section(explain("llm"), "Now")
    assert "  pod llm-1: Pending, ImagePullBackOff, on gpu-1, which is not Ready for 2m (NodeStatusUnknown)" in lines
    assert "  pod llm-2: Pending, ImagePullBackOff, on gpu-2" in lines


def test_nodes_that_may_not_be_read_are_left_out(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=2, running=1)
    cluster.denied = {("get", "nodes")}
    assert "  pod llm-1: Pending, ImagePullBackOff, on gpu-1" in section(explain("llm"), "Now")


def test_many_troubled_pods_are_counted(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=20, running=0)
    assert section(explain("llm"), "Now")[-1] == "  and 12 Pending more"


def test_the_open_incident_is_told_in_full(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    status = open_incident("TearingDown")
    status["incident"] |= incident_details()
    cluster.add_group("llm", status)
    lines = section(explain("llm"), "Incident")
    assert lines == [
        "uid-team-1, open for 60.0s, mode Enforce",
        "pod llm-1 failed with exit code 137",
        "class PodFailed, cause Exit137, charged to the budget",
        "decided by the default (RecreateGroupOnPodRestart) of policy default, generation 1: no rule matched",
        "failed at 2026-11-02 08:59:00Z, detected 0.00s later",
        "2 ranks, 16 GPUs, 960 idle GPU-seconds",
        "Evidence:",
        "  - pod llm-1 (rank 1, node gpu-1) failed with exit code 137",
        "Suspects:",
        "  POD    NODE   RANK  EXIT",
        "  llm-1  gpu-1  1     137",
        "Attempts:",
        "  1. RecreateGroup at 2026-11-02 08:59:00Z (epoch 1): the default applies",
        "Phases:",
        "  PHASE        SINCE                 DURATION      IDLE-GPU-SECONDS",
        "  Detected     2026-11-02 08:59:00Z  2.00s         32",
        "  TearingDown  2026-11-02 08:59:02Z  58.0s so far  928",
    ]


DRILL = {"name": "lose-a-rank-x7k2p", "uid": "uid-drill", "repeat": 2}


def test_the_incident_of_a_drill_names_the_drill(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    status = open_incident("TearingDown")
    status["incident"] |= {"drill": DRILL}
    cluster.add_group("llm", status)
    assert section(explain("llm"), "Incident")[2:4] == [
        "class PodFailed, cause Exit137, not charged to the budget",
        "drill lose-a-rank-x7k2p (repeat 2)",
    ]


def test_the_drills_among_past_incidents_are_marked(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    ledger = history()
    ledger["history"][0]["drill"] = DRILL
    cluster.add_group("llm", ledger)
    assert section(explain("llm"), "Last incident")[1] == "drill lose-a-rank-x7k2p (repeat 2)"
    assert "Exit137,drill" in section(explain("llm"), "History")[1]


def test_all_evidence_is_listed_with_how_much_there_is(cluster: PlainCluster) -> None:
    """The ledger has the words of the first 16 signs only. The pods still show all of them."""
    cluster.add_job("llm", ranks=20)
    for pod in cluster.objects[PODS.plural]:
        pod["metadata"] |= {"deletionTimestamp": "2026-11-02T08:59:30Z", "deletionGracePeriodSeconds": 30}
    cluster.add_policy(mode="Enforce")
    lines = section(explain("llm"), "Incident, as it would be opened now")
    at = lines.index("Evidence:")
    assert lines[at + 1] == "  20 pods were deleted within 1 s"
    assert [line for line in lines[at:] if line.endswith("was deleted")] == lines[at + 2 : at + 22]


def test_evidence_that_no_object_shows_any_more_is_counted(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    status = open_incident("TearingDown")
    date = "2026-11-02T08:59:00Z"
    counts = [{"kind": "PodFailed", "count": 16, "firstAt": date, "lastAt": "2026-11-02T08:59:03Z"}]
    status["incident"] |= incident_details() | {"evidenceCounts": counts}
    cluster.add_group("llm", status)
    lines = section(explain("llm"), "Incident")
    at = lines.index("Evidence:")
    assert lines[at + 1 : at + 4] == [
        "  16 pods failed within 4 s",
        "  - pod llm-1 (rank 1, node gpu-1) failed with exit code 137",
        "  and 15 more, which no object shows any more",
    ]


def incident_details() -> Object:
    return {
        "charged": True,
        "evidence": ["pod llm-1 (rank 1, node gpu-1) failed with exit code 137"],
        "evidenceCounts": [{"kind": "PodFailed", "count": 1}],
        "suspects": [{"pod": "llm-1", "node": "gpu-1", "index": 1, "exitCode": 137}],
        "attempts": [
            {
                "number": 1,
                "epoch": 1,
                "action": "RecreateGroup",
                "startedAt": "2026-11-02T08:59:00Z",
                "reason": "DefaultRestart",
                "message": "the default applies",
            }
        ],
        "target": {"jobSetUID": "uid-team-a-llm-js", "jobUIDs": ["uid-team-a-llm-j"]},
        "phases": [
            {
                "phase": "Detected",
                "startedAt": "2026-11-02T08:59:00Z",
                "endedAt": "2026-11-02T08:59:02Z",
                "idleGpuSeconds": 32,
            },
            {"phase": "TearingDown", "startedAt": "2026-11-02T08:59:02Z"},
        ],
    }


def test_what_is_decided_right_now_comes_with_the_actions_and_none_is_done(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    status = open_incident("Decided")
    status["incident"] |= incident_details() | {"step": {"type": "Restarting"}}
    cluster.add_group("llm", status)
    lines = section(explain("llm"), "Decision")
    assert "it would delete Job llm-node-0 (uid uid-team-a-llm-j)" in lines
    assert "it would delete 2 pods" in lines


def test_a_recovery_that_waits_for_progress_says_how_far_the_training_was_and_until_when(
    cluster: PlainCluster,
) -> None:
    job = cluster.add_job("llm")
    job["status"] = {"trainerStatus": {"progressPercentage": 40, "lastUpdatedTime": "2026-11-02T08:58:30Z"}}
    cluster.add_policy(mode="Enforce")
    status = open_incident("Resuming")
    status["incident"] |= incident_details() | {"progressAt": "2026-11-02T08:58:30Z"}
    status["incident"]["phases"] = [{"phase": "Resuming", "startedAt": "2026-11-02T08:59:00Z"}]
    status["incident"]["target"]["jobUIDs"] = ["the one before"]
    cluster.add_group("llm", status)
    text = explain("llm")
    assert "progress 40%, reported at 2026-11-02 08:58:30Z" in text
    assert "the incident closes at 2026-11-02 09:14:00Z, or as soon as the training reports progress" in text


def history() -> Object:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "totals": {"incidents": 1},
        "history": [
            {
                "id": "uid-team-1",
                "outcome": "Recovered",
                "outcomeReason": "AllRanksReady",
                "class": "PodFailed",
                "cause": "Exit137",
                "startedAt": "2026-11-02T08:30:00Z",
                "endedAt": "2026-11-02T08:30:42Z",
                "attempts": 1,
                "idleGpuSeconds": 672.0,
                "reason": "AllRanksReady",
                "message": "pod llm-1 failed; all 2 ranks are Ready",
            }
        ],
    }


def test_what_enforce_would_have_done_is_told(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", observed())
    assert section(explain("llm"), "With Enforce") == [WOULD_WORDS.format(3, "2.00")]
    assert json.loads(explain("llm", "-o", "json"))["withEnforce"]["restarts"] == 3


def test_once_the_policy_enforces_it_is_not_said_what_enforce_would_have_done(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", observed())
    assert "Enforce would have" not in explain("llm")


def test_past_incidents_are_listed(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", history())
    text = explain("llm")
    header, line = section(text, "History")
    assert dict(zip(header.split(), line.split(), strict=True)) == {
        "ID": "uid-team-1",
        "OUTCOME": "Recovered",
        "CAUSE": "Exit137",
        "AGE": "29m",
        "DURATION": "42.0s",
        "ATTEMPTS": "1",
        "IDLE-GPU-SECONDS": "672",
    }


def test_the_last_incident_of_a_healthy_job_is_found_with_the_command_that_shows_all_of_it(
    cluster: PlainCluster,
) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", history())
    cluster.add_incident("llm", record())
    first, sentence, where = section(explain("llm"), "Last incident")
    assert first == "uid-team-1, Recovered (AllRanksReady) 29m ago, after 42.0s, cause Exit137"
    assert sentence == "pod llm-1 failed; all 2 ranks are Ready"
    assert where == "all of it: recovery explain llm -n team-a --incident uid-team-1"
    command = where.removeprefix("all of it: recovery explain ").split()
    assert section(explain(*command), "Incident of TrainJob team-a/llm")[0].startswith("uid-team-1, Recovered")


def test_beside_an_open_incident_it_is_the_one_before(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", open_incident("Starting") | {"history": history()["history"]})
    text = explain("llm")
    assert section(text, "Incident before")[0].startswith("uid-team-1, Recovered")
    assert "Last incident" not in text


def record(**changes: Any) -> Object:
    """`spec` of a RecoveryIncident, without the group."""
    open_ = {key: value for key, value in open_incident("Starting")["incident"].items() if key != "phases"}
    closing = {"outcome": "Recovered", "outcomeReason": "AllRanksReady", "endedAt": "2026-11-02T08:59:42Z"}
    return open_ | closing | {"schemaVersion": SCHEMA_VERSION, "idleGpuSeconds": 672} | changes


@pytest.mark.parametrize("job_exists", [True, False])
def test_a_closed_incident_is_told_from_its_record_which_outlives_the_job(
    cluster: PlainCluster, job_exists: bool
) -> None:
    if job_exists:
        cluster.add_job("llm")
    cluster.add_incident("other", record())
    cluster.add_incident("llm", record(message="this one"))
    text = explain("llm", "--incident", "uid-team-1")
    assert section(text, f"Incident of {'TrainJob' if job_exists else 'job'} team-a/llm")[:2] == [
        "uid-team-1, Recovered (AllRanksReady) after 42.0s, mode Enforce",
        "this one",
    ]


LOG = {
    "pod": "llm-1",
    "container": "node",
    "previous": True,
    "terminationMessage": "CUDA error\n  at step 7",
    "tail": "step 7\n  \x1b[2Jloss 3.1\nNCCL timeout",
}


def test_the_log_of_the_suspect_is_printed_after_its_termination_message_and_harmless(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record(suspectLog=LOG))
    text = explain("llm", "--incident", "uid-team-1")
    lines = section(text, "Incident of job team-a/llm")
    begin = lines.index("Termination message of llm-1:")
    assert lines[begin : begin + 7] == [
        "Termination message of llm-1:",
        "  CUDA error",
        "    at step 7",
        "Last lines of llm-1, container node, before it restarted:",
        "  step 7",
        "     [2Jloss 3.1",
        "  NCCL timeout",
    ]
    assert "\x1b" not in text
    assert json.loads(explain("llm", "--incident", "uid-team-1", "-o", "json"))["suspectLog"] == LOG


def test_a_log_that_was_not_read_says_why(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record(suspectLog={"pod": "llm-1", "absent": "TimedOut"}))
    assert "Log of llm-1: not read: TimedOut" in explain("llm", "--incident", "uid-team-1")


def test_the_open_incident_can_be_asked_for_by_its_id(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_group("llm", open_incident("Held"))
    assert "uid-team-1, open for 60.0s" in explain("llm", "--incident", "uid-team-1")


def one_line(*arguments: str) -> str:
    """The only line that is printed where the command exits with 1."""
    text = explain(*arguments, exit_code=1)
    assert text.count("\n") == 1
    return text.strip()


def test_what_is_not_there_is_one_line(cluster: PlainCluster) -> None:
    assert one_line("llm") == "recovery: there is no TrainJob or JobSet 'llm' in namespace 'team-a'"
    cluster.add_job("llm")
    assert one_line("llm", "--incident", "x") == "recovery: there is no incident 'x' of job team-a/llm"


def test_a_record_of_another_version_is_one_line(cluster: PlainCluster) -> None:
    cluster.add_incident("llm", record(outcome="Transcended"))
    said = one_line("llm", "--incident", "uid-team-1")
    assert said.startswith(
        "recovery: RecoveryIncident team-a/llm-uid-team-1 cannot be read: Invalid enum value 'Transcended'"
    )


@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"schemaVersion": 9}, f"has schemaVersion 9, this version knows {SCHEMA_VERSION}"),
        ({"schemaVersion": SCHEMA_VERSION, "phase": "Meditating"}, "Invalid enum value 'Meditating'"),
    ],
)
def test_without_a_readable_ledger_nothing_is_decided(cluster: PlainCluster, status: Object, why: str) -> None:
    cluster.add_job("llm")
    cluster.add_policy()
    cluster.add_group("llm", status)
    (line,) = section(explain("llm"), "Decision")
    assert line.startswith("none, and no controller of this version takes one:")
    assert why in line


def test_what_pods_say_does_not_reach_the_terminal_raw(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=1, running=0)
    status = cluster.objects[PODS.plural][0]["status"]
    status["containerStatuses"][0]["state"]["waiting"]["reason"] = "\x1b[2JGone"
    assert "\x1b" not in explain("llm")


# --- a group that recovers -------------------------------------------------------------------------------------------

NOTHING_IS_RESTARTED = "nothing is restarted"


def restarted(phase: str, **changes: Any) -> Object:
    """`status` of a RecoveryGroup whose incident has replaced an earlier Job by the present one."""
    found = open_incident(phase)
    target = {"jobSetUID": "uid-team-a-llm-js", "jobUIDs": ["an-earlier-one"]}
    return found | {"incident": found["incident"] | incident_details() | {"target": target} | changes}


def test_in_the_middle_of_a_recovery_the_incident_restarts_what_does_not_come_back(cluster: PlainCluster) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", restarted("Starting"))
    text = explain("llm")
    assert text.splitlines()[1] == (
        "Protected: yes. Incident uid-team-1 is being recovered. The controller restarts the group again if it has to."
    )
    assert section(text, "Now")[3] == (
        "  its pods have not all run at once since the restart; until they have, its Job replaces a lost one, and "
        "incident uid-team-1 restarts the group again if they do not run in time"
    )
    assert NOTHING_IS_RESTARTED not in text


def test_a_loss_that_the_ledger_knows_and_the_pods_do_not_show_is_one_of_a_group_that_has_run(
    cluster: PlainCluster,
) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", history())
    text = explain("llm")
    assert text.splitlines()[1].startswith("Protected: yes. RecoveryPolicy team-a/default restarts the group")
    assert section(text, "Now")[3] == (
        "  its pods do not show any more that all of them have run at once, but the RecoveryGroup does"
    )
    assert NOTHING_IS_RESTARTED not in text


@pytest.mark.parametrize("group", [None, restarted("Held")], ids=["never started", "held"])
def test_where_nothing_is_restarted_the_job_is_not_called_protected(
    cluster: PlainCluster, group: Object | None
) -> None:
    cluster.add_job("llm", running=1)
    cluster.add_policy(mode="Enforce")
    if group is not None:
        cluster.add_group("llm", group)
    text = explain("llm")
    assert NOTHING_IS_RESTARTED in text
    assert not text.splitlines()[1].startswith("Protected: yes")
