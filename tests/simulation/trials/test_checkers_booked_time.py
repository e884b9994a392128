"""The account of each second of a trial, by name: with facts that belong to it, and facts just outside."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from recovery.core.decision.resuming import OUTLIVES_IN
from recovery.core.model.ledger import Ledger, Outcome, Phase, PhaseSpan
from recovery.core.model.reason import Reason
from recovery.core.model.step import Step, StepType
from recovery.ports import JOBS, PODS
from recovery.scenario.modelled_job import Marking, Sidecar
from recovery.sim.training.rounds import Round, TrainingOutcome
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.trials.checkers.booked_time import LostTimeBooked
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.lost_time import Account
from recovery.sim.trials.trial_evidence import Happening, ProcessLife
from tests.simulation.trials.checker_case import CONTROLLER, KEY, Case, at, closed, in_phase, opened, with_incident


class Books:
    """A trial whose training stops and meets again at given times, and what its incident books."""

    def __init__(self, *rounds: tuple[float, float | None]) -> None:
        self.case = Case(LostTimeBooked)
        made = [
            Round("team-a/llm", ("job-1",), 2, at(met), 0, 1.0, None, None if ended is None else at(ended))
            for met, ended in rounds
        ]
        for each in made:
            each.outcome = TrainingOutcome.BROKEN if each.ended_at is not None else None
        self.case.evidence.rounds = lambda training: made

    def loses(self, seconds: float) -> "Books":
        """A pod is deleted: a sign that has a date."""
        self.case.now = seconds
        self.case.lose_a_pod()
        return self

    def writes(self, seconds: float, ledger: Ledger) -> "Books":
        self.case.now = seconds
        self.case.ledger(ledger)
        return self

    def hits(
        self,
        kind: FaultKind,
        since: float,
        seconds: float = 0.0,
        *,
        job: str = str(KEY),
        pods_more: int = 0,
        actor: str = "world",
        pod_uids: tuple[str, ...] = (),
    ) -> "Books":
        key = FaultKey(actor, len(self.case.evidence.happenings), kind)
        fault = TrialFault(key, seconds, since, job=job, pods_more=pods_more)
        self.case.evidence.happenings.append(Happening(fault, at(since), at(since + seconds), str(kind), pod_uids))
        return self

    def starts(self, seconds: float, pod_uid: str) -> "Books":
        """A process of the training starts in that pod."""
        kind = EventKind.PROCESS_STARTED
        record = TraceRecord(at=at(seconds), kind=kind, training=str(KEY), job_uid="job-1", step=0, pod_uid=pod_uid)
        self.case.evidence.trace.add(record)
        return self

    def accounts(self) -> Mapping[str, float]:
        """Seconds by account, when the trial is over."""
        self.case.end()
        return {name: round(seconds, 3) for name, seconds in self.case.evidence.lost_seconds.items()}

    @property
    def found(self) -> list[str]:
        return self.case.found


def observed(since: float, until: float, **terms: Any) -> Ledger:
    """An incident that ends because all ranks run again, without a restart."""
    return closed(opened(since, **terms), until, Outcome.OBSERVED, Reason.LEFT_TO_KUBERNETES)


def stopped(*, since: float = 1000.4, until: float = 1020.0) -> Books:
    """A training that stops for some time."""
    return Books((20, since), (until, None))


def test_an_incident_from_the_loss_to_the_meeting_books_all_of_it() -> None:
    books = stopped().loses(1000).writes(1001, opened(1000)).writes(1021, closed(opened(1000), 1020.9))
    assert books.accounts() == {Account.BOOKED: 19.6, Account.EARLY: 0.4, Account.LATE: 0.9}
    assert books.found == []


# --- time in which the training was stopped --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("class_", "account"), [("Manual", Account.ASKED), ("PodDeleted", Account.UNEXPLAINED)], ids=["asked", "not asked"]
)
def test_a_stop_before_a_person_asked_for_a_restart(class_: str, account: str) -> None:
    asked = with_incident(opened(1010), disruption_class=class_)
    books = stopped().loses(1000).writes(1010.1, asked).writes(1021, closed(asked, 1020.9))
    assert books.accounts()[account] == 9.6
    assert (books.found == []) == (account == Account.ASKED)


@pytest.mark.parametrize(
    ("frozen_at", "account"), [(1002.4, Account.UNWATCHED), (1002.5, Account.UNEXPLAINED)], ids=["all but 2 s", "not"]
)
def test_a_stop_that_was_over_before_a_controller_could_act(frozen_at: float, account: str) -> None:
    books = stopped().loses(1000).hits(FaultKind.PROCESS_FREEZE, frozen_at, 60, actor="controller-0")
    assert books.accounts() == {account: 19.6}
    assert (books.found == []) == (account == Account.UNWATCHED)


def all_gone(*, survivor: bool = False) -> Books:
    """All pods are deleted within two seconds of the stop. There is no room for new ones until 300 s later."""
    books = stopped(until=1300)
    for uid in ("pod-1", "pod-2"):
        books.starts(20, uid)
    for name in ("llm-node-0-0",) if survivor else ("llm-node-0-0", "llm-node-0-1"):
        books.case.now = 1000
        books.case.delete(PODS, name)
        books.case.now = 1002
        books.case.drop(PODS, name)
    return books


@pytest.mark.parametrize(
    ("survivor", "lives_until", "account"),
    [
        (False, 1000.4, Account.UNWATCHED),
        (True, 1000.4, Account.UNEXPLAINED),
        (False, 1002.1, Account.UNEXPLAINED),
    ],
    ids=["nothing is left", "a rank that hangs", "a process that remembers"],
)
def test_a_stop_of_which_nothing_is_left_when_a_controller_leads_again(
    survivor: bool, lives_until: float, account: str
) -> None:
    """Seed 6494: a drain takes all nodes while both controllers are dead. The pods they find have never started."""
    books = all_gone(survivor=survivor).hits(FaultKind.PROCESS_KILL, 1000.4, 34, actor="controller-0")
    books.case.evidence.processes.append(ProcessLife("controller-0", 0, at(0), at(lives_until), "killed"))
    assert books.accounts()[account] == pytest.approx(299.6)
    assert (books.found == []) == (account == Account.UNWATCHED)


@pytest.mark.parametrize(("whole", "account"), [(False, Account.INCOMPLETE), (True, Account.UNEXPLAINED)])
def test_a_stop_of_ranks_that_train_without_one_that_a_resize_has_added(whole: bool, account: str) -> None:
    """Seed 6265: there is no room for the new rank, and the others do not wait for it."""
    books = Books((900, 1000.4), (1020, None)).hits(FaultKind.USER_RESIZE, 800, pods_more=1)
    books.case.evidence.rounds(str(KEY))[0].size = 1
    books.case.now = 850
    if not whole:
        books.case.job("job-1", parallelism=3, completions=3)
    books.loses(1000)
    assert books.accounts()[account] == pytest.approx(19.6)
    assert (books.found == []) == (account == Account.INCOMPLETE)


def test_what_another_incident_is_about_was_seen() -> None:
    frozen = stopped().loses(1000).hits(FaultKind.PROCESS_FREEZE, 1000.4, 19.0, actor="controller-0")
    books = frozen.writes(1015, opened(1015)).writes(1021, closed(opened(1015), 1020.9))
    assert books.accounts()[Account.UNEXPLAINED] == 14.6


@pytest.mark.parametrize(
    ("marking", "account"), [(Marking.NOTHING, Account.UNMARKED), (Marking.ACCELERATORS, Account.UNEXPLAINED)]
)
def test_a_stop_of_a_job_of_which_no_container_is_known_to_train(marking: Marking, account: str) -> None:
    books = stopped().loses(1000)
    job = msgspec.structs.replace(books.case.evidence.jobs[KEY], marking=marking)
    books.case.evidence.jobs = {KEY: job}
    assert books.accounts() == {account: 19.6}


# --- time that an incident books although the training ran -----------------------------------------------------------


def never_stopped() -> Books:
    """An incident of 100 s during which the training keeps running."""
    books = Books((20, None)).writes(1001, opened(1000))
    return books.writes(1101, observed(1000, 1100))


@pytest.mark.parametrize("kind", [FaultKind.NODE_PARTITION, FaultKind.POD_STUCK])
def test_processes_that_outlive_their_pod(kind: FaultKind) -> None:
    books = never_stopped().hits(kind, 1000.9, 90)
    assert books.accounts() == {Account.LIVED: 100.0}
    assert books.found == []


@pytest.mark.parametrize(("affected", "account"), [("mine", Account.LIVED), ("theirs", Account.NEVER)])
def test_processes_on_a_node_that_was_cut_off_for_another_job(affected: str, account: str) -> None:
    """Seeds 4079 and 6174: pods of two jobs run on that node. The API shows a loss of each, but both keep training."""
    books = never_stopped().starts(20, "mine")
    books.hits(FaultKind.NODE_PARTITION, 1000.9, 90, job="team-a/other", pod_uids=(affected,))
    assert books.accounts() == {account: 100.0}
    assert (books.found == []) == (account == Account.LIVED)


@pytest.mark.parametrize(
    ("kind", "since", "seconds", "job"),
    [
        (FaultKind.NODE_POWER_LOSS, 990, 200, str(KEY)),
        (FaultKind.NODE_PARTITION, 900, 100, str(KEY)),
        (FaultKind.NODE_PARTITION, 1001.1, 90, str(KEY)),
        (FaultKind.NODE_PARTITION, 990, 200, "team-a/other"),
    ],
    ids=["ends them", "over before", "begins later", "another job's"],
)
def test_no_process_outlives_its_pod(kind: FaultKind, since: float, seconds: float, job: str) -> None:
    books = never_stopped().hits(kind, since, seconds, job=job)
    assert books.accounts() == {Account.NEVER: 100.0}
    assert books.found == ["100.000 s: the training did not stop (incident workload-1)"]


@pytest.mark.parametrize(("lasts", "over"), [(85.0, False), (84.0, True)])
def test_an_incident_about_them_ends_soon_after_they_can_be_ended(lasts: float, over: bool) -> None:
    books = never_stopped().hits(FaultKind.NODE_PARTITION, 1000, lasts)
    assert set(books.accounts()) == {Account.LIVED}
    assert bool(books.found) is over


@pytest.mark.parametrize(
    ("met", "until", "account", "over"),
    [(1800, 1815, Account.NOT_YET, False), (1800, 1816, Account.NOT_YET, True), (999, 1815, Account.NEVER, True)],
)
def test_ranks_that_have_run_at_once_and_not_met(met: float, until: float, account: str, over: bool) -> None:
    """Seed 3786: a user has made the job smaller before it first trained, and its ranks wait for one more."""
    books = Books((met, None))
    books.writes(1001, opened(1000)).writes(until, observed(1000, until))
    assert books.accounts() == {account: until - 1000}
    assert bool(books.found) is over


@pytest.mark.parametrize(
    ("marking", "phase", "account"),
    [
        (Marking.NOTHING, "Pending", Account.UNSEEN),
        (Marking.NOTHING, "Running", Account.NEVER),
        (Marking.ACCELERATORS, "Pending", Account.NEVER),
    ],
)
def test_a_training_that_seems_not_to_have_started(marking: Marking, phase: str, account: str) -> None:
    """Seed 1953: the image of a sidecar is never pulled, and nothing shows which container trains."""
    books = Books((920, None))
    case = books.case
    case.evidence.rounds(str(KEY))[0].job_uids = ("job-2",)
    job = msgspec.structs.replace(case.evidence.jobs[KEY], marking=marking, sidecars=(Sidecar.SHIPPER,))
    case.evidence.jobs = {KEY: job}
    case.now = 900
    case.drop(JOBS, "llm-node-0", by=CONTROLLER)
    case.job("job-2")
    for index in (0, 1):
        case.pod(index, "job-2", name=f"llm-node-0-{index}-x")
        case.put(PODS, f"llm-node-0-{index}-x", {"status": {"phase": phase}}, by="kubelet")
    books.writes(1001, opened(1000)).writes(1901, observed(1000, 1900))
    assert books.accounts() == {account: 900.0}
    assert any(Account.NEVER in sentence for sentence in books.found) == (account == Account.NEVER)


def test_processes_that_live_on_until_the_training_stops_and_after_it_met_again() -> None:
    books = Books((20, 1050), (1100, 1150), (1200, None)).hits(FaultKind.NODE_PARTITION, 990, 300)
    books.writes(1001, opened(1000)).writes(1251, observed(1000, 1250))
    assert books.accounts() == {Account.BOOKED: 100.0, Account.LIVED: 150.0}


@pytest.mark.parametrize(
    ("cut_off_at", "account"), [(1115, Account.LIVED), (1115.1, Account.BETWEEN)], ids=["before it can end", "later"]
)
def test_a_silent_node_keeps_an_incident_open_that_had_no_time_to_end(cut_off_at: float, account: str) -> None:
    """Seed 3849: the node's pod is not Ready, so the group does not run whole, even if its processes train."""
    books = Books((20, 1000), (1100, 1500), (1600, None)).hits(FaultKind.NODE_PARTITION, cut_off_at, 400)
    books.writes(1001, opened(1000)).writes(1601, observed(1000, 1600))
    assert books.accounts() == {Account.BOOKED: 200.0, account: 400.0}
    assert (books.found == []) == (account == Account.LIVED)


