"""`recovery status` and `explain` where no controller leads, or where that is not known."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recovery.cli.main import app
from recovery.ports import LEASES, TryLaterError
from tests.unit.cli.cluster import PlainCluster, StoppedClock, lease
from tests.unit.cli.test_status import Watched, cells_of, open_incident, row, status
from tests.unit.cli.test_status_table import EXHAUSTED
from tests.unit.fake_api import Object

STILL = "2026-11-02T08:48:00Z"
"""The last renewal of the Lease."""
NO_LEASE = (
    "there is no Lease recovery-controller in any namespace (a controller that runs with --no-leader-election has none)"
)
WARNING = (
    "recovery: no controller leads, so no job is recovered, and phases are as they were written last: {}; "
    "recovery explain JOB reads the pods\n"
)


def protected(cluster: PlainCluster) -> Object:
    """A job that a controller would restart."""
    cluster.add_policy(mode="Enforce")
    return cluster.add_job("llm")


def no_one_leads(cluster: PlainCluster) -> None:
    cluster.objects[LEASES.plural].clear()


def told(*arguments: str) -> dict[str, Any]:
    [found] = json.loads(status("-o", "json", *arguments).stdout)
    return dict(found)


def explain(*arguments: str) -> Result:
    result = CliRunner().invoke(app, ["explain", "llm", *arguments])
    assert result.exit_code == 0, result.output
    return result


# --- which Leases show a leader --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leases", "why"),
    [
        ((), NO_LEASE),
        ((lease(holder=""),), "no process holds Lease recovery-system/recovery-controller"),
        (
            (lease(renewed_at=STILL),),
            "pod-1 holds Lease recovery-system/recovery-controller and has not renewed it since 2026-11-02 08:48:00Z",
        ),
        (
            (lease("ml-infra", renewed_at=None),),
            "pod-1 holds Lease ml-infra/recovery-controller and does not renew it",
        ),
    ],
    ids=["none", "released", "still", "undated"],
)
def test_one_line_before_the_table_says_that_no_controller_leads(
    leases: tuple[Object, ...], why: str, cluster: PlainCluster
) -> None:
    protected(cluster)
    no_one_leads(cluster)
    cluster.put(LEASES, *leases)
    assert status().stderr == WARNING.format(why)
    assert row("llm")["PROTECTED"] == "no: NoController"
    assert told()["controller"] == {"leads": False, "message": why}


@pytest.mark.parametrize(
    "leases",
    [
        (lease(),),
        (lease("ml-infra"),),
        (lease(renewed_at=STILL), lease("ml-infra")),
        (lease(holder=""), lease("ml-infra")),
    ],
    ids=["shipped", "elsewhere", "left behind", "released here"],
)
def test_a_renewed_lease_in_any_namespace_shows_a_leader(leases: tuple[Object, ...], cluster: PlainCluster) -> None:
    protected(cluster)
    no_one_leads(cluster)
    cluster.put(LEASES, *leases)
    assert status().stderr == ""
    assert row("llm")["PROTECTED"] == "yes"
    assert told()["controller"] == {"leads": True, "message": ""}


def test_two_leases_that_are_renewed_show_two_installations_the_older_first(cluster: PlainCluster) -> None:
    protected(cluster)
    elsewhere = lease("ml-infra")
    elsewhere["metadata"]["creationTimestamp"] = "2026-11-01T08:00:00Z"
    cluster.put(LEASES, elsewhere)
    both = (
        "2 controllers are elected, by the Leases ml-infra/recovery-controller, recovery-system/recovery-controller: "
        "the controller of the first, which is the oldest, recovers the jobs, and the others hold once they see what "
        "it writes; leave one installation"
    )
    assert status().stderr == explain().stderr == f"recovery: {both}\n"
    assert row("llm")["PROTECTED"] == "yes"
    assert told()["controller"] == {"leads": True, "message": both}


@pytest.mark.parametrize("renewed_at", [STILL, "2026-11-02T09:12:00Z"], ids=["ahead", "behind"])
def test_a_clock_that_is_wrong_does_not_hide_a_leader(
    renewed_at: str, cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only this counts: whether the Lease is renewed while the command runs."""
    protected(cluster)
    found = lease(renewed_at=renewed_at)
    cluster.put(LEASES, found)

    async def renewed_meanwhile(_clock: StoppedClock, _seconds: float) -> None:
        found["spec"]["renewTime"] = renewed_at.replace(":00Z", ":02Z")

    monkeypatch.setattr(StoppedClock, "sleep", renewed_meanwhile)
    assert status().stderr == ""


@pytest.mark.parametrize(
    ("denied", "why"),
    [
        (
            {("list", "leases"), ("get", "leases")},
            "Lease recovery-system/recovery-controller cannot be read, and those of other namespaces cannot be listed",
        ),
        (
            {("list", "leases")},
            "there is no Lease recovery-system/recovery-controller, and those of other namespaces cannot be listed",
        ),
    ],
)
def test_a_user_who_may_not_read_the_lease_is_told_that_it_is_not_known(
    denied: set[tuple[str, str]], why: str, cluster: PlainCluster
) -> None:
    protected(cluster)
    no_one_leads(cluster)
    cluster.denied = denied
    line = f"recovery: it is not known whether a controller leads: {why}\n"
    assert status().stderr == explain().stderr == line
    assert row("llm")["PROTECTED"] == "yes"
    assert told()["controller"] == {"leads": None, "message": why}


