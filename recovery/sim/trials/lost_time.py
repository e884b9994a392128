"""Compares the time that incidents book with the time that the training really lost.

The training model knows when all ranks stopped and when they met again. The ledgers know which time they book, and on
which phase. The two must agree. Every second in which a training was stopped belongs to an incident or to a named
account. In every second that an incident books, the training was stopped, or the second belongs to a named account too.
Nothing here reads from the controller or from the API server.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, Outcome, Phase, PhaseSpan
from recovery.core.model.standing import BROKEN_SECONDS
from recovery.sim.training.rounds import Round, TrainingOutcome

API_TIME = timedelta(seconds=1)
"""The API's times are whole seconds, so a start may be this much too early, and an end this much too late."""
ROUNDING_GPU_SECONDS = 0.001
"""Each span is booked in thousandths of a GPU-second."""


class Account(StrEnum):
    """What a stretch of time belongs to."""

    # Time in which the training was stopped.
    BOOKED = "booked by an incident"
    UNDATED = "undated"
    """From the stop to the first dated evidence of it. The cause is a silent node, or a hang."""
    REPLACED = "dated by a replacement alone"
    """The only sign of the loss is the pod that replaced the lost one. That pod was lost too before any controller
    watched, so the controller counts from the second loss."""
    UNVERIFIED = "Recovered by Ready alone"
    """All pods were Ready, which only shows that they run. The ranks had not met: one was on a node that had just gone
    silent."""
    UNREADABLE = "dated by what no controller could read"
    """When the incident was opened, the object with the date did not exist any more, or it was a pod whose rank a user
    had removed from its Job. Or its kubelet reported the date later."""
    UNWATCHED = "over before a controller could act"
    """A fault held up all controllers from the stop until something else ended the group, or until the last of its pods
    was deleted, after which nothing showed that the group had ever trained. A stop that a kubelet reports late counts
    from the report: the ranks may have met again by then, until the Job fails by its own policy."""
    ASKED = "stopped before a person asked for a restart"
    """The controller read the request before it read the loss, so the incident begins with the request."""
    INCOMPLETE = "the members had not all run yet, as far as the API shows"
    """A resize has added a rank for which there was no room, and the others train without it. Or the process of a pod
    that was deleted lives on where its node is cut off, and the others train with it. The Job of a group whose members
    have not all run replaces the pods that it loses."""
    UNEXPLAINED = "unexplained"
    # Time that an incident books although the training ran.
    EARLY = "ran on after the evidence"
    """From the start of an incident to the first stop in it: a pod ends slowly, or a fault does not stop a rank yet."""
    MEETING = "a member was lost before all had met"
    """The others wait for it, and meet when its replacement starts. Their processes are older than the loss, so without
    a probe the group looks as if it hung. The controller then makes the restart that waits for its backoff."""
    LATE = "trains before the incident ends"
    BETWEEN = "trained for a while during the incident"
    NEVER = "the training did not stop"
    BACKDATED = "trained before the incident was opened"
    """No controller led at that time, or the job was paused. The incident is dated by the first loss since then, no
    matter what the training did before the incident was opened."""
    LIVED = "the processes of a lost pod lived on"
    """Its node was cut off, or its processes could not be ended. The API shows a loss, but the training continues."""
    ADDED = "a rank that a resize has added failed"
    """The earlier ranks continue to train without it. Nothing in the API shows whether they have let it join and now
    hang."""
    INDEPENDENT = "independent ranks trained on"
    """No rank of this training waits for another, so the loss of one stops none of the others."""
    OUTLIVES = "trains before a held incident is over"
    """The incident is held for an error of the job itself, so it stays open until the group has outlived that error. If
    the group loses a member before, or the incident ends in another way, its end is not dated back to when the training
    continued."""
    UNREPORTED = "trains before it reports progress"
    """In phase Resuming the ranks have met, but the training has not reported progress again. Only that report shows
    that it makes steps, so the time until then counts as lost."""
    ENDED = "after the training has ended"
    """All ranks have made their last step, so nothing trains and nothing is lost. Another container can still make
    their pods fail, and their Jobs recreate the pods. The group then needs a recovery to become Completed."""
    NOT_YET = "before the ranks had ever met"
    """All ranks have run at once, and the API shows no more than that. They wait for one another, because a user has
    changed how many ranks there are, but not the number in their settings. Or the controller has created their Job
    again, because pods that others had deleted made it wait for too long."""
    UNSEEN = "trains, though it seems not to have started"
    """Nothing says which container trains, and another container, which cannot start, keeps the pods from being
    Running."""
    CLOCK = "a wrong clock of the controller's"
    UNMARKED = "undated, and no container is known to train"


