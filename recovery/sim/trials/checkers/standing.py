"""The rule that compares what the ledgers say about the standing of a group with the trace of its training."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import pairwise

from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Outcome
from recovery.core.model.reason import Reason
from recovery.core.model.standing import BROKEN_SECONDS, Standing
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
from recovery.scenario.modelled_job import Marking
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind
from recovery.sim.trials.checkers.checker_rule import CheckerRule
from recovery.sim.trials.checkers.group_views import controller_uid
from recovery.sim.trials.checkers.hangs import Hang, Process, ended_processes, hangs, process_of, running_process
from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.trial_evidence import TrialEvidence, Violation

_OF_GROUPS = frozenset({TRAIN_JOBS, JOB_SETS, JOBS, RECOVERY_POLICIES, CLUSTER_RECOVERY_POLICIES, RECOVERY_CONFIGS})
_KNOWN_IN = timedelta(seconds=5)
"""How long an undisturbed controller may need from the facts to the ledger."""
_BASELINE = timedelta(seconds=10)
"""A rank that ended so shortly after the policy began to apply may have ended before it, as the API dates it."""
_WHOLE_SECOND = timedelta(seconds=1)
_UNKNOWN = Standing.UNKNOWN


@dataclass(frozen=True)
class _Shown:
    """What the API server showed when the end of a process became visible."""

    at: datetime
    whole: bool
    """All members had run at once before."""
    expected: bool
    """The rank had been removed by a smaller size, the training had succeeded in its pod, or its Job or a controller
    had deleted the pod on purpose."""


@dataclass(frozen=True)
class _Time:
    """What the ledger says, and what is known of the group, from a moment on."""

    since: datetime
    standing: Standing = _UNKNOWN
    incident: bool = False
    """An incident is open."""
    opened_at: datetime | None = None
    """When the open incident begins, by its own account. None: no incident is open."""
    booked_from: datetime | None = None
    """From when on the group hangs between incidents, by the ledger. None: it does not."""
    workload_uid: str = ""
    """Empty: it does not exist."""
    excuse: str = ""
    """Why the ledger need not say anything. Empty: it must."""
    selected_since: datetime | None = None
    """Since when the policy applies as it does."""
    written: bool = False
    """A write of the ledger began this time."""


class StandingConfirmed(CheckerRule):
    """The standing of a group is that of its training. A ledger says Broken only while ranks of the training hang.
    While they hang, it does not say Met, and where no incident is open it says Broken. No incident closes as
    RunsWholeAgain while ranks hang. Each holds from 5 undisturbed seconds after the API server shows the facts. The
    totals hold the GPU-seconds for which a ledger said Broken and no incident was open.

    It does not cover ends that no controller witnessed: those from before the policy applied as it does, and those that
    happened while the controllers were held up. Nor does it cover groups of which nothing shows the container that
    trains, processes that outlive their pods, and ranks that met in the second in which one of them ended. The API
    dates both with that second, so those ranks seem to wait, and to meet the rank that replaces the one that ended.
    Nor does it cover ranks of which one met the others although it had been asked to terminate: most processes save
    then, or exit. Nor ranks of which one met the others on a node that did not answer, and that no pod ever showed.
    """

    hears = frozenset({PODS, RECOVERY_GROUPS, *_OF_GROUPS})

    def __init__(self, evidence: TrialEvidence) -> None:
        super().__init__(evidence)
        self._shown: dict[Process, _Shown] = {}
        self._seen: set[Process] = set()
        """The processes that a pod has shown running."""
        self._asked: dict[str, datetime] = {}
        """When each pod was seen to be asked to terminate, by UID."""
        self._times: dict[GroupKey, list[_Time]] = {}
        self._going: dict[str, list[datetime]] = {}
        """When each Job was seen being deleted, or suspended: its ranks no longer wait for anyone."""
        self._wholes: list[tuple[datetime, GroupKey, str]] = []
        """When incidents closed because their group ran whole again, and their ids."""

    # While the trial runs.

    def saw(self, change: ObjectChange, at: datetime) -> Iterator[Violation]:
        if change.resource == PODS:
            if "deletionTimestamp" in change.body["metadata"]:
                self._asked.setdefault(change.body["metadata"]["uid"], at)
            self._note_ends(change, at)
        elif change.resource == RECOVERY_GROUPS:
            self._note_ledger(change, at)
        else:
            goes = "deletionTimestamp" in change.body["metadata"] or change.body.get("spec", {}).get("suspend")
            if change.resource == JOBS and goes:
                self._going.setdefault(change.body["metadata"]["uid"], []).append(at)
            for key in self.evidence.jobs:
                self._note(key, at)
        return iter(())

    def _note_ends(self, change: ObjectChange, at: datetime) -> None:
        job = self.world.jobs.get(controller_uid(change.body))
        if job is None or job.container is None:
            return
        members = [each for each in self.world.group(job.group).jobs.values() if each.member]
        whole = all(each.ran for each in members)
        succeeded = (change.body.get("status") or {}).get("phase") == "Succeeded"
        taken = change.body["metadata"]["uid"] in job.lost_pods
        expected = succeeded or taken or job.is_scaled_away(change.body)
        running = running_process(change, job.container)
        if running is not None:
            self._seen.add(running)
        for process in ended_processes(change, job.container):
            self._shown.setdefault(process, _Shown(at, whole, expected))

    def _note_ledger(self, change: ObjectChange, at: datetime) -> None:
        made = self.written(change)
        key = made.group if made is not None else self.world.group_of(RECOVERY_GROUPS, change.body)
        if key is None:
            return
        if made is None:
            self._note(key, at, standing=_UNKNOWN, incident=False, dates={"opened_at": None, "booked_from": None})
            return
        incident = made.after.incident
        is_open = incident is not None and incident.closing is None
        opened_at = incident.started_at if incident is not None and is_open else None
        broken = made.after.broken
        booked_from = broken.booked_from if broken is not None else None
        dates = {"opened_at": opened_at, "booked_from": booked_from}
        self._note(key, at, standing=made.after.standing, incident=is_open, dates=dates, written=True)
        if incident is not None and incident.closing is not None and made.closed:
            held = incident.closing.outcome is Outcome.HELD
            if held and incident.closing.outcome_reason is Reason.RUNS_WHOLE_AGAIN:
                self._wholes.append((at, key, incident.id))

    def _note(
        self,
        key: GroupKey,
        at: datetime,
        *,
        standing: Standing | None = None,
        incident: bool | None = None,
        dates: Mapping[str, datetime | None] | None = None,
        written: bool = False,
    ) -> None:
        group, known = self.world.group(key), self._times.setdefault(key, [])
        last = known[-1] if known else _Time(at)
        now = replace(
            last,
            since=at,
            standing=last.standing if standing is None else standing,
            incident=last.incident if incident is None else incident,
            **(dates or {}),
            workload_uid=group.workload["metadata"]["uid"] if group.workload is not None else "",
            excuse=group.excuse,
            selected_since=group.since,
            written=written,
        )
        if not known or replace(last, since=at, written=written) != now:
            known.append(now)

    # When the trial is over.

    def ended(self) -> Iterator[Violation]:
        for key in self.evidence.jobs:
            found = hangs(self.evidence.trace.of(str(key)))
            times = self._times.get(key, [])
            spans = list(zip(times, (*(each.since for each in times[1:]), self.evidence.ends_at), strict=True))
            for hang in found:
                yield from self._unsaid(key, hang, spans)
            yield from self._unfounded(key, found, spans)
            yield from self._miscounted(key, found, spans)

    def _unsaid(self, key: GroupKey, hang: Hang, spans: Sequence[tuple[_Time, datetime]]) -> Iterator[Violation]:
        """The ledger does not say that the ranks hang, or says that they have met."""
        shown = self._shown.get(process_of(hang.lost))
        if shown is None or shown.expected or not shown.whole or self._met_for_a_moment(key, hang):
            return
        if self._met_while_leaving(key, hang) or not hang.hung.keys() <= self._seen:
            return
        since, until = max(shown.at, hang.lost.at), self._until(hang)
        goes = [at for at in self._going.get(hang.lost.job_uid, ()) if at >= hang.lost.at]
        until = min(until, *goes) if goes else until
        during = [
            (replace(time, since=max(time.since, since)), min(end, until))
            for time, end in spans
            if time.since < until and end > since
        ]
        # The processes of a workload that was deleted may still hang beside those of the next one of that name.
        during = [each for each in during if each[0].workload_uid == during[0][0].workload_uid]
        witnessed = bool(during) and self._is_witnessed(hang, shown, during[0][0])
        judged: list[tuple[_Time, datetime]] = []
        for time, end in during:
            witnessed = witnessed or time.incident or time.standing is Standing.BROKEN
            if witnessed and not time.excuse:
                judged.append((time, end))
        rank = f"rank {hang.lost.index} ended at {hang.lost.at:%H:%M:%S} and {len(hang.hung)} ranks hang"
        silent = (
            (time.since, end) for time, end in judged if not time.incident and time.standing is not Standing.BROKEN
        )
        for begin, end in _joined(silent):
            seconds = self.world.undisturbed.seconds(begin, end)
            if seconds > _KNOWN_IN.total_seconds():
                yield self.found(begin, f"for {seconds:.0f} s no ledger says that the group is broken: {rank}", key)
        wrong = ((time.since, end) for time, end in judged if time.standing is Standing.MET)
        for begin, end in _joined(wrong):
            if self.world.undisturbed.seconds(begin, end) > _KNOWN_IN.total_seconds():
                yield self.found(begin, f"the ledger says that all ranks have met: {rank}", key)
        for at, of, incident in self._wholes:
            known = self.world.undisturbed.seconds(since, at) > _KNOWN_IN.total_seconds()
            if of == key and since <= at < until and known:
                yield self.found(at, f"incident {incident} closes as if the group ran whole again: {rank}", key)

    def _is_witnessed(self, hang: Hang, shown: _Shown, time: _Time) -> bool:
        """A controller saw the end, under the policy that applied then. Otherwise only a ledger can show that."""
        since = time.selected_since
        if time.excuse or (since is not None and self.evidence.began_at < since > hang.lost.at - _BASELINE):
            return False
        return self.world.undisturbed.seconds(shown.at, shown.at + _KNOWN_IN) >= _KNOWN_IN.total_seconds()

    def _unfounded(
        self, key: GroupKey, found: Sequence[Hang], spans: Sequence[tuple[_Time, datetime]]
    ) -> Iterator[Violation]:
        """The ledger says Broken, and no rank hangs.

        Where a user has changed the size, the API does not show for how many ranks the processes wait.
        """
        if was_resized(self.evidence, key):
            return
        broken = ((time, end) for time, end in spans if time.standing is Standing.BROKEN and not time.excuse)
        hanging = [(hang.lost.at, self._seen_until(hang)) for hang in found]
        trace = self.evidence.trace.of(str(key), EventKind.PROCESS_STARTED)
        shown = [each.at for process in map(process_of, trace) if (each := self._shown.get(process)) is not None]
        for time, end in broken:
            for since, until in _outside(time.since, end, hanging):
                changes = (at for at in (*shown, *(ended for _, ended in hanging)) if at <= since)
                changed_at = max(changes, default=self.evidence.began_at)
                clear = self._is_clear(time, max(changed_at, since), changed_at, until)
                seems_so = self._seems_to_run(key, since) or self._seems_to_break(key, found, since)
                if clear and not self._lives_on(key, since) and not seems_so:
                    yield self.found(since, "the ledger says that the group is broken, and no rank hangs", key)

    def _miscounted(
        self, key: GroupKey, found: Sequence[Hang], spans: Sequence[tuple[_Time, datetime]]
    ) -> Iterator[Violation]:
        """The totals of the group do not hold the GPU-seconds in which it hung between its incidents."""
        job, undisturbed = self.evidence.jobs[key], self.world.undisturbed
        if was_resized(self.evidence, key) or undisturbed.clocks_jumped() or job.marking is not Marking.ACCELERATORS:
            return
        said: list[tuple[datetime, datetime]] = []
        unbooked: list[tuple[datetime, datetime]] = []
        for (before, _), (time, end), (after, _) in zip(spans, spans[1:], spans[2:], strict=False):
            if time.booked_from is None or time.incident:
                continue
            begins = time.booked_from if before.booked_from is None else time.since
            unbooked.append((begins, end))
            if after.workload_uid != time.workload_uid:
                unbooked.clear()  # the ledger was deleted with its workload, before it had booked them
            elif after.booked_from is None:
                # The next incident may begin before spans that a late controller has already passed.
                said += [(since, min(until, after.opened_at or until)) for since, until in unbooked]
                unbooked.clear()
        least = _shared(said, [(hang.lost.at, self._until(hang)) for hang in found])
        most = _shared(said, [(hang.lost.at, self._seen_until(hang)) for hang in found])
        booked = sum(
            state.ledger.totals.idle_gpu_seconds.get(BROKEN_SECONDS, 0.0)
            for state in self.world.ledgers
            if state.group == key
        )
        gpus = job.pods * job.gpus_per_pod
        margin = (_KNOWN_IN.total_seconds() + 2.0) * len(list(_joined(said)))
        too_much = booked / gpus > most + margin and not self._any_outlived(key)
        if booked / gpus < least - margin or too_much:
            sentence = f"{booked:.3f} GPU-seconds are booked as Broken, and {gpus} GPUs hung for {least:.3f} s"
            yield self.found(self.evidence.ends_at, sentence, key)

    def _met_for_a_moment(self, key: GroupKey, hang: Hang) -> bool:
        """The ranks had met in the second of the loss. The API writes whole seconds, so nothing shows it. In the model
        ranks meet at once, and real ones take longer."""
        formed = [each.at for each in self.evidence.trace.of(str(key), EventKind.ROUND_FORMED)]
        latest = max((at for at in formed if at <= hang.lost.at), default=None)
        return latest is not None and hang.lost.at - latest < _WHOLE_SECOND

    def _met_while_leaving(self, key: GroupKey, hang: Hang) -> bool:
        """A rank had been asked to terminate when it met the others."""
        formed = [each.at for each in self.evidence.trace.of(str(key), EventKind.ROUND_FORMED)]
        met_at = max((at for at in formed if at <= hang.lost.at), default=None)
        pods = {pod for pod, _ in (process_of(hang.lost), *hang.hung)}
        asked = (self._asked.get(pod) for pod in pods)
        return met_at is not None and any(at is not None and at < met_at for at in asked)

    def _until(self, hang: Hang) -> datetime:
        """When the last of the ranks that hung had ended, or the API server showed its end although it lives on."""
        ends = []
        for process, ended in hang.hung.items():
            shown = self._shown.get(process)
            known = [at for at in (ended, shown.at if shown is not None else None) if at is not None]
            ends.append(min(known, default=self.evidence.ends_at))
        return max(ends)

    def _seen_until(self, hang: Hang) -> datetime:
        """When the API server showed that the last of the ranks that hung had ended. On a node that is down, the lost
        rank seems to hang beside them until then."""
        ends = []
        for process, ended in {**hang.hung, process_of(hang.lost): hang.lost.at}.items():
            shown = self._shown.get(process)
            ends.append(max(ended, shown.at) if ended is not None and shown is not None else self.evidence.ends_at)
        return max(ends)

    def _is_clear(self, time: _Time, since: datetime, changed_at: datetime, until: datetime) -> bool:
        """An undisturbed controller has said so for too long, or began to say so although it could know."""
        undisturbed = self.world.undisturbed
        if undisturbed.seconds(since, until) > _KNOWN_IN.total_seconds():
            return True
        began = time.written and time.since == since and changed_at <= since - _KNOWN_IN
        return began and undisturbed.seconds(since - _KNOWN_IN, since) >= _KNOWN_IN.total_seconds()

    def _any_outlived(self, key: GroupKey) -> bool:
        """A process of the training ran on after the API server had shown its end."""
        ended = {process_of(each): each.at for each in self.evidence.trace.of(str(key), EventKind.PROCESS_EXITED)}
        shown = ((self._shown.get(process), at) for process, at in ended.items())
        return any(each is not None and each.at + _KNOWN_IN < at for each, at in shown)

    def _seems_to_run(self, key: GroupKey, at: datetime) -> bool:
        """A process of the training has ended, and the API server does not show it yet, because its node is down. Or
        it seemed to run when others began, so that they seem to have met it."""
        began = [each.at for each in self.evidence.trace.of(str(key), EventKind.PROCESS_STARTED)]
        for ended in self.evidence.trace.of(str(key), EventKind.PROCESS_EXITED):
            shown = self._shown.get(process_of(ended))
            until = shown.at if shown is not None else at
            if ended.at <= at and (shown is None or until > at or any(ended.at < each < until for each in began)):
                return True
        return False

    def _seems_to_break(self, key: GroupKey, found: Sequence[Hang], at: datetime) -> bool:
        """Ranks that had met only for a moment seem to have waited for the replacement of the lost one, and to have met
        it. When one of them ends, that set seems to break, until the last process of it has ended."""
        records = self.evidence.trace.of(str(key), EventKind.PROCESS_STARTED)
        for hang in found:
            ends = [shown.at for each in hang.hung if (shown := self._shown.get(each)) is not None]
            if not ends or min(ends) > at or not self._met_for_a_moment(key, hang):
                continue
            newcomers = (process_of(each) for each in records if hang.lost.at < each.at < min(ends))
            if any((shown := self._shown.get(each)) is None or shown.at > at for each in newcomers):
                return True
        return False

    def _lives_on(self, key: GroupKey, at: datetime) -> bool:
        """A process of the training runs although the API server shows its end."""
        running: set[Process] = set()
        for record in self.evidence.trace.of(str(key), EventKind.PROCESS_STARTED, EventKind.PROCESS_EXITED):
            if record.at > at:
                break
            (running.add if record.kind is EventKind.PROCESS_STARTED else running.discard)(process_of(record))
        return any(process in self._shown and self._shown[process].at <= at for process in running)


def _joined(spans: Iterable[tuple[datetime, datetime]]) -> Iterator[tuple[datetime, datetime]]:
    """The same time, where spans that follow each other without a gap are one."""
    since: datetime | None = None
    until: datetime | None = None
    for begin, end in spans:
        if since is not None and until is not None and begin > until:
            yield since, until
            since = None
        since, until = since or begin, end
    if since is not None and until is not None:
        yield since, until


def _shared(some: Iterable[tuple[datetime, datetime]], others: Sequence[tuple[datetime, datetime]]) -> float:
    """The seconds that these spans have in common with the others."""
    lasts = (min(end, until) - max(begin, since) for begin, end in some for since, until in others)
    return sum(max(0.0, each.total_seconds()) for each in lasts)


def _outside(
    since: datetime, until: datetime, spans: Iterable[tuple[datetime, datetime]]
) -> Iterator[tuple[datetime, datetime]]:
    """The parts of a time that lie in none of these spans."""
    inside = sorted((begin, end) for begin, end in spans if begin < until and end > since)
    cuts = [(since, since), *inside, (until, until)]
    reached = since
    for (_, end), (begin, _) in pairwise(cuts):
        reached = max(reached, end)
        if reached < begin:
            yield reached, begin


def was_resized(evidence: TrialEvidence, key: GroupKey) -> bool:
    """A user has changed the size of a Job of the group."""
    resizes = (each.fault.job for each in evidence.happenings if each.fault.key.kind is FaultKind.USER_RESIZE)
    return str(key) in resizes
