"""How long groups need to meet: measured by their agents, or by their joined probe, and not observed elsewhere."""

from datetime import datetime, timedelta
from typing import Any

import msgspec
import pytest

from recovery.core.diagnosis.agent_view import SILENT_AFTER
from recovery.core.model.agent_facts import AgentFacts, AgentRendezvous, AgentState, AgentSteps, EndedEpoch
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger import AttemptAction, Outcome, Phase
from recovery.telemetry.catalogue import of_fleet
from recovery.telemetry.observer import Telemetry
from tests.unit.telemetry.fleets import snapshot_of
from tests.unit.telemetry.world import BEGIN, KEY, Group, HeldStore, Scrape, SetClock, workload

SLOTS = 4
JOB = "job-1"
BARRIER, NEXT_BARRIER = "00000000000000b1", "00000000000000b2"
DURATION, SINCE_TRIGGER = "recovery_rendezvous_duration_seconds", "recovery_rendezvous_since_trigger_seconds"
PARTICIPANTS = "recovery_rendezvous_participants"


def at(seconds: float) -> datetime:
    return BEGIN + timedelta(seconds=seconds)


def met(epoch: int, first: float, joined: float | None = None) -> AgentRendezvous:
    return AgentRendezvous(epoch, at(first), None if joined is None else at(joined))


def ended(epoch: int, seconds: float) -> EndedEpoch:
    return EndedEpoch(epoch, slot=1, rank=1, exit_code=1, signal=None, ended_at=at(seconds))


class Agents:
    """The agents of the group. Each report is handed in as the exchange does it."""

    def __init__(self, clock: SetClock, metrics: Telemetry) -> None:
        self.clock = clock
        self.metrics = metrics
        self.sequence = 0

    def report(
        self,
        *rendezvous: AgentRendezvous,
        ends: tuple[EndedEpoch, ...] = (),
        barrier: str = BARRIER,
        job: str = JOB,
        **changes: object,
    ) -> None:
        self.sequence += 1
        now = self.clock.now()
        epoch = rendezvous[-1].epoch if rendezvous else 1
        facts = AgentFacts(
            job_uid=job,
            pod_uid="pod-0",
            barrier=barrier,
            epoch=epoch,
            state=AgentState.RUNNING,
            state_since=now,
            epoch_since=now,
            slots=SLOTS,
            received_at=now,
            sequence=self.sequence,
            ended=ends,
            meets=bool(rendezvous),
            rendezvous=rendezvous,
        )
        self.metrics.agents_reported(KEY, msgspec.structs.replace(facts, **changes))


@pytest.fixture
def agents(clock: SetClock, metrics: Telemetry, group: Group) -> Agents:
    """Of the job of `group`, which a reconcile has read."""
    assert group.ledger.incident is None
    reads_group(metrics)
    clock.seconds = 100
    return Agents(clock, metrics)


def reads_group(metrics: Telemetry, job: str = JOB, uid: str | None = None) -> Snapshot:
    found = snapshot_of(KEY, SLOTS)
    found = msgspec.structs.replace(
        found,
        workload=workload() if uid is None else workload(uid),
        jobs=tuple(msgspec.structs.replace(each, uid=job) for each in found.jobs),
        pods=tuple(msgspec.structs.replace(pod, job_uid=job) for pod in found.pods),
    )
    metrics.facts_read(KEY, found, None)
    return found


def observed(metrics: Telemetry) -> dict[tuple[str, str, str], tuple[float, Any]]:
    """Count and sum by source, outcome and cause. The usual causes are there from the start, at 0."""
    scrape = Scrape(metrics)
    found = {}
    for (name, pairs), count in scrape.samples.items():
        if name == f"{DURATION}_count" and count:
            labels = dict(pairs)
            seconds = scrape.value(f"{DURATION}_sum", **labels)
            assert seconds is not None
            found[labels["source"], labels["outcome"], labels["cause"]] = (count, pytest.approx(seconds))
    return found


def since_trigger(metrics: Telemetry) -> dict[str, float]:
    return Scrape(metrics).by(f"{SINCE_TRIGGER}_sum", "cause")


def participants(metrics: Telemetry) -> dict[str, float]:
    samples = Scrape(metrics).samples.items()
    return {dict(labels)["state"]: value for (name, labels), value in samples if name == PARTICIPANTS}