@dataclass(frozen=True)
class Outage:
    """A time in which a training was stopped."""

    since: datetime
    """When it made its last step."""
    until: datetime
    """When all ranks met again, or the end of the trace."""
    over: bool = True
    """The ranks did meet again."""
    formed_at: datetime | None = None
    """When the ranks that made this last step had met. None: not known."""


@dataclass(frozen=True)
class Booked:
    """The time of one incident."""

    incident: str
    since: datetime
    until: datetime
    """Its end, or the end of the trace."""
    ending: str = ""
    """Outcome and reason, as in `Observed/LeftToKubernetes`. Empty: it is open."""
    outlives: tuple[tuple[datetime, datetime], ...] = ()
    """The start and end of each phase Held for an error of the job itself."""
    withheld: tuple[tuple[datetime, datetime], ...] = ()
    """The start and end of each phase Backoff, in which a restart waits."""
    size_kept: tuple[tuple[datetime, datetime], ...] = ()
    """The start and end of each phase Held because a user has resized a Job. It lasts until a person decides."""
    verified: bool = False
    """All ranks have reported that they have met."""
    manual: bool = False
    """A person's request opened it."""
    opened_at: datetime | None = None
    """When it was opened. None: not known, so every date counts as readable then."""
    resuming: tuple[tuple[datetime, datetime], ...] = ()
    """The start and end of each phase Resuming."""
    settles: timedelta = timedelta()
    """How long its policy makes the verdict wait for late evidence (`settle`)."""


@dataclass(frozen=True)
class Dated:
    """The date that an object gives for a loss, and the time in which that date could be read."""

    at: datetime
    seen_at: datetime
    gone_at: datetime | None = None
    """When the object was deleted, or no longer showed the date. None: it still does."""
    inferred: bool = False
    """The date is the creation of the pod that replaced the lost one."""

    def readable_at(self, moment: datetime) -> bool:
        return self.seen_at <= moment and (self.gone_at is None or moment < self.gone_at)


@dataclass(frozen=True)
class Circumstance:
    """What is known of the workload from a moment on, whether its training runs then or not."""

    since: datetime
    excuse: str = ""
    """Why no incident is expected. Empty: one is."""
    takes_down: bool = False
    """It ends the ranks, so no incident is expected before they have met again."""
    for_good: bool = False
    """It ends all ranks that met before it, even if they stop only after it is over."""
    baseline_until: datetime | None = None
    """Losses from before this moment are a baseline. None: no loss is."""


@dataclass(frozen=True)
class Stretch:
    """A part of an outage, or of an incident."""

    since: datetime
    until: datetime
    account: str
    """An `Account`, or an excuse."""
    incident: str = ""
    """The incident that books the stretch, or that ended before it. Empty: none."""

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()


def outages(rounds: Sequence[Round], ends_at: datetime) -> Iterator[Outage]:
    """The outages of a training, from its first round on. The end of a finished training is none."""
    for number, each in enumerate(rounds, 1):
        after = rounds[number] if number < len(rounds) else None
        if each.ended_at is not None and each.outcome is not TrainingOutcome.FINISHED:
            until = after.formed_at if after else ends_at
            yield Outage(each.ended_at, until, over=after is not None, formed_at=each.formed_at)


def after_the_end(rounds: Sequence[Round], ends_at: datetime) -> Iterator[tuple[datetime, datetime]]:
    """The spans in which a training had ended: until its ranks met once more, or to the end of the trace."""
    for number, each in enumerate(rounds, 1):
        if each.ended_at is not None and each.outcome is TrainingOutcome.FINISHED:
            yield each.ended_at, rounds[number].formed_at if number < len(rounds) else ends_at


def booked(
    incident: Incident,
    ends_at: datetime,
    opened_at: datetime | None = None,
    judged: Collection[datetime] = (),
    resized: Collection[datetime] = (),
) -> Booked:
    """The time of an incident, open or closed. `ends_at`: of the trace. `opened_at`: by the server's clock. `judged`:
    starts of its phases Held for an error of the job itself. `resized`: starts of those that keep a user's size. The
    ledger loses both with a restart."""
    closing = incident.closing
    return Booked(
        incident=incident.id,
        since=incident.started_at,
        until=closing.ended_at if closing is not None else ends_at,
        ending=f"{closing.outcome}/{closing.outcome_reason}" if closing is not None else "",
        outlives=tuple(
            (span.started_at, span.ended_at or ends_at)
            for span in incident.phases
            if span.phase is Phase.HELD and span.started_at in judged
        ),
        withheld=tuple(
            (span.started_at, span.ended_at or ends_at) for span in incident.phases if span.phase is Phase.BACKOFF
        ),
        size_kept=tuple(
            (span.started_at, span.ended_at or ends_at)
            for span in incident.phases
            if span.phase is Phase.HELD and span.started_at in resized
        ),
        verified=closing is not None and closing.verified,
        manual=incident.disruption_class == DisruptionClass.MANUAL,
        opened_at=opened_at,
        resuming=tuple(
            (span.started_at, span.ended_at or ends_at) for span in incident.phases if span.phase is Phase.RESUMING
        ),
        settles=timedelta(seconds=incident.pinned.settle_seconds),
    )


