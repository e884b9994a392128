"""The rule that compares the time that incidents book with the time in which the trainings were stopped."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident, Outcome, Phase
from recovery.core.model.reason import Reason
from recovery.ports import (
    CLUSTER_RECOVERY_POLICIES,
    JOB_SETS,
    JOBS,
    PODS,
    RECOVERY_CONFIGS,
    RECOVERY_GROUPS,
    RECOVERY_POLICIES,
    TRAIN_JOBS,
)
from recovery.scenario.modelled_job import Marking, TrainingKind
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import NO_POLICY, PAUSED, GroupView, controller_uid
from recovery.sim.trials.checkers.ledger_changes import LedgerState
from recovery.sim.trials.checkers.member_losses import dated_at
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.lost_time import (
    API_TIME,
    Account,
    Booked,
    Circumstance,
    Dated,
    Stretch,
    after_the_end,
    beyond,
    booked,
    broken_sums,
    broken_totals,
    lost_time,
    outages,
    recovered_late,
    stopped_unseen,
    united,
)
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_OF_GROUPS = frozenset({TRAIN_JOBS, JOB_SETS, RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS})
_TOLERANCE = API_TIME + timedelta(milliseconds=100)
"""The 100 ms are for the kubelet, which takes a moment to report."""
_WHOLE_SECONDS = timedelta(seconds=1)
"""The API and the kubelets write times in whole seconds, so a loss may be dated this much too early."""
_PROBES_EACH = timedelta(seconds=1)
"""The longest time from when all ranks have met until a joined probe succeeds."""
_MEETS_IN = timedelta(seconds=2)
"""The longest time that ranks take to meet in the training model. Without a joined probe, Ready only shows that they
run."""
_OPENS_IN = timedelta(seconds=2)
"""The longest time from a clear loss until an incident is open, if nothing holds up a controller (`TimelyAction`)."""
_SETTLES_IN = timedelta(seconds=15)
"""How long an incident may continue although the training runs, if nothing holds up a controller. The controller waits
for the rest of a cascade before it decides, and again before it accepts that all is well."""
_OUTLIVES_IN = timedelta(minutes=12)
"""The longest time from when the ranks of a held group run again until the group has outlived its own error. Ranks that
never meet give up after at most 605 s (`join_timeout_seconds` and `nccl_timeout_seconds` of the training model), and
begin to count up to a minute after the containers do. Only a group that runs for longer has met."""


_RECOVERED = f"after {Outcome.RECOVERED}"
_TRAINS = frozenset({Account.EARLY, Account.LATE, Account.BETWEEN, Account.NEVER, Account.UNREPORTED})
"""Accounts of time in which an incident lasts and the training runs."""
_BY_DATES = _TRAINS | {Account.UNEXPLAINED}
"""Accounts of time that a wrong clock of the controller can cause."""
_BY_LOSSES = _TRAINS - {Account.UNREPORTED}
"""Accounts of time that the loss of a member can cause if the training continues without it."""
_ENDS_IN = timedelta(seconds=1)
"""The longest time in which a process stops if it obeys SIGTERM or the controller has taken it down (`term_seconds` of
the training model, and a moment for the kubelet)."""
_MADE_AGAIN_IN = timedelta(minutes=10)
"""The longest time until a Job recreates a failed pod (MaxJobPodFailureBackOff)."""


_OUTLIVED = frozenset({FaultKind.NODE_PARTITION, FaultKind.POD_STUCK})


@dataclass(frozen=True)
class _Opened:
    """The newest version of an incident, and when it was opened by the server's clock."""

    group: GroupKey
    workload_uid: str
    incident: Incident
    at: datetime
    judged: frozenset[datetime] = frozenset()
    """Starts of its phases Held that a verdict asked for because of an error of the job itself."""
    resized: frozenset[datetime] = frozenset()
    """Starts of its phases Held that keep the size which a user gave a Job."""


