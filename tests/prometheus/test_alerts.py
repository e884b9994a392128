"""Each alert is silent before its `for`, fires after it, and is resolved at the end. An alert that another one explains
stays silent. `test_watched_fleet.py` has whole hours of a fleet, with and without alerts."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from recovery.dashboards.alert import Alert
from recovery.dashboards.alerts import ALERTS, expression
from tests.cluster.controlplane.build import Toolbox
from tests.prometheus.promtool import FILES, Expected, check, run
from tests.prometheus.scenarios import JOB_LABELS, SCENARIOS, job, members, own, pod

BY_NAME = {alert.name: alert for alert in ALERTS}


def firing(name: str) -> str:
    return f'ALERTS{{alertname="{name}", alertstate="firing"}}'


def expected(name: str, at: str, labels: Mapping[str, str] | None) -> Expected:
    """`labels` None: it does not fire."""
    if labels is None:
        return Expected(firing(name), at, {})
    fixed = {"alertname": name, "alertstate": "firing", "severity": str(BY_NAME[name].severity)}
    text = ", ".join(f'{key}="{value}"' for key, value in {**labels, **fixed}.items())
    return Expected(firing(name), at, {f"ALERTS{{{text}}}": 1})


@pytest.fixture
def promtool(toolbox: Toolbox) -> Path:
    return toolbox.binary("promtool")


def test_prometheus_takes_the_rules(promtool: Path) -> None:
    done = run(promtool, "check", "rules", "--lint=all", "--lint-fatal", *FILES)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_scenario() -> None:
    assert list(SCENARIOS) == [alert.name for alert in ALERTS]


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_is_silent_fires_and_is_resolved(name: str, promtool: Path, tmp_path: Path) -> None:
    scenario = SCENARIOS[name]
    check(
        promtool,
        tmp_path,
        scenario.series,
        [
            expected(name, scenario.silent, None),
            expected(name, scenario.firing, scenario.labels),
            expected(name, scenario.resolved, None),
        ],
    )


EXPLAINED = [(alert, cause) for alert in ALERTS for cause in alert.explained_by]


@pytest.mark.parametrize(("alert", "cause"), EXPLAINED, ids=lambda each: getattr(each, "name", each))
def test_it_stays_silent_while_another_explains_it(alert: Alert, cause: str, promtool: Path, tmp_path: Path) -> None:
    """The series that make it fire, with an alert that explains it: first for this job, then for another job."""
    scenario = SCENARIOS[alert.name]
    where = dict(JOB_LABELS) if BY_NAME[cause].per_job else {}
    fires = f'ALERTS{{alertname="{cause}", alertstate="firing"%s}}'
    of_job = "".join(f', {key}="{value}"' for key, value in where.items())
    check(
        promtool, tmp_path, {**scenario.series, fires % of_job: "1x90"}, [expected(alert.name, scenario.firing, None)]
    )
    if where:
        other = {**scenario.series, fires % ', namespace="team", job_name="other"': "1x90"}
        check(promtool, tmp_path, other, [expected(alert.name, scenario.firing, scenario.labels)])


def test_what_explains_an_alert_is_evaluated_before_it() -> None:
    order = [alert.name for alert in ALERTS]
    late = [(alert.name, cause) for alert, cause in EXPLAINED if order.index(cause) > order.index(alert.name)]
    assert late == []
    assert "unless" in expression(BY_NAME["RecoveryOverdue"])


def test_permissions_that_an_installation_withholds_because_it_only_observes_are_no_alert(
    promtool: Path, tmp_path: Path
) -> None:
    series = {
        own("missing_permissions", verb="delete", resource="jobs"): "1x60",
        own("jobs", mode="enforce"): "0x60",
        own("jobs", mode="observe"): "5x60",
    }
    check(promtool, tmp_path, series, [expected("RecoveryPermissionMissing", "30m10s", None)])


class TestADeadMember:
    """The alert that does not depend on the controller."""

    name = "RecoveryDeadMemberUnattended"
    opened = job("incident_start_timestamp_seconds")

    def test_an_open_incident_attends_to_it(self, promtool: Path, tmp_path: Path) -> None:
        series = {**members(5, 40), own("leader"): "1x90", self.opened: "_x5 300x35 stale"}
        check(promtool, tmp_path, series, [expected(self.name, "20m10s", None)])

    def test_a_closed_incident_has_attended_to_it(self, promtool: Path, tmp_path: Path) -> None:
        """The platform replaced the member, and its failed pod still exists."""
        series = {**members(5, 60), own("leader"): "1x90", self.opened: "_x5 300x5 stale"}
        check(promtool, tmp_path, series, [expected(self.name, "40m10s", None)])

    def test_an_incident_of_before_has_not(self, promtool: Path, tmp_path: Path) -> None:
        series = {**members(15, 60), own("leader"): "1x90", self.opened: "_x5 300x5 stale"}
        check(promtool, tmp_path, series, [expected(self.name, "30m10s", JOB_LABELS)])

    def test_an_incident_that_an_absent_controller_left_open_does_not(self, promtool: Path, tmp_path: Path) -> None:
        series = {**members(5, 60), own("leader"): "1x7 stale", self.opened: "_x5 300x2 stale"}
        check(promtool, tmp_path, series, [expected(self.name, "30m10s", JOB_LABELS)])

    def test_a_container_that_restarted_in_place_is_one(self, promtool: Path, tmp_path: Path) -> None:
        """The shipped runtime restarts containers in place: the pod never fails, but the other ranks still hang."""
        alive = {name: values for name, values in members(90, 92).items() if "completion" not in name}
        restarted = pod("container_status_last_terminated_timestamp", 0, container="node")
        check(
            promtool,
            tmp_path,
            {**alive, restarted: "_x5 300x50"},
            [expected(self.name, "9m10s", None), expected(self.name, "12m10s", JOB_LABELS)],
        )
        both = {**alive, **{restarted.replace("node-0-0", f"node-0-{index}"): "_x5 300x50" for index in (0, 1)}}
        check(promtool, tmp_path, both, [expected(self.name, "12m10s", None)])

    def test_a_job_that_failed_as_a_whole_is_not_its_business(self, promtool: Path, tmp_path: Path) -> None:
        series = {name: values for name, values in members(5, 60).items() if "node-0-1" not in name}
        check(promtool, tmp_path, series, [expected(self.name, "30m10s", None)])

    def test_a_scrape_that_renames_labels_changes_nothing(self, promtool: Path, tmp_path: Path) -> None:
        renamed = {
            name.replace("{namespace=", '{namespace="monitoring", pod="ksm", exported_namespace=').replace(
                ', pod="llm', ', exported_pod="llm'
            ): values
            for name, values in members(5, 25).items()
        }
        check(promtool, tmp_path, renamed, [expected(self.name, "12m10s", JOB_LABELS)])


class TestAWaitForProgress:
    """All ranks are Ready in phase Resuming. A training that seldom reports progress may already run in that phase."""

    def series(self, *, resumes_from_minute: int, until_minute: int) -> dict[str, str]:
        """Starting, then Resuming, then Starting again: a rank was lost in Resuming."""
        before, during = resumes_from_minute - 1, until_minute - resumes_from_minute - 1
        after = 60 - until_minute
        starting, resuming = f"1x{before} 0x{during} 1x{after}", f"0x{before} 1x{during} 0x{after}"
        return {
            job("incident_start_timestamp_seconds"): "_x5 300x55",
            job("job_gpus"): "512x60",
            job("job_phase", phase="Starting"): starting,
            job("job_phase", phase="Resuming"): resuming,
            job("gpus_idle", reason="start"): starting.replace("1x", "512x"),
            job("gpus_idle", reason="resume"): resuming.replace("1x", "512x"),
        }

    @pytest.mark.parametrize("name", ["RecoveryOverdue", "RecoveryGPUsIdle"])
    def test_it_pages_for_neither_its_age_nor_its_gpus(self, name: str, promtool: Path, tmp_path: Path) -> None:
        series = self.series(resumes_from_minute=8, until_minute=50)
        ever = f"count_over_time({firing(name)}[40m])"
        check(promtool, tmp_path, series, [Expected(ever, "45m10s", {})])

    def test_it_resolves_the_page_of_the_restart_before_it(self, promtool: Path, tmp_path: Path) -> None:
        series = self.series(resumes_from_minute=20, until_minute=50)
        shown = [
            expected("RecoveryOverdue", "18m10s", JOB_LABELS),
            expected("RecoveryOverdue", "22m10s", None),
        ]
        check(promtool, tmp_path, series, shown)

    def test_a_rank_lost_in_it_makes_the_incident_overdue_again(self, promtool: Path, tmp_path: Path) -> None:
        series = self.series(resumes_from_minute=8, until_minute=25)
        shown = [
            expected("RecoveryOverdue", "24m10s", None),
            expected("RecoveryOverdue", "28m10s", JOB_LABELS),
        ]
        check(promtool, tmp_path, series, shown)

    def test_gpus_that_idle_for_another_reason_count_alone(self, promtool: Path, tmp_path: Path) -> None:
        """There is no open incident's age, so RecoveryOverdue does not explain it."""
        series = self.series(resumes_from_minute=8, until_minute=20)
        del series[job("incident_start_timestamp_seconds")]
        shown = [
            expected("RecoveryGPUsIdle", "28m10s", None),
            expected("RecoveryGPUsIdle", "33m10s", JOB_LABELS),
        ]
        check(promtool, tmp_path, series, shown)