def lost_time(
    outage: Outage,
    incidents: Sequence[Booked],
    dated: Sequence[Dated] = (),
    circumstances: Sequence[Circumstance] = (),
) -> Iterator[Stretch]:
    """The whole outage as stretches, each on one account.

    `incidents`: those of that training, oldest first. `dated`: all dates that the objects of that training ever gave
    for losses. `circumstances`: oldest first.
    """
    mine = [each for each in dated if outage.since - API_TIME <= each.at < outage.until]
    opened = next((each for each in incidents if each.since < outage.until and each.until > outage.since), None)
    opened_at = opened.opened_at if opened is not None else None
    visible = [each for each in mine if opened_at is None or each.readable_at(opened_at)]
    first_dated = _first(outage, (each for each in visible if not each.inferred))
    first_inferred = _first(outage, visible)
    ever_dated = _first(outage, mine)
    cuts = {outage.since, outage.until, first_dated, first_inferred, ever_dated}
    cuts.update(at for each in incidents for at in (each.since, each.until))
    cuts.update(each.since for each in circumstances)
    for since, until in pairwise(sorted(cut for cut in cuts if outage.since <= cut <= outage.until)):
        account, incident = _account(outage, since, incidents, circumstances, dated)
        if account == Account.UNEXPLAINED and since < ever_dated:
            account = Account.UNDATED
        elif account == Account.UNEXPLAINED and since < first_dated:
            account = Account.UNREADABLE if since < first_inferred else Account.REPLACED
        yield Stretch(since, until, account, incident)


def _first(outage: Outage, dated: Iterable[Dated]) -> datetime:
    """The earliest of these dates within the outage. The end of the outage: there is none."""
    return min((max(each.at, outage.since) for each in dated), default=outage.until)


def stopped_unseen(outage: Outage, incident: Booked, at: datetime, dated: Iterable[Dated]) -> bool:
    """The ranks met during the incident and stopped again, and no date up to `at` shows the new stop."""
    met_at = outage.formed_at
    if met_at is None or not incident.since < met_at <= outage.since < incident.until:
        return False
    return not any(met_at - API_TIME <= each.at <= at for each in dated)


def _account(
    outage: Outage,
    at: datetime,
    incidents: Sequence[Booked],
    circumstances: Sequence[Circumstance],
    dated: Sequence[Dated],
) -> tuple[str, str]:
    """Account and incident of the stretch that begins at `at`. `dated` is used only for a stop during an incident."""
    holding = next((each for each in incidents if each.since <= at < each.until), None)
    if holding is not None:
        return Account.BOOKED, holding.incident
    known = next((each for each in reversed(circumstances) if each.since <= at), Circumstance(at))
    if known.excuse:
        return known.excuse, ""
    ends = (*(each.since for each in circumstances[1:]), at)
    down = next(
        (
            each
            for each, until in reversed(tuple(zip(circumstances, ends, strict=False)))
            if each.takes_down and each.since <= at
            if until > outage.since or (each.for_good and (outage.formed_at or outage.since) <= each.since)
        ),
        None,
    )
    if down is not None:
        return f"starts after: {down.excuse}", ""
    earlier = next((each for each in reversed(incidents) if outage.since < each.until <= at), None)
    changes = (each.baseline_until for each in circumstances if each.since < outage.until)
    if earlier is None and any(changed is not None and outage.since < changed for changed in changes):
        return "stopped before the policy", ""
    if earlier is None:
        return Account.UNEXPLAINED, ""
    if stopped_unseen(outage, earlier, at, dated):
        return Account.UNDATED, ""
    unverified = earlier.ending.startswith(Outcome.RECOVERED) and not earlier.verified
    return Account.UNVERIFIED if unverified else f"after {earlier.ending}", earlier.incident


def beyond(
    incident: Booked, stops: Sequence[Outage], ended: Sequence[tuple[datetime, datetime]] = ()
) -> Iterator[Stretch]:
    """The stretches of an incident that are not part of an outage. `ended`: the spans in which the training had ended
    (`after_the_end`)."""
    for stretch in _outside(incident, stops):
        cuts = {cut for span in ended for cut in span if stretch.since < cut < stretch.until}
        for since, until in pairwise(sorted({stretch.since, stretch.until, *cuts})):
            over = any(end <= since < again for end, again in ended)
            yield replace(stretch, since=since, until=until, account=Account.ENDED if over else stretch.account)