def test_the_end_of_a_recovery_is_not_put_off_by_them() -> None:
    books = Books((20, 1000), (1100, None)).hits(FaultKind.NODE_PARTITION, 990, 300)
    books.writes(1001, opened(1000)).writes(1151, closed(opened(1000), 1150))
    assert books.accounts() == {Account.BOOKED: 100.0, Account.LATE: 50.0}
    assert books.found == ["50.000 s: trains before the incident ends (incident workload-1)"]


def test_a_rank_that_a_resize_has_added() -> None:
    books = never_stopped().hits(FaultKind.USER_RESIZE, 900, pods_more=1)
    assert books.accounts() == {Account.ADDED: 100.0}
    assert books.found == []


def test_a_rank_that_was_added_before_the_others_met_without_it() -> None:
    """The ranks read the size of the training from a setting of their own, so the resize does not affect them."""
    books = never_stopped().hits(FaultKind.USER_RESIZE, 10, pods_more=1)
    books.case.evidence.rounds(str(KEY))[0].size = 1
    assert books.accounts() == {Account.ADDED: 100.0}


@pytest.mark.parametrize(
    ("since", "pods_more", "job"),
    [(900, -1, str(KEY)), (10, 1, str(KEY)), (1001.1, 1, str(KEY)), (900, 1, "team-a/other")],
    ids=["made smaller", "before the ranks met", "later", "another job's"],
)
def test_no_rank_was_added(since: float, pods_more: int, job: str) -> None:
    books = never_stopped().hits(FaultKind.USER_RESIZE, since, pods_more=pods_more, job=job)
    assert books.accounts() == {Account.NEVER: 100.0}
    assert books.found == ["100.000 s: the training did not stop (incident workload-1)"]