def test_a_right_to_get_the_shipped_lease_is_enough(cluster: PlainCluster) -> None:
    protected(cluster)
    cluster.denied = {("list", "leases")}
    assert status().stderr == ""
    cluster.put(LEASES, lease(renewed_at=STILL))
    assert row("llm")["PROTECTED"] == "no: NoController"


def test_a_right_to_list_the_leases_of_that_name_is_enough(cluster: PlainCluster) -> None:
    protected(cluster)
    cluster.denied = {("get", "leases")}
    assert status().stderr == ""
    cluster.put(LEASES, lease(renewed_at=STILL))
    assert row("llm")["PROTECTED"] == "no: NoController"


def test_a_lease_that_cannot_be_read_again_proves_nothing(cluster: PlainCluster) -> None:
    protected(cluster)
    cluster.put(LEASES, lease("ml-infra", renewed_at=STILL))
    cluster.put(LEASES, lease(holder=""))
    cluster.next("list", LEASES)
    cluster.next("list", LEASES, TryLaterError("busy"))
    assert (
        "it is not known whether a controller leads: Lease recovery-controller cannot be read again" in status().stderr
    )


def test_that_it_is_not_known_is_not_said_where_no_controller_acts_anyway(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Observe")
    cluster.denied = {("list", "leases"), ("get", "leases")}
    assert status().stderr == explain().stderr == ""


def test_a_server_that_fails_to_give_the_lease_fails_no_listing(cluster: PlainCluster) -> None:
    protected(cluster)
    cluster.next("get", LEASES, TryLaterError("busy"))
    cluster.next("list", LEASES, TryLaterError("busy"))
    assert "it is not known whether a controller leads" in status().stderr


def test_a_lease_that_cannot_be_decoded_is_no_sign_of_a_leader(cluster: PlainCluster) -> None:
    protected(cluster)
    broken = lease()
    broken["spec"]["holderIdentity"] = 7
    cluster.put(LEASES, broken)
    assert status().stderr == (
        "recovery: it is not known whether a controller leads: Lease recovery-controller cannot be decoded\n"
    )


# --- what that means for a job ---------------------------------------------------------------------------------------


def test_explain_says_so_and_what_to_do(cluster: PlainCluster) -> None:
    protected(cluster)
    no_one_leads(cluster)
    result = explain()
    assert result.stderr == WARNING.format(NO_LEASE)
    assert result.stdout.splitlines()[1] == (
        "Protected: no. RecoveryPolicy team-a/default would restart the group when it loses a member, but no "
        f"controller leads: {NO_LEASE}. Start a controller, or read its log if it runs."
    )
    found = json.loads(explain("-o", "json").stdout)
    assert (found["protection"]["protected"], found["protection"]["reason"]) == (False, "NoController")
    assert found["controller"] == {"leads": False, "message": NO_LEASE}


@pytest.mark.parametrize(
    ("group", "protection", "step"),
    [
        (None, "no: NoController", "recovery explain llm"),
        (open_incident("Scheduling"), "no: NoController", "recovery explain llm"),
        (EXHAUSTED, "no: Held", "restarts 10:12:00Z or recovery retry llm"),
    ],
    ids=["healthy", "recovering", "held"],
)
def test_what_a_controller_would_do_next_is_not_promised(
    group: Object | None, protection: str, step: str, cluster: PlainCluster
) -> None:
    protected(cluster)
    no_one_leads(cluster)
    if group is not None:
        cluster.add_group("llm", group)
    assert (row("llm")["PROTECTED"], row("llm")["NEXT"]) == (protection, step)


def test_a_job_that_a_controller_has_suspended_needs_a_person_to_resume_it(cluster: PlainCluster) -> None:
    job = protected(cluster)
    no_one_leads(cluster)
    cluster.add_group("llm", open_incident("Backoff"))
    job["spec"]["suspend"] = True
    job["metadata"]["annotations"] = {"recovery.trainjob.dev/suspended-by": "i"}
    assert row("llm")["NEXT"] == "recovery resume llm"


@pytest.mark.parametrize(
    ("spec", "answer"),
    [
        ({"mode": "Observe"}, "no: Observe"),
        ({"mode": "Enforce", "budget": {"limit": 0}}, "no: NoController"),
    ],
)
def test_what_else_keeps_a_controller_from_acting_is_said_first(
    spec: Object, answer: str, cluster: PlainCluster
) -> None:
    cluster.add_job("llm")
    cluster.add_policy(**spec)
    no_one_leads(cluster)
    assert row("llm")["PROTECTED"] == answer


def test_watch_says_once_that_the_leader_has_gone_and_shows_its_return(
    cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected(cluster)
    happenings: list[Callable[[], object]] = [
        lambda: cluster.put(LEASES, lease(holder="")),
        lambda: None,
        lambda: cluster.put(LEASES, lease(holder="pod-2")),
    ]
    result = Watched(monkeypatch, *happenings).status()
    assert result.stderr == WARNING.format("no process holds Lease recovery-system/recovery-controller")
    answers = [cells_of(line)[-2] for line in result.stdout.splitlines()[1:]]
    assert answers == ["yes", "no: NoController", "yes"]


def test_watch_waits_once_for_a_lease_that_stands_still(cluster: PlainCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise each later reading would wait as long again for the same answer."""
    protected(cluster)
    cluster.put(LEASES, lease(renewed_at=STILL))
    slept: list[float] = []

    async def sleep(_clock: StoppedClock, seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(StoppedClock, "sleep", sleep)
    CliRunner().invoke(app, ["status", "--watch"])
    assert slept == [3.0, 2.0, 2.0, 2.0]