def _outside(incident: Booked, stops: Sequence[Outage]) -> Iterator[Stretch]:
    inside = [each for each in stops if each.since < incident.until and each.until > incident.since]
    if not inside:
        yield Stretch(incident.since, incident.until, Account.NEVER, incident.incident)
        return
    if incident.since < inside[0].since:
        yield Stretch(incident.since, inside[0].since, Account.EARLY, incident.incident)
    for one, other in pairwise(inside):
        yield from _trained(one.until, other.since, Account.BETWEEN, incident)
    if inside[-1].until < incident.until:
        yield from _trained(inside[-1].until, incident.until, Account.LATE, incident)


def _trained(since: datetime, until: datetime, account: Account, incident: Booked) -> Iterator[Stretch]:
    """Splits off the part before the incident was opened, the parts in phase Resuming, and the parts in which the
    incident waits until the group has outlived an error."""
    opened_at = min(max(incident.opened_at or since, since), until)
    if since < opened_at:
        yield Stretch(since, opened_at, Account.BACKDATED, incident.incident)
    spans = (*incident.resuming, *incident.outlives)
    cuts = {opened_at, until, *(cut for span in spans for cut in span if opened_at < cut < until)}
    for begin, end in pairwise(sorted(cuts)):
        named = account
        if any(since <= begin < until for since, until in incident.resuming):
            named = Account.UNREPORTED
        elif any(since <= begin < until for since, until in incident.outlives):
            named = Account.OUTLIVES
        yield Stretch(begin, end, named, incident.incident)


def broken_sums(incident: Incident) -> Iterator[str]:
    """What is wrong with the books of one closed incident, in words. Its phases must cover it without gaps, and hold
    every GPU-second of it."""
    closing, spans = incident.closing, incident.phases
    assert closing is not None, "an open incident is not booked yet"
    if not spans or spans[0].started_at != incident.started_at or spans[-1].ended_at != closing.ended_at:
        yield f"the phases of incident {incident.id} do not reach from its start to its end"
    for one, other in pairwise(spans):
        if one.ended_at != other.started_at:
            gap = f"{one.phase} ends at {one.ended_at}, {other.phase} begins at {other.started_at}"
            yield f"the phases of incident {incident.id} are not contiguous: {gap}"
    seconds = (closing.ended_at - incident.started_at).total_seconds()
    spent = sum(gpu_seconds(span) for span in spans)
    # Spans with fewer or more nodes hold a different number of GPUs than the incident began with.
    resized = sum(
        (span.ended_at - span.started_at).total_seconds() * (incident.gpus_in(span) - incident.gpus)
        for span in spans
        if span.ended_at is not None
    )
    if abs(spent - seconds * incident.gpus - resized) > ROUNDING_GPU_SECONDS * len(spans):
        yield f"incident {incident.id} books {spent:.3f} GPU-seconds of {seconds:.3f} s with {incident.gpus} GPUs"


def broken_totals(incidents: Iterable[Incident], totals: Totals) -> Iterator[str]:
    """What is wrong with the totals of a group, in words. They must be the sums over the ended spans of its incidents.
    `incidents`: all that the group ever had.

    What a group books between its incidents, while its ranks hang, belongs to none of them (`StandingConfirmed`).
    They are not compared by phase, because long incidents merge their two oldest spans (`phases.MAX_SPANS`).
    """
    spans = [span for incident in incidents for span in incident.phases if span.ended_at is not None]
    idle = sum(seconds for phase, seconds in totals.idle_gpu_seconds.items() if phase != BROKEN_SECONDS)
    total = idle + totals.released_gpu_seconds
    spent = sum(gpu_seconds(span) for span in spans)
    if abs(total - spent) > ROUNDING_GPU_SECONDS * (len(spans) + 1):
        yield f"the totals say {total:.3f} GPU-seconds, the incidents {spent:.3f}"


def gpu_seconds(span: PhaseSpan) -> float:
    """Idle and released GPU-seconds of a span that has ended."""
    return span.idle_gpu_seconds + span.released_gpu_seconds


def recovered_late(incident: Booked, stops: Sequence[Outage]) -> timedelta | None:
    """The time from when all ranks had met to when the incident says that they had. Negative: it says so too early.
    None: the incident did not end as recovered, or no stop lies in it.

    The end of the incident may be dated a second late. So a rank that is lost within that second was lost after it.
    """
    if not incident.ending.startswith(Outcome.RECOVERED):
        return None
    inside = [each for each in stops if each.since <= incident.until and each.until > incident.since]
    if len(inside) > 1 and inside[-1].since > incident.until - API_TIME:
        inside.pop()
    return incident.until - inside[-1].until if inside else None


def united(spans: Iterable[tuple[datetime, datetime]]) -> list[tuple[datetime, datetime]]:
    """The same time as spans that do not overlap."""
    found: list[tuple[datetime, datetime]] = []
    for since, until in sorted(spans):
        if found and since <= found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((since, until))
    return found