@pytest.mark.parametrize(("until", "over"), [(1615, False), (1616, True)])
def test_a_rank_that_was_added_is_made_again_within_the_back_off_of_its_job(until: float, over: bool) -> None:
    books = Books((20, None)).hits(FaultKind.USER_RESIZE, 900, pods_more=1)
    books.writes(1001, opened(1000)).writes(until, observed(1000, until))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(
    ("failed_at", "found"), [(1500, []), (2000, ["700.000 s: a rank that a resize has added failed"])]
)
def test_no_incident_about_an_added_rank_ends_while_it_is_not_ready(failed_at: float, found: list[str]) -> None:
    """Seed 2138: the added rank is never taken in, so its probe never succeeds."""
    books = Books((20, None)).hits(FaultKind.USER_RESIZE, 900, pods_more=1)
    books.writes(1300, opened(1300))
    books.case.now = failed_at
    books.case.fails(1, 1)
    books.writes(2000, observed(1300, 2000))
    books.accounts()
    assert [sentence.partition(" (")[0] for sentence in books.found] == found


@pytest.mark.parametrize(("reason", "found"), [(Reason.USER_RESIZED, 0), (Reason.RULE_FAIL_JOB, 1)])
def test_nor_while_the_group_is_held_for_the_size_until_a_person_retries(reason: Reason, found: int) -> None:
    """Seed 2350: the ledger no longer says why the group was held."""
    books = Books((20, None)).hits(FaultKind.USER_RESIZE, 900, pods_more=1)
    held = with_incident(in_phase(opened(1000), Phase.HELD), step=Step(StepType.HELD, reason=reason))
    retried = with_incident(held, step=Step(StepType.RESTARTING))
    books.writes(1001, held).writes(3000, retried)
    books.writes(3001, closed(retried, 3001, Outcome.HELD, Reason.RUNS_WHOLE_AGAIN))
    books.accounts()
    assert len(books.found) == found


