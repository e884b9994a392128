"""Holds the time that incidents book against the time that the training really lost.

The training model knows when all ranks stopped and when they met again. The ledgers know which time they book, and on
which phase. Both accounts must agree: every second in which a training stood still belongs to an incident or to a named
account beside it, and every second that an incident books is one in which the training stood still, or belongs to a
named account as well. Nothing here asks the controller, and nothing knows the API server.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import pairwise

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.group_totals import Totals
from recovery.core.model.ledger import Incident, Outcome, Phase, PhaseSpan
from recovery.sim.training.rounds import Round, TrainingOutcome

API_TIME = timedelta(seconds=1)
"""The API dates in whole seconds: a start may be this much too early, an end this much too late."""
ROUNDING_GPU_SECONDS = 0.001
"""Each span is booked in thousandths of a GPU-second."""


class Account(StrEnum):
    """What a stretch of time belongs to."""

    # Time in which the training stood still.
    BOOKED = "booked by an incident"
    UNDATED = "undated"
    """From the stop to the first evidence of it that bears a date: a node that has gone silent, a hang."""
    REPLACED = "dated by a replacement alone"
    """The pod that took the place of the lost one is the only sign of it, and was lost as well before anybody watched:
    the controller counts from the second loss."""
    UNVERIFIED = "Recovered by Ready alone"
    """All pods were Ready, which says that they run. They had not met: one was on a node that had just gone silent."""
    UNREADABLE = "dated by what no controller could read"
    """When the incident was opened, the object that bore the date was gone, or was a pod whose rank a user had removed
    from its Job. Or its kubelet reported the date later."""
    UNWATCHED = "over before a controller could act"
    """A fault held all controllers up from the stop until something else ended the group, or until the last of its pods
    was gone and with it all that showed that it ever trained. A stop that a kubelet reports late counts from then on:
    its ranks may have met again by then, until the Job fails by its own policy."""
    ASKED = "stopped before a person asked for a restart"
    """The controller read the request before it read the loss: the incident begins with the request."""
    INCOMPLETE = "without a rank that a resize has added"
    """There was no room for that rank. The others train without it, and all that the API shows is a group of which not
    all members have run yet: its Job replaces what it loses."""
    UNEXPLAINED = "unexplained"
    # Time that an incident books although the training ran.
    EARLY = "ran on after the evidence"
    """From the start of an incident to the first stop in it: a pod that dies slowly, a fault that stops no rank yet."""
    MEETING = "a member was lost before all had met"
    """The others wait for it and meet when its replacement comes. Their processes are older than the loss, so without a
    probe such a group looks like one that hangs, and the restart that waits for its backoff is made."""
    LATE = "trains before the incident ends"
    BETWEEN = "trained for a while during the incident"
    NEVER = "the training did not stop"
    BACKDATED = "trained before the incident was opened"
    """No controller led at that time, or a pause was on. The incident is dated by the first loss since then, whatever
    the training did before the incident was opened."""
    LIVED = "the processes of a lost pod lived on"
    """Its node was cut off, or it could not be ended: the API shows a loss, and the training goes on."""
    ADDED = "a rank that a resize has added failed"
    """The ranks from before train on without it. Whether they have taken it in, and hang, nothing in the API shows."""
    OUTLIVES = "trains before a held incident is over"
    """It is held for an error of its own, so it stays open until the group has outlived that error. If the group loses
    a member before, or the incident ends in another way, its end is not dated back to when the training went on."""
    UNREPORTED = "trains before it reports progress"
    """In phase Resuming: the ranks have met, and the training is still to report again. Only that report shows when it
    makes steps again, so the time until then counts as lost."""
    ENDED = "after the training has ended"
    """Nothing trains, and nothing is lost: all ranks have made their last step. Their pods can still fail, by another
    container, and their Jobs make them again: the group then needs a recovery in order to be Completed."""
    NOT_YET = "before the ranks had ever met"
    """All of them have run at once, which is all that the API shows, and wait for one another: a user has changed how
    many they are, and not the number in their settings."""
    UNSEEN = "trains, though it seems not to have started"
    """Nothing says which container trains, and one that cannot start keeps its pods from being Running."""
    CLOCK = "a wrong clock of the controller's"
    UNMARKED = "undated, and no container is known to train"


@dataclass(frozen=True)
class Outage:
    """A training stood still."""

    since: datetime
    """When it made its last step."""
    until: datetime
    """When all ranks met again, or the end of the trace."""
    over: bool = True
    """They did meet again."""
    formed_at: datetime | None = None
    """When the ranks had met that made that step. None: not known."""


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
    """Its phases Held for an error of its own, each from and until when."""
    withheld: tuple[tuple[datetime, datetime], ...] = ()
    """Its phases Backoff, each from and until when: a restart waits."""
    size_kept: tuple[tuple[datetime, datetime], ...] = ()
    """Its phases Held because a user has resized a Job, each from and until when: until a person decides."""
    verified: bool = False
    """All ranks have said that they have met."""
    manual: bool = False
    """A person's request opened it."""
    opened_at: datetime | None = None
    """When it was opened. None: not known; it could read everything."""
    resuming: tuple[tuple[datetime, datetime], ...] = ()
    """Its phases Resuming, each from and until when."""
    settles: timedelta = timedelta()
    """How long its policy has the verdict wait for late evidence (`settle`)."""


