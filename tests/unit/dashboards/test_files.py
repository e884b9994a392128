"""The committed rules and dashboards are those that the code generates."""

from pathlib import Path

import pytest
import yaml

from recovery.dashboards.__main__ import generated
from recovery.dashboards.metrics_page import PAGE
from recovery.dashboards.prometheus_files import ALERTS_FILE, PROMETHEUS_RULE, RULES_FILE
from recovery.dashboards.rules import FLEET_METRICS, JOB_METRICS, recording_groups
from recovery.dashboards.series import fleet_series, job_series
from recovery.generated_files import REPOSITORY
from recovery.telemetry.catalogue import CATALOGUE


def test_what_is_committed_is_what_the_code_says() -> None:
    assert generated().drifted(REPOSITORY) == []


def test_a_changed_and_a_foreign_file_are_named(tmp_path: Path) -> None:
    generated().write(tmp_path)
    (tmp_path / RULES_FILE).write_text("groups: []\n")
    (tmp_path / "dashboards" / "rules" / "by-hand.yaml").touch()
    (tmp_path / PAGE).unlink()
    assert generated().drifted(tmp_path) == ["dashboards/rules/by-hand.yaml", RULES_FILE, PAGE]


def test_the_operator_gets_the_same_rules() -> None:
    files = generated().texts
    plain = [group for path in (RULES_FILE, ALERTS_FILE) for group in yaml.safe_load(files[path])["groups"]]
    assert yaml.safe_load(files[PROMETHEUS_RULE])["spec"]["groups"] == plain


def test_each_metric_of_the_leader_is_recorded_once() -> None:
    recorded = [rule.record for group in recording_groups() for rule in group.rules]
    assert len(recorded) == len(set(recorded))
    assert {job_series(name) for name in JOB_METRICS} | {fleet_series(name) for name in FLEET_METRICS} <= set(recorded)
    assert "recovery_gpus_idle" in JOB_METRICS
    assert "recovery_fleet_incidents_total" in FLEET_METRICS


def test_a_series_of_someone_else_is_refused() -> None:
    with pytest.raises(ValueError, match="job_gpus: a metric of ours has the prefix recovery_"):
        job_series("job_gpus")


def test_the_page_names_every_metric_and_has_no_long_lines() -> None:
    text = (REPOSITORY / PAGE).read_text()
    assert all(f"### `{record.name}`" in text for record in CATALOGUE)
    assert [line for line in text.splitlines() if len(line) > 120] == []
    assert f"({PAGE})" in (REPOSITORY / "README.md").read_text()