def test_an_added_rank_may_keep_a_hold_open_that_waits_for_the_group_to_outlive_it() -> None:
    """Seed 3113."""
    books = Books((20, 1000), (1100, None)).hits(FaultKind.USER_RESIZE, 10, pods_more=1)
    books.case.evidence.rounds(str(KEY))[1].size = 1
    held = with_incident(in_phase(opened(1000), Phase.HELD), step=Step(StepType.HELD, reason=Reason.USER_RESIZED))
    books.writes(1001, held)
    assert books.accounts() == {Account.BOOKED: 100.0, Account.ADDED: 6100.0}
    assert books.found == []


@pytest.mark.parametrize(
    ("jumped_at", "account"), [(1050, Account.CLOCK), (1500, Account.NEVER)], ids=["meanwhile", "much later"]
)
def test_a_wrong_clock_of_the_controllers(jumped_at: float, account: str) -> None:
    books = never_stopped().hits(FaultKind.CLOCK_JUMP, jumped_at, 20, actor="controller-0")
    assert account in books.accounts()


def held(since: float, *, verdict: bool) -> Ledger:
    """A ledger whose incident is held since then, by a verdict on the error or only by its budget."""
    ledger = opened(since)
    assert ledger.incident is not None
    span = PhaseSpan(Phase.HELD, at(since))
    phases = (ledger.incident.phases[0], span)
    reason = Reason.SAME_ERROR_AGAIN if verdict else Reason.BUDGET_EXHAUSTED
    kept = with_incident(ledger, phases=phases, step=Step(StepType.HELD, reason=reason))
    return msgspec.structs.replace(kept, phase=Phase.HELD)