@dataclass(frozen=True)
class Dated:
    """A moment that an object gives for a loss, and while it could be read."""

    at: datetime
    seen_at: datetime
    gone_at: datetime | None = None
    """When the object was gone. None: it is there."""
    inferred: bool = False
    """It is the creation of the pod that took the place of a lost one."""

    def readable_at(self, moment: datetime) -> bool:
        return self.seen_at <= moment and (self.gone_at is None or moment < self.gone_at)


@dataclass(frozen=True)
class Circumstance:
    """What is known of the workload from a moment on, whether or not its training stands still then."""

    since: datetime
    excuse: str = ""
    """Why no incident can be expected. Empty: one can."""
    takes_down: bool = False
    """It ends the ranks: no incident can be expected until they have met again either."""
    for_good: bool = False
    """And it ends all ranks that had met before it, at whatever time."""
    baseline_until: datetime | None = None
    """Losses from before this moment are a baseline. None: none are."""


@dataclass(frozen=True)
class Stretch:
    """A part of an outage, or of an incident."""

    since: datetime
    until: datetime
    account: str
    """An `Account`, or an excuse."""
    incident: str = ""
    """Which one books it, or ended before it. Empty: none."""

    @property
    def seconds(self) -> float:
        return (self.until - self.since).total_seconds()


def outages(rounds: Sequence[Round], ends_at: datetime) -> Iterator[Outage]:
    """The times in which a training stood still, from its first round on. The end of a finished one is no outage."""
    for number, each in enumerate(rounds, 1):
        after = rounds[number] if number < len(rounds) else None
        if each.ended_at is not None and each.outcome is not TrainingOutcome.FINISHED:
            until = after.formed_at if after else ends_at
            yield Outage(each.ended_at, until, over=after is not None, formed_at=each.formed_at)


def after_the_end(rounds: Sequence[Round], ends_at: datetime) -> Iterator[tuple[datetime, datetime]]:
    """From when and until when a training had ended: until its ranks met once more, or the end of the trace."""
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
    when those of its phases Held began that are for an error of its own; `resized`: those that keep a user's size; a
    restart takes both from the ledger."""
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

    `incidents`: of that training, oldest first. `dated`: what the objects of that training ever said about losses.
    `circumstances`: oldest first.
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
    """The earliest of these moments within the outage; its end: there is none."""
    return min((max(each.at, outage.since) for each in dated), default=outage.until)


def stopped_unseen(outage: Outage, incident: Booked, at: datetime, dated: Iterable[Dated]) -> bool:
    """The ranks had met within the incident, and nothing dates before that moment that they have stopped since."""
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
    """Account and incident of the stretch that begins at that moment; dates only of what stopped in an incident."""
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
    """The stretches of an incident that are no part of an outage. `ended`: from when and until when the training had
    ended (`after_the_end`)."""
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
    """Separates the parts that had passed when the incident was opened, those in phase Resuming, and those in which the
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
    """What is wrong with the books of one closed incident, in words: its phases tile it, and every GPU-second of it is
    on one of them."""
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
    # Spans with fewer nodes, or with more, hold other GPUs than the incident began with.
    resized = sum(
        (span.ended_at - span.started_at).total_seconds() * (incident.gpus_in(span) - incident.gpus)
        for span in spans
        if span.ended_at is not None
    )
    if abs(spent - seconds * incident.gpus - resized) > ROUNDING_GPU_SECONDS * len(spans):
        yield f"incident {incident.id} books {spent:.3f} GPU-seconds of {seconds:.3f} s with {incident.gpus} GPUs"


def broken_totals(incidents: Iterable[Incident], totals: Totals) -> Iterator[str]:
    """What is wrong with the totals of a group, in words: they are the sums over the spans of its incidents that are
    over. `incidents`: all of them that the group ever had.

    Not by phase: the two oldest spans of a long incident become one (`phases.MAX_SPANS`).
    """
    spans = [span for incident in incidents for span in incident.phases if span.ended_at is not None]
    total = sum(totals.idle_gpu_seconds.values()) + totals.released_gpu_seconds
    spent = sum(gpu_seconds(span) for span in spans)
    if abs(total - spent) > ROUNDING_GPU_SECONDS * (len(spans) + 1):
        yield f"the totals say {total:.3f} GPU-seconds, the incidents {spent:.3f}"


def gpu_seconds(span: PhaseSpan) -> float:
    """Of a span that is over, idle and released."""
    return span.idle_gpu_seconds + span.released_gpu_seconds


def recovered_late(incident: Booked, stops: Sequence[Outage]) -> timedelta | None:
    """From when all ranks had met to when the incident says that they are back; negative: it says so too early. None:
    it does not say so, or no stop lies in it.

    Its end may be dated a second late. So a rank that is lost again in that second was lost after it.
    """
    if not incident.ending.startswith(Outcome.RECOVERED):
        return None
    inside = [each for each in stops if each.since <= incident.until and each.until > incident.since]
    if len(inside) > 1 and inside[-1].since > incident.until - API_TIME:
        inside.pop()
    return incident.until - inside[-1].until if inside else None