class TestAGroupThatHangs:
    """Broken between incidents. In an incident the alerts about its phase count."""

    name = "RecoveryGroupBroken"
    hangs = job("job_standing", standing="Broken")
    idle = job("gpus_idle", reason="hung")
    healthy = job("job_phase", phase="Healthy")

    def test_one_without_gpus_hangs_too(self, promtool: Path, tmp_path: Path) -> None:
        series = {self.hangs: "1x60", self.idle: "0x60", self.healthy: "1x60"}
        check(promtool, tmp_path, series, [expected(self.name, "12m10s", JOB_LABELS)])

    def test_an_open_incident_is_not_its_business(self, promtool: Path, tmp_path: Path) -> None:
        held = {self.healthy: "0x60", job("job_phase", phase="Held"): "1x60"}
        series = {self.hangs: "1x60", self.idle: "64x60", **held}
        check(
            promtool,
            tmp_path,
            series,
            [expected(self.name, "12m10s", None), expected("RecoveryHeldGPUs", "12m10s", JOB_LABELS)],
        )

    def test_one_that_trains_or_of_which_it_is_unknown_is_not(self, promtool: Path, tmp_path: Path) -> None:
        for standing in ("Met", "Forming", "Unknown"):
            series = {job("job_standing", standing=standing): "1x60", self.idle: "0x60", self.healthy: "1x60"}
            check(promtool, tmp_path, series, [expected(self.name, "12m10s", None)])