@pytest.mark.parametrize(
    ("verdict", "account"), [(True, Account.OUTLIVES), (False, Account.BETWEEN)], ids=["an error", "the budget"]
)
@pytest.mark.parametrize("restarted", [False, True], ids=["held to the end", "restarted at last"])
def test_a_group_that_is_held_and_trains_for_a_while(verdict: bool, account: str, restarted: bool) -> None:
    """A restart removes the verdict from the ledger. This does not affect the time before it."""
    books = Books((20, 1000), (1100, 1300), (1400, None))
    books.writes(1001, held(1000, verdict=verdict))
    if restarted:
        books.writes(1350, with_incident(held(1000, verdict=verdict), step=Step(StepType.RESTARTING)))
    books.writes(1401, closed(held(1000, verdict=verdict and not restarted), 1400, Outcome.HELD, "RunsWholeAgain"))
    accounts = books.accounts()
    assert accounts[account] == 200.0
    assert bool(books.found) is not verdict


@pytest.mark.parametrize(("longer", "over"), [(0, False), (1, True)])
def test_a_group_that_has_outlived_its_error_is_not_held_for_it(longer: float, over: bool) -> None:
    trains = OUTLIVES_IN.total_seconds() + longer
    books = Books((20, 1000), (1100, 1100 + trains), (1900, None))
    books.writes(1001, held(1000, verdict=True))
    books.writes(1901, closed(held(1000, verdict=True), 1900, Outcome.HELD, "RunsWholeAgain"))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(("stops_at", "over"), [(1004.1, False), (1004.2, True)])