class TestWithoutAgent:
    """Phases of incidents, where a joined probe ends the phase Rendezvous."""

    def test_ready_pods_measure_nothing(self, clock: SetClock, metrics: Telemetry, group: Group) -> None:
        for phase in (Phase.STARTING, Phase.RENDEZVOUS):
            group.fails()
            group.attempt()
            group.enters(phase)
            clock.seconds += 7
            group.closes(source="ready")
            group.is_recorded()
        assert observed(metrics) == {}

    def test_a_joined_probe_measures_from_when_all_run_until_all_have_joined(
        self, clock: SetClock, metrics: Telemetry, group: Group
    ) -> None:
        group.fails(probe=True)
        group.attempt()
        group.enters(Phase.RENDEZVOUS)
        clock.seconds = 7
        group.closes(source="joined-probe")
        group.is_recorded()
        assert observed(metrics) == {("joined-probe", "Joined", "RecreateGroup"): (1, 7)}
        assert since_trigger(metrics) == {}

    def test_a_rendezvous_before_a_wait_for_progress_has_joined(
        self, clock: SetClock, metrics: Telemetry, group: Group
    ) -> None:
        group.fails(probe=True)
        group.attempt(AttemptAction.ADOPTED)
        group.enters(Phase.RENDEZVOUS)
        clock.seconds = 3
        group.enters(Phase.RESUMING)
        assert observed(metrics) == {("joined-probe", "Joined", "Adopted"): (1, 3)}
        clock.seconds = 60
        group.closes(source="progress")
        assert observed(metrics) == {("joined-probe", "Joined", "Adopted"): (1, 3)}

    @pytest.mark.parametrize("further", ["a loss", "the end of the job"])
    def test_what_ends_it_before_all_have_joined_interrupts_it(
        self, further: str, metrics: Telemetry, group: Group
    ) -> None:
        group.fails(probe=True)
        group.attempt()
        group.enters(Phase.RENDEZVOUS)
        if further == "a loss":
            group.attempt()
            group.enters(Phase.DECIDED)
        else:
            group.closes(Outcome.SUPERSEDED, source="")
        assert observed(metrics) == {("joined-probe", "Interrupted", "RecreateGroup"): (1, 0)}

    def test_ranks_that_had_joined_as_soon_as_they_ran_are_not_measured(self, metrics: Telemetry, group: Group) -> None:
        group.fails(probe=True)
        group.attempt()
        group.enters(Phase.STARTING)
        group.closes(source="joined-probe")
        assert observed(metrics) == {}


