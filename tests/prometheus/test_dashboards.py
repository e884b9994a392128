"""Every query of every panel, run on a real Prometheus that holds a recording, agrees with the training's trace.

Tolerances: the API's times are whole seconds, and recorded series have a sample every 30 s.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.dashboards.alerts import ALERTS
from recovery.dashboards.palette import PHASE_REASONS
from recovery.dashboards.rules import INTERVAL_SECONDS
from recovery.ports import NODES
from recovery.sim.trials.faults import FaultKind
from recovery.telemetry.catalogue import CATALOGUE, MetricRecord
from recovery.telemetry.catalogue.label_values import REFUSALS
from tests.cluster.controlplane.build import Toolbox
from tests.prometheus import scenario
from tests.prometheus.board_queries import BOARDS, Panel, Viewed, panels
from tests.prometheus.laid import Queries, Series, lay
from tests.prometheus.recorder import SCRAPE_SECONDS, Recording
from tests.prometheus.scenario import HAVE_AGENTS, JOBS, PLAN, record
from tests.prometheus.truth import Truth, gpus_of

JOB = "team-a/llm"
VISION = next(job for job in JOBS if job.name == "vision")
"""It has a joined probe."""
CHOSEN: Mapping[str, Mapping[str, str]] = {
    "fleet": {},
    "job": dict(zip(("namespace", "job_name"), JOB.split("/"), strict=True)),
}
_NO_INCIDENT = frozenset({FaultKind.PROCESS_KILL, FaultKind.USER_QUARANTINE})
_CLASSES = {
    FaultKind.POD_KILL: "PodDeleted",
    FaultKind.NODE_POWER_LOSS: "NodeLost",
    FaultKind.USER_RESTART: "Manual",
}
_CLASS_OF_SIGN = {"host-oom": "OutOfMemory", "xid": "HardwareFault", "traceback": "UserError"}
_SECOND_OF_EACH_GPU = sum(map(gpus_of, JOBS))
_IDLE_AT_END = sum(gpus_of(job) for job in JOBS if str(job) in {JOB, "team-a/vision"})


@dataclass(frozen=True)
class Answer:
    """The answer to one query: its series by their names in the legend."""

    named: Sequence[tuple[str, Series]]

    @property
    def last(self) -> dict[str, float]:
        return {name: series.last for name, series in self.named}

    @property
    def only(self) -> float:
        [(_, series)] = self.named
        return series.last

    @property
    def values(self) -> list[float]:
        return [value for _, series in self.named for _, value in series.points if not math.isnan(value)]


Check = Callable[[Truth, Sequence[Answer]], None]


def _is(expected: Callable[[Truth], float], within: float = 0.0) -> Check:
    def check(truth: Truth, answers: Sequence[Answer]) -> None:
        assert answers[0].only == pytest.approx(expected(truth), abs=within)

    return check


def _are(expected: Callable[[Truth], Mapping[str, float]], within: float = 0.0) -> Check:
    def check(truth: Truth, answers: Sequence[Answer]) -> None:
        assert answers[0].last == pytest.approx(dict(expected(truth)), abs=within)

    return check


def _sum_is(expected: Callable[[Truth], float], within: float = 0.0) -> Check:
    def check(truth: Truth, answers: Sequence[Answer]) -> None:
        assert sum(answers[0].last.values()) == pytest.approx(expected(truth), abs=within)

    return check


def _area_is(gpu_seconds: Callable[[Truth], float]) -> Check:
    """Compares the area under all lines. A gauge misses a span by up to a scrape and a recording at each end."""

    def check(truth: Truth, answers: Sequence[Answer]) -> None:
        blur = sum(span.gpus for span in truth.spans) * (INTERVAL_SECONDS + SCRAPE_SECONDS)
        assert sum(answers[0].values) * INTERVAL_SECONDS == pytest.approx(gpu_seconds(truth), abs=blur)

    return check


def _between(lowest: float, highest: float) -> Check:
    """For values that no trace knows: the load of a process."""

    def check(_truth: Truth, answers: Sequence[Answer]) -> None:
        values = [value for answer in answers for value in answer.values]
        assert values
        assert lowest <= min(values)
        assert max(values) <= highest

    return check


def _classes(job: str) -> list[str]:
    """The classes of the faults that the plan injected into the job, in order of time."""
    struck = [fault for fault in PLAN.faults if fault.job == job and fault.key.kind not in _NO_INCIDENT]
    in_time = sorted(struck, key=lambda fault: fault.at_seconds or 0.0)
    return [_CLASSES.get(fault.key.kind) or _CLASS_OF_SIGN[str(fault.sign)] for fault in in_time]


def _hours_by_class(truth: Truth) -> dict[str, float]:
    """For one job whose faults come one after another: each idle span is the consequence of one fault."""
    hours: dict[str, float] = {}
    for name, span in zip(_classes(JOB), truth.spans, strict=True):
        hours[name] = hours.get(name, 0.0) + span.counted_gpu_seconds / 3600
    return hours


def _oldest_seconds(truth: Truth) -> float:
    return (truth.recording.ends_at - min(span.begin for span in truth.open)).total_seconds()


def _ettr(truth: Truth) -> float:
    return 1 - truth.idle_gpu_hours / truth.held_gpu_hours


def _open_rows(truth: Truth, answers: Sequence[Answer]) -> None:
    """The table of open incidents: which job, since when, and how many GPUs."""
    jobs = {f"{series.labels['namespace']}/{series.labels['job_name']}": series.last for _, series in answers[0].named}
    ends_at = truth.recording.ends_at
    assert jobs == pytest.approx({span.job: (ends_at - span.begin).total_seconds() for span in truth.open}, abs=2)
    assert {len(answer.named) for answer in answers} == {len(truth.open)}


def _alerts(truth: Truth, answers: Sequence[Answer]) -> None:
    """Each job that waits with all GPUs for longer than any threshold has an alert, and none that another explains."""
    found = {(series.labels.get("job_name", ""), series.labels["alertname"]) for _, series in answers[0].named}
    assert {span.job.split("/")[1] for span in truth.open} <= {job for job, _ in found}
    explained_by = {alert.name: alert.explained_by for alert in ALERTS}
    assert [(job, name) for job, name in found for other in explained_by[name] if (job, other) in found] == []


def _incident_time(truth: Truth) -> float:
    return sum((span.end - span.begin).total_seconds() for span in truth.spans)


def _phases(truth: Truth, answers: Sequence[Answer]) -> None:
    """A job is in a phase of an incident for as long as its training was stopped."""
    busy = sum(value > 0 for value in answers[0].values) * INTERVAL_SECONDS
    assert busy == pytest.approx(_incident_time(truth), abs=2 * INTERVAL_SECONDS * len(truth.spans))


def _quarantined(truth: Truth) -> dict[str, float]:
    marked = [
        node
        for node in truth.recording.evidence.server.objects(NODES)
        if any(taint["key"] == QUARANTINE_TAINT for taint in node["spec"].get("taints") or ())
    ]
    by_person = sum(fault.key.kind is FaultKind.USER_QUARANTINE for fault in PLAN.faults)
    return {"by controller": len(marked) - by_person, "by person": by_person}


def _nodes(truth: Truth, answers: Sequence[Answer]) -> None:
    assert answers[0].last == _quarantined(truth)
    percent = PLAN.config["quarantine"]["maxPercent"]
    assert answers[1].only == scenario.NODES * percent // 100


def _restart_budget(truth: Truth, answers: Sequence[Answer]) -> None:
    limit = truth.selected[0].policy["budget"]["limit"]  # type: ignore[index]
    assert answers[1].last == {f"{JOB} limit": limit}
    assert answers[0].last == {f"{JOB} left": limit - _charged()}


def _charged() -> int:
    return sum(name != "Manual" for name in _classes(JOB))


def _participants(_truth: Truth, answers: Sequence[Answer]) -> None:
    """The ranks of all but one member wait, so none has joined."""
    pods = JOBS[0].pods
    assert answers[0].last == {f"{JOB} arrived": pods - 1, f"{JOB} expected": pods, f"{JOB} joined": 0}


def _rendezvous(truth: Truth, answers: Sequence[Answer]) -> None:
    """Each Job of a group has met once. An agent measures the first start too."""
    wanted = Counter({"RecreateGroup: Joined (joined-probe)": truth.jobs_that_met(VISION) - 1})
    for job in HAVE_AGENTS:
        restarts = truth.jobs_that_met(job) - 1
        wanted.update({"Start: Joined (agent)": 1, "RecreateGroup: Joined (agent)": restarts})
    assert answers[0].last == wanted


def _times_of_rendezvous(_truth: Truth, answers: Sequence[Answer]) -> None:
    """In the model ranks meet at once when the last process has started: seconds after the first."""
    wanted = ("Start {} (agent)", "RecreateGroup {} (agent)", "RecreateGroup {} (joined-probe)")
    assert set(answers[0].last) == {each.format(quantile) for each in wanted for quantile in ("p50", "p95")}
    assert all(0 < seconds <= 5 for seconds in answers[0].last.values())


def _since_trigger(truth: Truth, answers: Sequence[Answer]) -> None:
    """A restart takes longer than the rendezvous at its end. The longest waits for a node that has no power."""
    longest = max((span.end - span.begin).total_seconds() for span in truth.of(JOB).spans)
    assert set(answers[0].last) == {"RecreateGroup p50", "RecreateGroup p95"}
    assert all(1 < seconds <= 2 * longest for seconds in answers[0].last.values()), "a bucket ends at twice its begin"


def _suspected(truth: Truth, answers: Sequence[Answer]) -> None:
    assert len(answers[0].named) == sum(name == "HardwareFault" for name in _classes(JOB))
    assert set(answers[0].last.values()) == {1.0}


def _recovered(truth: Truth, answers: Sequence[Answer]) -> None:
    """Every closed incident has one outcome; open ones have none."""
    assert sum(answers[0].last.values()) >= len(truth.spans) - len(truth.open)


def _reviewed(truth: Truth) -> dict[str, float]:
    """Every process that lived long enough has answered once."""
    processes = len(truth.recording.evidence.processes)
    return {name: processes * scenario.REVIEWS.count(name) for name in ("allowed", "error", "refused", "warned")}


def _leaders(truth: Truth, answers: Sequence[Answer]) -> None:
    assert sorted(answers[0].last.values()) == [0.0, 1.0]


def _requests(truth: Truth, answers: Sequence[Answer]) -> None:
    made = sum(record.at <= truth.recording.ends_at for record in truth.recording.evidence.requests)
    assert sum(answers[0].values) * INTERVAL_SECONDS == pytest.approx(made, rel=0.05)


_WHOLE_SECONDS_HOURS = 2 * _SECOND_OF_EACH_GPU * len(PLAN.faults) / 3600 / 4
_SLACK_HOURS = _WHOLE_SECONDS_HOURS + _IDLE_AT_END * INTERVAL_SECONDS / 3600
"""Whole seconds at the ends of incidents, and the time of open incidents after the last recorded sample."""
_LOST = _sum_is(lambda truth: truth.counted_gpu_hours, within=_SLACK_HOURS)
_IDLE_NOW = _is(lambda truth: truth.idle_gpus)
_COMMON: Mapping[str, Check] = {
    "GPUs idle now": _IDLE_NOW,
    "Idle GPUs by phase": _area_is(lambda truth: truth.idle_gpu_hours * 3600),
    "Effective training time": _is(_ettr, within=0.01),
    "GPU time lost": _is(lambda truth: truth.counted_gpu_hours, within=_SLACK_HOURS),
    "GPU time given back": _is(lambda _: 0.0),
    "GPU time of drills": _is(lambda _: 0.0),
    "GPU-hours lost by phase": _LOST,
    "Badput by type": _LOST,
    "Suspected nodes, whole cluster": _suspected,
}
_FLEET: Mapping[str, Check] = {
    **_COMMON,
    "Open incidents": _is(lambda truth: len(truth.open)),
    "Broken groups": _is(lambda _: 0.0),
    "Oldest open incident": _is(_oldest_seconds, within=2),
    "Share of GPUs idle": _is(lambda truth: truth.idle_gpus / sum(map(gpus_of, truth.selected)), within=1e-9),
    "Jobs under recovery policies": _is(lambda truth: len(truth.selected)),
    "Recovery acts": _is(lambda _: 0.0),
    "Jobs with an open incident": _open_rows,
    "Alerts that fire": _alerts,
    "Phases of jobs with incidents": _phases,
    "Incidents by cause": _sum_is(lambda truth: len(truth.spans), within=1),
    "How incidents ended, whole cluster": _recovered,
    "Who handled incidents, whole cluster": _recovered,
    "Typical time of an incident, by handling": _between(1, 3600),
    "Effective training time of the last hour, whole cluster": _between(0.5, 1),
    "GPU-hours lost by cause": _LOST,
    "Effective training time of the last hour, by job": _between(0.2, 1),
    "GPU-hours lost by job": _are(
        lambda truth: {
            job: sum(span.counted_gpu_seconds for span in truth.spans if span.job == job) / 3600
            for job in {span.job for span in truth.spans}
        },
        within=_SLACK_HOURS,
    ),
    "Members missing from a rendezvous": _are(lambda _: {JOB: 1}),
    "How rendezvous ended, whole cluster": _rendezvous,
    "Time of a rendezvous, whole cluster": _times_of_rendezvous,
    "From the trigger until all have joined, whole cluster": _since_trigger,
    "Quarantined nodes, whole cluster": _nodes,
    "Quarantines refused, whole cluster": _are(
        # One log names a GPU fault, and only that message blames the node.
        lambda _: {**dict.fromkeys(REFUSALS, 0), "unconfirmed": 1}
    ),
    "GPUs of groups that never started": _are(lambda _: {"team-b/late: NoneKnown": gpus_of(JOBS[-1])}),
    "Jobs by mode, whole cluster": _are(
        lambda truth: Counter(str((job.policy or {"mode": "None"})["mode"]).lower() for job in truth.jobs)
    ),
    "Unprotected jobs, whole cluster": _are(lambda _: {"Held": 1, "NoPolicy": 1, "Observe": 1}),
    "Leader": _leaders,
    "Versions": _are(lambda _: {"trial": PLAN.replicas}),
    "Changes of leader": _is(lambda _: 1),
    "Missing permissions": _is(lambda _: 1),
    "Reconciles: slowest of a hundred": _between(0, 1),
    "Queue: groups that are due": _between(0, len(JOBS)),
    "Losses until their incident: slowest of a hundred": _between(0, 2.5),
    "Failed reconciles": _sum_is(lambda truth: len(truth.recording.evidence.failed_reconciles)),
    "Event loop lag: slowest of a hundred": _between(0, 0.001),
    "CPU": _between(0, 64),
    "Memory": _between(2**20, 2**35),
    "API requests by answer": _requests,
    "API requests: slowest of a hundred": _between(0, 1),
    "Age of the last watch event": _between(0, 120),
    "Undecodable objects": _is(lambda _: 0),
    "Certificate expires in": _is(lambda truth: scenario.CERTIFICATE_DAYS * 86400 - truth.seconds, within=1),
    "Admission webhooks": _is(lambda _: 1),
    "Admission answers": _are(_reviewed, within=0.5),
}
_OF_JOB: Mapping[str, Check] = {
    **_COMMON,
    "Phase": _is(lambda _: list(PHASE_REASONS).index("Starting") + 1),
    "Standing": _between(0, 2),
    "Open for": _is(_oldest_seconds, within=2),
    "GPUs of the job": _is(lambda truth: gpus_of(truth.selected[0])),
    "Progress": _is(lambda truth: [ratio for at, ratio in truth.reports(JOBS[0]) if at <= truth.recording.ends_at][-1]),
    "Restarts left": _is(lambda truth: truth.selected[0].policy["budget"]["limit"] - _charged()),  # type: ignore[index]
    "Open incident": _open_rows,
    "Alerts that fire for these jobs": _alerts,
    "Phases": _phases,
    "Incidents by cause": _are(lambda _: Counter(_classes(JOB))),
    "Phases of the last incident": _between(0, 60),
    "Restart budget": _restart_budget,
    "Drills": _is(lambda _: 0.0),
    "Effective training time of the last hour": _between(0.5, 1),
    "GPU-hours lost by cause": _are(_hours_by_class, within=_SLACK_HOURS),
    "Members of the group during a rendezvous": _participants,
    "Time with fewer nodes": _is(lambda _: 0.0),
    "GPU time gained": _is(lambda _: 0.0),
    "Policy": _is(lambda _: 1),
    "Last proven": _between(0, 7200),
    "Controller": _is(lambda _: 0),
}
EXPECTED = {"fleet": _FLEET, "job": _OF_JOB}
SILENT = {
    "fleet: Drills": "no one runs a drill",
    "job: GPUs of groups that never started": "the job has started",
    "job: Nodes of a smaller group": "the job never goes on with fewer nodes",
}
"""Panels that must be empty in this recording, with the reason."""
PANELS = [panel for board in BOARDS for panel in panels(board)]


@pytest.fixture(scope="module")
def recording() -> Recording:
    return record()


@pytest.fixture(scope="module", params=[True, False], ids=["honorLabels", "exported_namespace"])
def server(
    request: pytest.FixtureRequest, recording: Recording, toolbox: Toolbox, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Queries]:
    """A Prometheus with the recording, once as a monitor with honorLabels scrapes it, and once without."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    programs = {"prometheus": toolbox.binary("prometheus"), "promtool": toolbox.binary("promtool")}
    laid = lay(recording, **programs, folder=folder, honors_labels=request.param)
    with laid.served() as queries:
        yield queries