def test_a_loss_stops_the_training_soon_after_its_date(stops_at: float, over: bool) -> None:
    books = Books((20, stops_at), (1100, None)).writes(1001, opened(1000)).writes(1101, closed(opened(1000), 1100))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(("stops_at", "over"), [(1009.1, False), (1009.2, True)])
def test_or_when_the_verdict_on_it_has_waited_for_late_evidence(stops_at: float, over: bool) -> None:
    lost = opened(1000, settle_seconds=5.0)
    books = Books((20, stops_at), (1100, None)).writes(1001, lost).writes(1101, closed(lost, 1100))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(("phase", "over"), [(Phase.BACKOFF, False), (Phase.DECIDED, True)])
def test_or_while_the_restart_off_a_faulty_node_waits_for_its_backoff(phase: Phase, over: bool) -> None:
    waits = in_phase(opened(1000), phase)
    books = Books((20, 1040), (1100, None)).writes(1001, waits).writes(1101, closed(waits, 1100))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(
    ("outcome", "account"), [(TrainingOutcome.FINISHED, Account.ENDED), (TrainingOutcome.BROKEN, Account.BOOKED)]
)
def test_an_incident_of_a_training_that_has_ended(outcome: TrainingOutcome, account: str) -> None:
    books = Books((20, 900)).writes(1001, opened(1000)).writes(1900, closed(opened(1000), 1900))
    books.case.evidence.rounds(str(KEY))[0].outcome = outcome
    assert books.accounts()[account] == 900.0
    assert not [each for each in books.found if "did not stop" in each]


@pytest.mark.parametrize(("until", "over"), [(1102.1, False), (1102.2, True)])
def test_a_recovery_ends_when_all_ranks_met(until: float, over: bool) -> None:
    books = Books((20, 1000), (1100, None)).writes(1001, opened(1000)).writes(1103, closed(opened(1000), until))
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(("lost_at", "early"), [(None, False), (1150, True)], ids=["nothing shows it", "a pod is gone"])
def test_a_verified_recovery_may_be_followed_by_a_stop_that_nothing_shows(lost_at: float | None, early: bool) -> None:
    """Seed 6360: the ranks had met, and one lost its node while the controller waited for progress."""
    books = Books((20, 1000), (1100, 1150), (1300, None)).writes(1001, opened(1000))
    if lost_at is not None:
        books.loses(lost_at)
    ended = closed(opened(1000), 1160)
    assert ended.incident is not None
    assert ended.incident.closing is not None
    books.writes(1161, with_incident(ended, closing=msgspec.structs.replace(ended.incident.closing, verified=True)))
    books.accounts()
    assert any("is verified before" in sentence for sentence in books.found) is early


@pytest.mark.parametrize(("held_up_seconds", "over"), [(85, False), (84, True)])
def test_what_holds_a_controller_up_comes_on_top(held_up_seconds: float, over: bool) -> None:
    books = never_stopped()
    recovers_in = 45 + 1.5 * books.case.evidence.plan.lease_seconds
    books.hits(FaultKind.PROCESS_FREEZE, 1000, held_up_seconds - recovers_in, actor="controller-0")
    books.accounts()
    assert bool(books.found) is over


@pytest.mark.parametrize(("made_at", "right"), [(1010, True), (999, False)], ids=["after its loss", "before it"])
def test_an_incident_is_of_the_job_that_was_there_whatever_the_clock_of_the_controller_says(
    made_at: float, right: bool
) -> None:
    books = Books((20, None))
    job = msgspec.structs.replace(books.case.evidence.jobs[KEY], policy={"elastic": {"minNodes": 1, "maxNodes": 2}})
    books.case.evidence.jobs = {KEY: job}

    def recreates(seconds: float, uid: str, pods: int) -> None:
        books.case.now = seconds
        books.case.drop(JOBS, "llm-node-0")
        books.case.job(uid, parallelism=pods, completions=pods)

    recreates(900, "smaller", 1)
    if made_at < 1000:
        recreates(made_at, "whole again", 2)
    books.writes(1000, with_incident(opened(1060), gpus=8))
    if made_at > 1000:
        recreates(made_at, "whole again", 2)
    books.accounts()
    assert any("is of 8 GPUs" in each for each in books.found) is not right