class LostTimeBooked(CheckerRule):
    """Each second in which a training stood still is booked by an incident, or has a cause that is named and counted.
    Each second that an incident books was lost, or has such a cause too. The phases of an incident follow each other
    without a gap, from the first dated evidence to the moment when all ranks met again, within the second of the API's
    times. Their GPU-seconds add up to those of the incident, and those of all incidents to the totals.

    Only the model of the training says when a training stopped and when its ranks met again.
    """

    hears = frozenset({PODS, JOBS, RECOVERY_GROUPS, *_OF_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._incidents: dict[tuple[str, int], _Opened] = {}
        self._dated: dict[GroupKey, dict[tuple[str, datetime], Dated]] = {}
        self._circumstances: dict[GroupKey, list[Circumstance]] = {}
        self._jobs_at_pause: dict[GroupKey, frozenset[str]] = {}
        """The UIDs of the Jobs that a paused group had when its pause began."""
        self._whole: dict[GroupKey, list[tuple[datetime, bool]]] = {}
        """When all members of a group's Jobs became Ready (True), or no longer were (False)."""

    # While the trial runs.

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == RECOVERY_GROUPS:
            self._note_incident(change, at)
        elif change.resource in _OF_GROUPS:
            for group in self.world.groups.values():
                self._note_circumstances(group, at)
        else:
            self._note_dates(change, at)
        return iter(())

    def _note_incident(self, change: ObjectChange, at: datetime) -> None:
        made = self.written(change)
        if made is None or made.after.incident is None:
            return
        which, incident = (made.workload_uid, made.after.incident.number), made.after.incident
        known = self._incidents.get(which, _Opened(made.group, made.workload_uid, incident, at))
        spans = incident.phases[-1:] if incident.step.verdict is not None else ()
        held = frozenset(span.started_at for span in spans if span.phase is Phase.HELD)
        resized = held if incident.step.verdict is Reason.USER_RESIZED else frozenset[datetime]()
        self._incidents[which] = replace(
            known, incident=incident, judged=known.judged | held, resized=known.resized | resized
        )

    def _note_dates(self, change: ObjectChange, at: datetime) -> None:
        """Notes how an object dates a loss. The date is readable until the object is deleted, or a user removes the
        pod's rank."""
        uid = change.body["metadata"]["uid"]
        job = self.world.jobs.get(controller_uid(change.body) if change.resource == PODS else uid)
        if job is None:
            return
        self._note_whole(self.world.group(job.group), at)
        dated = dated_at(change, job.container, at)
        known = self._dated.setdefault(job.group, {})
        if change.resource == JOBS:
            self._note_no_longer(known, (pod for pod, body in job.pods.items() if job.is_scaled_away(body)), at)
        if dated is not None and any(loss.revision == change.revision for loss in job.losses[-1:]):
            known.setdefault((uid, dated), Dated(dated, seen_at=at, inferred=change.type == "ADDED"))
        if dated is not None and change.resource == PODS:
            # While a container waits to restart, its status shows only its last exit (`lastState`).
            for key in [key for key in known if key[0] == uid and key[1] < dated]:
                known[key] = replace(known[key], gone_at=known[key].gone_at or at)
        if change.type == "DELETED":
            self._note_no_longer(known, (uid,), at)

    @staticmethod
    def _note_no_longer(known: dict[tuple[str, datetime], Dated], uids: Iterable[str], at: datetime) -> None:
        """These objects no longer date a loss: they were deleted, or are pods of ranks that a user removed."""
        uids = set(uids)
        for key in [key for key in known if key[0] in uids]:
            known[key] = replace(known[key], gone_at=known[key].gone_at or at)

    def _note_whole(self, group: GroupView, at: datetime) -> None:
        whole = all(job.ready for job in group.jobs.values() if job.member)
        known = self._whole.setdefault(group.key, [])
        if not known or known[-1][1] is not whole:
            known.append((at, whole))

    def _note_circumstances(self, group: GroupView, at: datetime) -> None:
        excuse = group.excuse
        # In a pause the platform may restart the group, which then shows no loss when the pause is over.
        uids = frozenset(group.jobs)
        before = self._jobs_at_pause.setdefault(group.key, uids) if excuse == PAUSED else uids
        if excuse != PAUSED:
            self._jobs_at_pause.pop(group.key, None)
        takes_down = excuse not in {"", NO_POLICY, PAUSED} or not before >= uids
        known = self._circumstances.setdefault(group.key, [])
        baseline = group.since if group.since > self.evidence.began_at else None
        # A new workload of the same name may exist, and a suspension may be over, before these processes have ended.
        for_good = group.workload is None or (group.suspended and group.going)
        now = Circumstance(at, excuse, takes_down=takes_down, for_good=for_good, baseline_until=baseline)
        if not known or replace(known[-1], since=at) != now:
            known.append(now)

    # When the trial is over.

    def ended(self) -> Iterator[Violation]:
        for key in self.evidence.jobs:
            opened = [each for each in self._incidents.values() if each.group == key]
            yield from self._sums(key, opened)
            yield from self._times(key, opened)

    def _sums(self, key: GroupKey, opened: Sequence[_Opened]) -> Iterator[Violation]:
        at = self.evidence.ends_at
        for each in opened:
            if each.incident.closing is not None:
                yield from (self.found(at, sentence, key) for sentence in broken_sums(each.incident))
            wrong = self._wrong_size(key, each)
            if wrong:
                yield self.found(at, wrong, key)
        for state in self.world.ledgers:
            if state.group == key:
                mine = [each.incident for each in opened if each.workload_uid == state.workload_uid]
                yield from (self.found(at, sentence, key) for sentence in broken_totals(mine, state.ledger.totals))

    def _wrong_size(self, key: GroupKey, opened: _Opened) -> str:
        """Reports an incident that does not have all GPUs of its group, including lost members. Empty: it has."""
        job, incident = self.evidence.jobs[key], opened.incident
        asks = job.gpus_per_pod if job.marking is Marking.ACCELERATORS else 0
        if self._happened(FaultKind.USER_RESIZE, key) or incident.gpus == job.pods * asks:
            return ""
        if (job.policy or {}).get("elastic") is not None and incident.gpus == self._pods_at(key, opened.at) * asks:
            return ""
        # If the training had ended by then, a Job that is Complete has released its GPUs.
        over = after_the_end(self.evidence.rounds(str(key)), self.evidence.ends_at)
        if incident.gpus < job.pods * asks and any(since <= incident.detected_at < until for since, until in over):
            return ""
        return f"incident {incident.id} is of {incident.gpus} GPUs, the group has {job.pods * asks}"

    def _pods_at(self, key: GroupKey, at: datetime) -> int:
        """The number of pods of an elastic group's newest Job, by the server's clock. 0: there was no Job."""
        made = (job for job in self.world.jobs.values() if job.group == key and job.began_at <= at)
        newest = max(made, key=lambda job: job.began_at, default=None)
        return newest.wanted if newest is not None else 0

    def _times(self, key: GroupKey, opened: Sequence[_Opened]) -> Iterator[Violation]:
        ends_at = self.evidence.ends_at
        rounds = self.evidence.rounds(str(key))
        stops, ended = list(outages(rounds, ends_at)), list(after_the_end(rounds, ends_at))
        incidents = sorted((self._booked(each) for each in opened), key=lambda each: each.since)
        dated, circumstances = list(self._dated.get(key, {}).values()), self._circumstances.get(key, [])
        for stop in stops:
            stretches = tuple(lost_time(stop, incidents, dated, circumstances))
            unseen = all(each.account != Account.BOOKED for each in stretches)
            first = next((each for each in incidents if each.since < stop.until and each.until > stop.since), None)
            asked = first is not None and first.manual
            for lost in stretches:
                yield from self._judge(key, lost, unseen=unseen, asked=asked)
        for each in incidents:
            late = recovered_late(each, [stop for stop in stops if not stopped_unseen(stop, each, each.until, dated)])
            for stretch in beyond(each, stops, ended):
                yield from self._judge(key, stretch, each)
            # An incident that ends by Ready alone may be wrong. That time is counted (`Account.UNVERIFIED`).
            early = late is not None and late < timedelta() and each.verified
            if early and not self.world.undisturbed.clock_was_off(each.since, each.until):
                sentence = f"incident {each.incident} says that it is verified before all ranks have met"
                yield self.found(each.until, sentence, key)

    def _booked(self, opened: _Opened) -> Booked:
        state: LedgerState | None = self.world.ledgers.of(opened.workload_uid)
        gone_at = state.gone_at if state is not None else None
        return booked(opened.incident, gone_at or self.evidence.ends_at, opened.at, opened.judged, opened.resized)

    def _named(
        self, key: GroupKey, stretch: Stretch, incident: Booked | None = None, *, unseen: bool, asked: bool
    ) -> str:
        """The account of a stretch, by facts that only a trial knows.

        `incident`: the one that books the stretch although the training ran. `unseen`: no incident books a part of this
        outage. `asked`: a person's request opened the first incident during the outage.
        """
        unknown = self._unknown(key, stretch)
        if unknown is not None:
            return unknown
        # The end of a recovery is dated by Ready, no matter what was lost before.
        recovered = stretch.account == Account.LATE and self._recovered(incident)
        if stretch.account in _BY_LOSSES and not recovered and self._outlived_until(key, stretch) is not None:
            return Account.LIVED
        may_be_added = stretch.account in _BY_LOSSES | {Account.OUTLIVES} and not recovered
        if may_be_added and self._made_larger(key, stretch):
            return Account.ADDED
        if stretch.account == Account.BETWEEN and incident is not None and self._was_meeting(key, incident):
            return Account.MEETING
        if stretch.account == Account.UNEXPLAINED and asked:
            return Account.ASKED
        if unseen and stretch.account == Account.UNEXPLAINED and stretch.seconds > _TOLERANCE.total_seconds():
            since, until = self._readable(key, stretch)
            until = self._gone_by(key, stretch) or until
            if self.world.undisturbed.seconds(since, until) <= _OPENS_IN.total_seconds():
                return Account.UNWATCHED
            lacks_one = self._made_larger(key, stretch) or self._outlived_until(key, stretch) is not None
            if lacks_one and self._never_whole(key, stretch):
                return Account.INCOMPLETE
        by_dates = stretch.account in _BY_DATES or stretch.account.startswith(_RECOVERED)
        if by_dates and self.world.undisturbed.clock_was_off(stretch.since, stretch.until):
            return Account.CLOCK
        return stretch.account

    def _unknown(self, key: GroupKey, stretch: Stretch) -> Account | None:
        """The account of time whose cause nothing in the API shows. None: another account applies."""
        if stretch.account == Account.NEVER and self._never_met(key, stretch):
            return Account.NOT_YET
        if stretch.account in _TRAINS and self.evidence.jobs[key].training is TrainingKind.INDEPENDENT:
            return Account.INDEPENDENT
        if self.evidence.jobs[key].marking is not Marking.NOTHING:
            return None
        if stretch.account in {Account.UNDATED, Account.UNEXPLAINED}:
            return Account.UNMARKED
        if stretch.account in _BY_LOSSES and self._seems_not_started(key, stretch):
            return Account.UNSEEN
        return None

    def _judge(
        self,
        key: GroupKey,
        stretch: Stretch,
        incident: Booked | None = None,
        *,
        unseen: bool = False,
        asked: bool = False,
    ) -> Iterator[Violation]:
        accounts, account = self.evidence.lost_seconds, self._named(key, stretch, incident, unseen=unseen, asked=asked)
        accounts[account] = accounts.get(account, 0.0) + stretch.seconds
        most = self._most(key, stretch, account, incident)
        if stretch.seconds > most.total_seconds():
            of = f" (incident {stretch.incident})" if stretch.incident else ""
            yield self.found(stretch.since, f"{stretch.seconds:.3f} s: {account}{of}", key)

    def _reports_every(self, key: GroupKey) -> timedelta:
        """Zero: the training does not report progress."""
        return timedelta(seconds=self.evidence.jobs[key].reports_every_seconds or 0.0)

    def _most(self, key: GroupKey, stretch: Stretch, account: str, incident: Booked | None) -> timedelta:
        """How long a stretch of this account may be."""
        if account == Account.UNEXPLAINED:
            return _TOLERANCE
        if account.startswith(_RECOVERED):
            return _MEETS_IN
        if account == Account.LATE and self._recovered(incident):
            return _TOLERANCE + _PROBES_EACH
        early = _TOLERANCE + _OPENS_IN + self._ends_in(key) + (incident.settles if incident else timedelta())
        withheld = _overlap(stretch, incident.withheld if incident is not None else ())
        rules = {
            # The training may run while the verdict waits: on a node with a fault, or in a pod that is being deleted.
            # It may also run on a node with a fault while the restart waits for its backoff: a Ready pod does not show
            # whether its rank trains or hangs.
            Account.EARLY: early + withheld,
            Account.LATE: _SETTLES_IN,
            Account.BETWEEN: _SETTLES_IN,
            Account.NEVER: _SETTLES_IN,
            Account.NOT_YET: _SETTLES_IN + (self._first_met(key) - stretch.since),
            # Two reports. A report of 0 % announces a training. If the controller missed it, it mistakes a first
            # progress report of 0 % for the announcement.
            Account.UNREPORTED: _SETTLES_IN + 2 * self._reports_every(key),
            Account.OUTLIVES: _OUTLIVES_IN,
            Account.LIVED: _SETTLES_IN + ((self._outlived_until(key, stretch) or stretch.since) - stretch.since),
            Account.ADDED: _SETTLES_IN + _MADE_AGAIN_IN + _overlap(stretch, self._waits(key, incident)),
            Account.MEETING: _SETTLES_IN + withheld,
        }
        by_rule = rules.get(Account(account)) if account in set(Account) else None
        if by_rule is None:
            return timedelta.max
        held_up = stretch.seconds - self.world.undisturbed.seconds(stretch.since, stretch.until)
        return by_rule + timedelta(seconds=held_up)

    def _ends_in(self, key: GroupKey) -> timedelta:
        """The longest time in which a process of the training ends after SIGTERM."""
        saves = self.evidence.jobs[key].saves
        return _ENDS_IN + timedelta(seconds=saves.seconds if saves is not None else 0.0)

    @staticmethod
    def _recovered(incident: Booked | None) -> bool:
        return incident is not None and incident.ending.startswith(Outcome.RECOVERED)

    def _outlived_until(self, key: GroupKey, stretch: Stretch) -> datetime | None:
        """Until when processes of the job outlive their pods because of an earlier fault. None: no fault makes them."""
        mine = {record.pod_uid for record in self.evidence.trace.records if record.training == str(key)}
        lasts = (
            each.at + timedelta(seconds=each.fault.seconds)
            for each in self.evidence.happenings
            if each.fault.key.kind in _OUTLIVED
            # A fault of one job may cut off a node on which pods of another job run.
            if each.fault.job in {"", str(key)} or not mine.isdisjoint(each.pod_uids)
            if each.at <= stretch.since + API_TIME or self._came_before_its_end(stretch, each.at)
        )
        return max((until for until in lasts if until > stretch.since), default=None)

    def _came_before_its_end(self, stretch: Stretch, at: datetime) -> bool:
        """The fault came before the incident had time to end, and keeps it open although the training continued: a
        group with a pod on a silent node is not whole."""
        waits_to_end = stretch.account in {Account.BETWEEN, Account.LATE}
        return waits_to_end and self.world.undisturbed.seconds(stretch.since, at) <= _SETTLES_IN.total_seconds()

    def _was_meeting(self, key: GroupKey, incident: Booked) -> bool:
        """The training was stopped since before the loss, and nothing shows when its ranks met."""
        stops = outages(self.evidence.rounds(str(key)), self.evidence.ends_at)
        before = (each for each in stops if each.since + _WHOLE_SECONDS < incident.since < each.until)
        return not incident.verified and any(before)

    def _first_met(self, key: GroupKey) -> datetime:
        """When the ranks met for the first time, or the end of the trace."""
        rounds = self.evidence.rounds(str(key))
        return rounds[0].formed_at if rounds else self.evidence.ends_at

    def _never_met(self, key: GroupKey, stretch: Stretch) -> bool:
        """The ranks had not met before the stretch began, although all of them had been Ready at once, or because their
        Job waited too long before it replaced the pods that others had deleted, and was created again."""
        was_whole = any(whole and at <= stretch.since for at, whole in self._whole.get(key, ()))
        attempts = (
            attempt
            for opened in self._incidents.values()
            if opened.group == key and opened.incident.started_at <= stretch.until
            for attempt in opened.incident.attempts
        )
        recreated = any(attempt.reason is Reason.JOB_BACKS_OFF for attempt in attempts)
        return (was_whole or recreated) and stretch.since < self._first_met(key)

    def _seems_not_started(self, key: GroupKey, stretch: Stretch) -> bool:
        """The phases of the pods of the ranks that train never showed all of them Running at once."""
        met = [each for each in self.evidence.rounds(str(key)) if each.formed_at <= stretch.since]
        jobs = self.world.jobs_of(met[-1].job_uids if met else ())
        return bool(met) and all(job.container is None and not job.ran for job in jobs)

    def _made_larger(self, key: GroupKey, stretch: Stretch) -> bool:
        """A person has added ranks to the job, and the others train without them. They met before, or a literal in
        their settings gives their number, so they meet without the new ranks."""
        met = [each for each in self.evidence.rounds(str(key)) if each.formed_at <= stretch.since]
        if not met:
            return False
        members = sum(self.world.jobs[uid].wanted for uid in met[-1].job_uids if uid in self.world.jobs)
        return any(
            each.fault.key.kind is FaultKind.USER_RESIZE
            and each.fault.job == str(key)
            and each.fault.pods_more > 0
            and each.at <= stretch.since + API_TIME
            and (met[-1].formed_at <= each.at or met[-1].size < members)
            for each in self.evidence.happenings
        )

    def _waits(self, key: GroupKey, incident: Booked | None) -> Sequence[tuple[datetime, datetime]]:
        """The spans in which no incident about an added rank can end: it is held for the size, or a member is not
        Ready."""
        known = self._whole.get(key, [])
        ends = (*(at for at, _ in known[1:]), self.evidence.ends_at)
        spans = [(at, until) for (at, whole), until in zip(known, ends, strict=True) if not whole] if known else []
        return united((*spans, *(incident.size_kept if incident is not None else ())))

    def _readable(self, key: GroupKey, stretch: Stretch) -> tuple[datetime, datetime]:
        """The span in which a controller could read of the stop. The kubelet of a node that lost power reports the ends
        of its containers when it is back, and their pods may be removed a moment later. Where another client takes the
        run down, its losses are of an earlier run from then on, although failed pods of a suspended Job remain."""
        if any(each.takes_down and each.since == stretch.until for each in self._circumstances.get(key, [])):
            return stretch.since, stretch.until
        within = (stretch.since - API_TIME, stretch.until)
        mine = [each for each in self._dated.get(key, {}).values() if within[0] <= each.at < within[1]]
        gone = [each.gone_at for each in mine if each.gone_at is not None]
        if not mine or len(gone) < len(mine):
            return stretch.since, stretch.until
        return max(stretch.since, min(each.seen_at for each in mine)), max(stretch.until, *gone)

    def _gone_by(self, key: GroupKey, stretch: Stretch) -> datetime | None:
        """When all pods that trained were removed and no controller process remembered them. None: one of them exists,
        a Job shows the loss itself, or a process that was not restarted remembers them."""
        trained: set[str] = set()
        for record in self.evidence.trace.records:
            if record.training == str(key) and record.at <= stretch.since:
                if record.kind is EventKind.PROCESS_STARTED:
                    trained.add(record.pod_uid)
                elif record.kind is EventKind.PROCESS_EXITED and record.at < stretch.since:  # not in the stop itself
                    trained.discard(record.pod_uid)
        known = [(uid, each) for (uid, _), each in self._dated.get(key, {}).items() if each.at < stretch.until]
        left = {uid for uid, each in known if each.gone_at is None}
        gone = {uid: each.gone_at for uid, each in known if each.gone_at is not None}
        if not trained <= gone.keys() or not left.isdisjoint({*trained, *self.world.jobs}):
            return None
        gone_by = max((gone[uid] for uid in trained), default=None)
        if gone_by is None or any(
            life.started_at < gone_by and (life.ended_at is None or life.ended_at > gone_by)
            for life in self.evidence.processes
        ):
            return None
        return gone_by

    def _never_whole(self, key: GroupKey, stretch: Stretch) -> bool:
        """The members were never all Ready at once between the meeting of the ranks that trained and their stop."""
        met = [each.formed_at for each in self.evidence.rounds(str(key)) if each.formed_at <= stretch.since]
        known = self._whole.get(key, [])
        before = [whole for at, whole in known if met and at <= met[-1]]
        return not any((*before[-1:], *(whole for at, whole in known if met and met[-1] < at <= stretch.since)))

    def _happened(self, kind: FaultKind, key: GroupKey) -> bool:
        return any(each.fault.key.kind is kind and each.fault.job == str(key) for each in self.evidence.happenings)


def _overlap(stretch: Stretch, spans: Iterable[tuple[datetime, datetime]]) -> timedelta:
    """How much of the stretch lies in these spans."""
    shared = (min(until, stretch.until) - max(since, stretch.since) for since, until in spans)
    return sum((each for each in shared if each > timedelta()), timedelta())