def test_every_panel_has_an_expectation() -> None:
    known = {f"{board}: {title}" for board, checks in EXPECTED.items() for title in checks}
    assert known | SILENT.keys() == {str(panel) for panel in PANELS}


@pytest.mark.parametrize("panel", PANELS, ids=str)
def test_a_panel_says_what_the_trace_says(panel: Panel, server: Queries, recording: Recording) -> None:
    view = Viewed(recording.evidence.began_at, recording.ends_at, CHOSEN[panel.board])
    answers = [
        Answer([(target.name(series), series) for series in target.answered(server, view)]) for target in panel.targets
    ]
    if str(panel) in SILENT:
        assert not any(answer.named for answer in answers), SILENT[str(panel)]
        assert panel.body["fieldConfig"]["defaults"]["noValue"]
        return
    for answer in answers:
        assert answer.values, "empty, or nothing but NaN"
    truth = Truth(recording)
    EXPECTED[panel.board][panel.title](truth if panel.board == "fleet" else truth.of(JOB), answers)


_COMPARISON = re.compile(r" (==|!=|>=|<=|<|>) ")
_NOT_RECORDED = frozenset(
    {
        "recovery_watch_restarts_total",
        "recovery_group_nodes",
        "recovery_group_nodes_wanted",
        "recovery_group_reduced_start_timestamp_seconds",
        "recovery_group_failed_growths",
        "recovery_job_crash_loop",
        "recovery_proof_valid",
        "recovery_agent_reports_total",
        "recovery_agent_jobs",
        "recovery_agent_report_seconds",
        "recovery_agent_certificate_expiry_timestamp_seconds",
    }
)
"""In the recording no watch ends early, no group continues with fewer nodes, none is in a crash loop, no policy asks
for a proof, and no endpoint answers the agents."""


@pytest.mark.parametrize("record", CATALOGUE, ids=lambda record: str(record.name))
def test_every_example_query_of_the_metrics_page_finds_something(
    record: MetricRecord, server: Queries, recording: Recording
) -> None:
    """The test does not ask whether a comparison holds, but that its sides have labels in common."""
    asked = _COMPARISON.sub(r" \1 bool ", record.example)
    found = bool(server.instant(asked, recording.ends_at))
    assert found == (record.name not in _NOT_RECORDED), asked