class TestByAgents:
    def test_a_first_start_is_observed_once_when_it_has_joined(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        agents.report(met(1, 98))
        assert observed(metrics) == {}
        clock.seconds = 120
        for _ in range(3):
            agents.report(met(1, 98, 110.5))
        assert observed(metrics) == {("agent", "Joined", "Start"): (1, 12.5)}
        assert since_trigger(metrics) == {}, "nothing has triggered it"

    def test_a_restart_in_place_follows_the_failure_that_ended_the_epoch_before(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        agents.report(met(1, 98, 99))
        clock.seconds = 200
        agents.report(met(1, 98, 99), met(2, 190.5, 191), ends=(ended(1, 190),))
        assert observed(metrics)["agent", "Joined", "RestartInPlace"] == (1, 0.5)
        assert since_trigger(metrics) == {"RestartInPlace": 1}

    def test_several_epochs_between_two_reports_are_each_observed(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        agents.report(met(1, 98))
        clock.seconds = 200
        ends = (ended(1, 110), ended(2, 121), ended(3, 130))
        latest = (met(1, 98, 101), met(2, 112), met(3, 123, 124), met(4, 131, 133))
        agents.report(*latest, ends=ends)
        agents.report(*latest, ends=ends)
        assert observed(metrics) == {
            ("agent", "Joined", "Start"): (1, 3),
            ("agent", "Interrupted", "RestartInPlace"): (1, 9),
            ("agent", "Joined", "RestartInPlace"): (2, 3),
        }
        assert since_trigger(metrics) == {"RestartInPlace": pytest.approx((124 - 121) + (133 - 130))}

    @pytest.mark.parametrize("action", [AttemptAction.RECREATE_GROUP, AttemptAction.ADOPTED, AttemptAction.SHRINK])
    def test_a_recreated_group_follows_the_attempt_in_the_ledger(
        self, action: AttemptAction, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        agents.report(met(1, 98, 99))
        clock.seconds = 200
        group.fails()
        group.attempt(action)
        group.attempt(AttemptAction.NONE)  # a pod that the new Job replaced
        group.closes()
        group.is_recorded()  # the pods were Ready before their ranks met
        clock.seconds = 240
        agents.report(met(1, 230, 233), barrier=NEXT_BARRIER, job="job-2")
        assert observed(metrics)["agent", "Joined", str(action)] == (1, 3)
        assert since_trigger(metrics) == {str(action): 33}

    def test_an_attempt_is_the_cause_of_one_rendezvous(
        self, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        """The user suspends the job and resumes it later, and no restart is made."""
        group.fails()
        group.attempt()
        group.closes()
        clock.seconds = 300
        agents.report(met(1, 130, 140))
        agents.report(met(1, 250, 251), barrier=NEXT_BARRIER)
        assert observed(metrics) == {
            ("agent", "Joined", "RecreateGroup"): (1, 10),
            ("agent", "Joined", "Start"): (1, 1),
        }

    def test_the_rendezvous_that_a_restart_of_the_group_ends_was_interrupted(
        self, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        agents.report(met(1, 98))
        clock.seconds = 160
        group.fails()
        group.attempt()
        agents.report(met(1, 98), state=AgentState.LEAVING)  # its pods are being deleted
        clock.seconds = 200
        agents.report(barrier=NEXT_BARRIER, job="job-2")
        agents.report(met(1, 198, 199), barrier=NEXT_BARRIER, job="job-2")
        agents.report(met(1, 98))  # late
        assert observed(metrics) == {
            ("agent", "Interrupted", "Start"): (1, 62),
            ("agent", "Joined", "RecreateGroup"): (1, 1),
        }

    def test_without_a_restart_it_ended_after_its_latest_report(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        agents.report(met(1, 98))
        clock.seconds = 150
        agents.report(met(1, 145), barrier=NEXT_BARRIER)
        assert observed(metrics) == {("agent", "Interrupted", "Start"): (1, 2)}

    def test_what_joined_before_this_process_led_is_not_observed_again(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        """The leader of before has observed it, and a sum over the replicas has both."""
        metrics.leadership_changed(leads=False)
        agents.report(met(1, 98, 99))
        metrics.leadership_changed(leads=True)
        clock.seconds = 130
        ends = (ended(1, 105),)
        agents.report(met(1, 98, 99), met(2, 106, 107), ends=ends)
        assert observed(metrics) == {("agent", "Joined", "RestartInPlace"): (1, 1)}

    def test_a_new_leader_reads_the_cause_in_the_ledger(
        self, clock: SetClock, store: HeldStore, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        group.fails()
        group.attempt(AttemptAction.REPLACE_NODE)
        store.snapshots[KEY] = reads_group(metrics)
        metrics.leadership_changed(leads=True)
        clock.seconds = 150
        agents.report(met(1, 140, 142))
        assert since_trigger(metrics) == {"ReplaceNode": 42}

    def test_another_workload_of_the_name_starts(
        self, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        group.fails()
        group.attempt()
        reads_group(metrics, "job-2", uid="22222222-3333")
        clock.seconds = 150
        agents.report(met(1, 140, 142), job="job-2", barrier=NEXT_BARRIER)
        assert set(observed(metrics)) == {("agent", "Joined", "Start")}

    def test_where_both_measure_the_agent_counts(
        self, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        group.fails(probe=True)
        group.attempt()
        group.enters(Phase.RENDEZVOUS)
        agents.report(met(1, 98))
        clock.seconds = 130
        agents.report(met(1, 120, 125), barrier=NEXT_BARRIER)
        group.closes(source="joined-probe")
        assert {source for source, _, _ in observed(metrics)} == {"agent"}

    def test_one_job_cannot_fill_the_histogram_of_all(
        self, clock: SetClock, metrics: Telemetry, agents: Agents
    ) -> None:
        def joined() -> float:
            return sum(count for count, _ in observed(metrics).values())

        clock.seconds = 1000
        for number in range(500):
            agents.report(met(1, 990, 995), barrier=f"{number:016x}")
        assert joined() == 60
        clock.seconds += 3600
        agents.report(met(1, 4590, 4595), barrier="f" * 16)
        assert joined() == 61

    def test_a_job_that_is_gone_is_forgotten(self, clock: SetClock, metrics: Telemetry, agents: Agents) -> None:
        agents.report(met(1, 98))
        metrics.workload_gone(KEY)
        clock.seconds = 150
        reads_group(metrics, "job-2")
        agents.report(met(1, 140, 141), barrier=NEXT_BARRIER, job="job-2")
        assert set(observed(metrics)) == {("agent", "Joined", "Start")}, "nothing was interrupted"

    def test_a_report_about_no_known_job_is_left_out(self, metrics: Telemetry, agents: Agents) -> None:
        facts = AgentFacts(JOB, "pod-0", BARRIER, 1, AgentState.RUNNING, at(0), at(0), SLOTS, at(100))
        facts = msgspec.structs.replace(facts, rendezvous=(met(1, 98, 100),))
        metrics.agents_reported(GroupKey("team-a", "unknown"), facts)
        assert observed(metrics) == {}

    def test_every_label_is_one_of_the_catalogue(
        self, clock: SetClock, metrics: Telemetry, agents: Agents, group: Group
    ) -> None:
        clock.seconds = 200
        agents.report(met(1, 110, 111), met(2, 122), met(3, 131, 132), ends=(ended(1, 120), ended(2, 130)))
        for source, outcome, cause in observed(metrics):
            values = of_fleet.RENDEZVOUS_DURATION.values_of
            assert source in values("source")
            assert outcome in values("outcome")
            assert cause in values("cause")
        assert set(since_trigger(metrics)) <= set(of_fleet.RENDEZVOUS_SINCE_TRIGGER.values_of("cause"))


class TestParticipants:
    @pytest.fixture
    def shown(self, store: HeldStore, metrics: Telemetry, agents: Agents) -> Agents:
        """The job exists in the store, so a scrape shows it."""
        store.snapshots[KEY] = reads_group(metrics)
        return agents

    def test_a_first_start_shows_who_has_joined_until_all_have(self, metrics: Telemetry, shown: Agents) -> None:
        shown.report(met(1, 98), arrived=3, joined=0)
        assert participants(metrics) == {"arrived": 3, "joined": 0, "expected": SLOTS}
        shown.report(met(1, 98, 100), arrived=SLOTS, joined=SLOTS)
        assert participants(metrics) == {}

    def test_in_an_incident_they_count_by_the_agents_from_the_first_arrival_on(
        self, metrics: Telemetry, shown: Agents, group: Group
    ) -> None:
        shown.report(met(1, 98, 99), arrived=SLOTS, joined=SLOTS)
        group.fails()
        group.attempt(AttemptAction.RESTART_IN_PLACE)
        group.enters(Phase.STARTING)
        shown.report(met(1, 98, 99), epoch=2, state=AgentState.STARTING, arrived=0, joined=0)
        assert participants(metrics) == {"arrived": 0, "joined": 0, "expected": SLOTS}

    @pytest.mark.parametrize("of_before", ["a Job that is gone", "agents that are silent"])
    def test_otherwise_ready_members_count(
        self, of_before: str, clock: SetClock, metrics: Telemetry, shown: Agents, group: Group
    ) -> None:
        shown.report(met(1, 98), arrived=1, joined=0)
        if of_before == "a Job that is gone":
            reads_group(metrics, "job-2")
        else:
            clock.seconds += SILENT_AFTER.total_seconds()
        assert participants(metrics) == {}
        group.fails()
        group.attempt()
        group.enters(Phase.STARTING)
        assert participants(metrics) == {"joined": 2, "expected": 2}

    def test_ranks_that_are_stopped_do_not_meet(self, metrics: Telemetry, shown: Agents) -> None:
        for state in (AgentState.ASKING, AgentState.STOPPING, AgentState.EXITING, AgentState.FINISHED):
            shown.report(met(1, 98), arrived=3, joined=0, state=state)
            assert participants(metrics) == {}

    def test_ranks_that_make_steps_wait_for_no_one(self, metrics: Telemetry, shown: Agents) -> None:
        """In some programs not every rank calls `init_process_group`."""
        shown.report(met(1, 98), arrived=3, joined=3, steps=AgentSteps(lowest=10, highest=12, at=at(97)))
        assert participants(metrics) == {}