class TestARendezvous:
    """That agents report, also outside of incidents. Restarts in place make rendezvous follow one another."""

    name = "RecoveryRendezvousStuck"
    joined, arrived, expected_ones = (
        job("rendezvous_participants", state=state) for state in ("joined", "arrived", "expected")
    )

    def series(self, minutes: int) -> dict[str, str]:
        """From minute 5 on."""
        return {
            self.joined: f"_x5 0x{minutes} stale",
            self.arrived: f"_x5 15x{minutes} stale",
            self.expected_ones: f"_x5 16x{minutes} stale",
        }

    def test_one_that_lasts_at_a_first_start_pages(self, promtool: Path, tmp_path: Path) -> None:
        shown = [
            expected(self.name, "9m10s", None),
            expected(self.name, "12m10s", JOB_LABELS),
            expected(self.name, "30m10s", None),
        ]
        check(promtool, tmp_path, self.series(19), shown)

    def test_one_that_joins_in_time_does_not(self, promtool: Path, tmp_path: Path) -> None:
        check(
            promtool, tmp_path, self.series(3), [Expected(f"count_over_time({firing(self.name)}[30m])", "30m10s", {})]
        )

    def test_many_that_are_interrupted_in_a_row_page(self, promtool: Path, tmp_path: Path) -> None:
        arrived = {**self.series(19), self.arrived: "_x5 " + "4 16 " * 9 + "stale"}
        check(promtool, tmp_path, arrived, [expected(self.name, "12m10s", JOB_LABELS)])

    def test_pods_that_have_not_started_are_another_alert(self, promtool: Path, tmp_path: Path) -> None:
        """Until minute 45. Then all pods run, and a rank does not join."""
        series = {**self.series(75), job("gpus_not_started", reason="ImagePull"): "_x5 120x40 stale"}
        shown = [
            expected(self.name, "40m10s", None),
            expected("RecoveryNotStarted", "40m10s", JOB_LABELS),
            expected(self.name, "55m10s", JOB_LABELS),
        ]
        check(promtool, tmp_path, series, shown)
