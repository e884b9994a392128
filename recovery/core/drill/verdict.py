"""How a drill ended: its expectations against the records of the incidents that it caused.

The client of the drill and the controller ask the same function, so that they cannot differ. All seconds are read from
the incidents. The client's clock only dates the end of the run, and does not hide what the incidents show.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from recovery.core.model.drill import DrillCase, DrillEnd, DrillFacts, DrillSpec, DrillStatus, DrillVerdict
from recovery.core.model.durations import parse_duration
from recovery.core.model.ledger import Incident, IncidentHandling, Outcome
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.plan.parts import message_of

_TRIED_AGAIN = frozenset({Reason.START_TIMEOUT, Reason.RENDEZVOUS_TIMEOUT, Reason.IN_PLACE_TIMEOUT})
"""Reasons of attempts for which no loss was needed: the attempt before did not bring the group back."""
_WORST_FIRST = (DrillVerdict.FAILED, DrillVerdict.ABORTED, DrillVerdict.INCONCLUSIVE, DrillVerdict.PASSED)


def judge(spec: DrillSpec, uid: str, repeat: int, incidents: Sequence[Incident], now: datetime) -> DrillCase:
    """The result of one repeat.

    `uid`: of the RecoveryDrill. `incidents`: all of the workload, open or closed, that began while the repeat ran; also
    those that the drill did not cause.
    """
    mine = [each for each in incidents if each.drill and (each.drill.uid, each.drill.repeat) == (uid, repeat)]
    spans = [span for each in mine for span in each.phases]
    seconds: dict[str, float] = {}
    for span in spans:
        spent = ((span.ended_at or now) - span.started_at).total_seconds()
        seconds[span.phase] = round(seconds.get(span.phase, 0.0) + spent, 3)
    steps = next((each.training_steps for each in reversed(mine) if each.training_steps is not None), None)
    verdict, why = _verdict(spec, uid, mine, incidents, now)
    return DrillCase(
        repeat=repeat,
        verdict=verdict,
        reason=why.reason,
        message=message_of(why),
        incidents=tuple(each.id for each in mine),
        recovery_seconds=_recovery_seconds(mine),
        idle_gpu_seconds=_idle(mine),
        seconds_by_phase=seconds,
        attempts=sum(len(each.attempts) for each in mine),
        actions=tuple(dict.fromkeys(str(attempt.action) for each in mine for attempt in each.attempts)),
        resumed_step=steps.resumed if steps is not None else None,
        lost_steps=steps.lost if steps is not None else None,
    )


def exceeded(spec: DrillSpec, mine: Sequence[Incident], now: datetime) -> Explanation | None:
    """The objective that the incidents of a repeat exceed, also while one is open. None: they exceed none."""
    if spec.slo.recovery is not None and mine:
        limit = parse_duration(spec.slo.recovery, "spec.slo.recovery").total_seconds()
        ends = [each.closing.ended_at if each.closing is not None else now for each in mine]
        took = (max(ends) - min(each.started_at for each in mine)).total_seconds()
        if took > limit:
            return because(Reason.DRILL_TOO_SLOW, seconds=f"{took:.1f}", limit=f"{limit:g}")
    most = spec.slo.idle_gpu_seconds
    if most is not None:
        spent = _idle(mine) + sum(_idle_in_open_phase(each, now) for each in mine)
        if spent > most:
            return because(Reason.DRILL_TOO_COSTLY, gpu_seconds=f"{spent:.0f}", limit=f"{most:g}")
    return None


def _verdict(
    spec: DrillSpec, uid: str, mine: Sequence[Incident], incidents: Sequence[Incident], now: datetime
) -> tuple[DrillVerdict, Explanation]:
    strange = _disturbance(spec, uid, mine, incidents)
    if strange is not None:
        return DrillVerdict.INCONCLUSIVE, because(Reason.DRILL_DISTURBED, what=strange)
    if (over := exceeded(spec, mine, now)) is not None:
        return DrillVerdict.FAILED, over
    for each in mine:
        if (state := _not_recovered(each)) is not None:
            return DrillVerdict.FAILED, because(Reason.DRILL_NOT_RECOVERED, incident=each.id, state=state)
    helped = next((each for each in mine if each.handling is not IncidentHandling.AUTOMATIC), None)
    if helped is not None:
        what = f"incident {helped.id} did not recover by itself ({helped.handling})"
        return DrillVerdict.INCONCLUSIVE, because(Reason.DRILL_DISTURBED, what=what)
    charged = [each for each in mine if each.charged]
    if len(charged) > spec.hypothesis.charged:
        state = "was charged to the budget, because the first restart did not bring the group back"
        return DrillVerdict.FAILED, because(Reason.DRILL_NOT_RECOVERED, incident=charged[0].id, state=state)
    expected = spec.hypothesis.incidents
    if len(mine) != expected:
        return DrillVerdict.FAILED, because(Reason.DRILL_UNEXPECTED_INCIDENTS, count=len(mine), expected=expected)
    if spec.hypothesis.resumes_past is not None and mine:
        resumed = [found for each in mine if (found := _resumed(spec, each)) is not None]
        refuted = next((found for found in resumed if found[0] is DrillVerdict.FAILED), None)
        # Ranks that the next act has stopped may have made no step. How the last ones went on has to be known.
        if (found := refuted or _resumed(spec, mine[-1])) is not None:
            return found
    return DrillVerdict.PASSED, because(Reason.DRILL_AS_EXPECTED, what=_summary(mine))


def _disturbance(spec: DrillSpec, uid: str, mine: Sequence[Incident], incidents: Sequence[Incident]) -> str | None:
    """What happened besides the drill. None: nothing."""
    other = next((each for each in incidents if each.drill is None or each.drill.uid != uid), None)
    if other is not None:
        return f"incident {other.id} ({other.cause})"
    charged = [each for each in mine if each.charged]
    own = [each for each in charged if not _only_tried_again(each)]
    if own and len(charged) > spec.hypothesis.charged:
        return f"incident {own[0].id} was charged to the budget for a failure of its own"
    return None


def _only_tried_again(incident: Incident) -> bool:
    """All restarts that the drill did not cause were made because an earlier one did not bring the group back."""
    again = sum(each.reason in _TRIED_AGAIN for each in incident.attempts)
    return 0 < incident.restarts - incident.drill_restarts <= again


def _not_recovered(incident: Incident) -> str | None:
    """How the incident stands, if it did not end with a group that trains. None: it did."""
    closing = incident.closing
    if closing is None:
        return "is still open"
    if closing.outcome is not Outcome.RECOVERED:
        return f"ended as {closing.outcome}"
    return "ended, and ranks still hang" if closing.still_broken else None


def _resumed(spec: DrillSpec, last: Incident) -> tuple[DrillVerdict, Explanation] | None:
    """The verdict about the step that the training continued from. None: it is as expected."""
    steps = last.training_steps
    if steps is None or steps.resumed is None:
        why = "no agent reports training steps" if steps is None else "the restarted ranks have made no step"
        return DrillVerdict.INCONCLUSIVE, because(Reason.DRILL_RESUME_UNKNOWN, why=why)
    if not steps.absolute:
        why = "the steps count from the start of the processes"
        return DrillVerdict.INCONCLUSIVE, because(Reason.DRILL_RESUME_UNKNOWN, why=why)
    expected = spec.checkpoint_step
    if expected is not None and steps.resumed < expected:
        what = f"the checkpoint of step {expected}"
        return DrillVerdict.FAILED, because(Reason.DRILL_RESUMED_EARLIER, step=steps.resumed, expected=what)
    if steps.resumed <= 0 < steps.before:
        return DrillVerdict.FAILED, because(Reason.DRILL_RESUMED_EARLIER, step=steps.resumed, expected="any checkpoint")
    return None


def _summary(mine: Sequence[Incident]) -> str:
    if not mine:
        return "no incident"
    took = _recovery_seconds(mine)
    said = f"recovered in {took:.1f} s" if took is not None else "recovered"
    verified = all(each.closing is not None and each.closing.verified for each in mine)
    return said if verified else f"{said}, as far as Ready pods show it"


def _recovery_seconds(mine: Sequence[Incident]) -> float | None:
    ends = [each.closing.ended_at for each in mine if each.closing is not None]
    if not ends:
        return None
    return round((max(ends) - min(each.started_at for each in mine)).total_seconds(), 3)


def _idle(mine: Iterable[Incident]) -> float:
    return round(sum(span.idle_gpu_seconds for each in mine for span in each.phases), 3)


def _idle_in_open_phase(incident: Incident, now: datetime) -> float:
    last = incident.phases[-1] if incident.phases else None
    if last is None or last.ended_at is not None or last.released:
        return 0.0
    return max(0.0, (now - last.started_at).total_seconds()) * incident.gpus_in(last)


def worst(cases: Iterable[DrillCase]) -> DrillVerdict:
    """The verdict of a run. Aborted: none of its repeats was judged."""
    found = {each.verdict for each in cases}
    return next((each for each in _WORST_FIRST if each in found), DrillVerdict.ABORTED)


def final_cases(drill: DrillFacts, incidents: Sequence[Incident], now: datetime) -> tuple[DrillCase, ...]:
    """The results of all repeats that have begun, once the drill is over. If it was stopped before its last repeat, the
    first one that was not judged is Aborted."""
    repeats = dict.fromkeys(each.repeat for each in drill.counting)
    of_repeats = {repeat: _of_repeat(drill, repeat, incidents) for repeat in repeats}
    cases = [judge(drill.spec, drill.uid, repeat, found, now) for repeat, found in of_repeats.items()]
    stopped = _stopped(drill)
    if stopped is None or not cases:
        return tuple(cases)
    last = cases[-1]
    if last.verdict is DrillVerdict.PASSED and last.repeat < drill.spec.repeat:
        aborted = DrillCase(last.repeat + 1, DrillVerdict.ABORTED, stopped.reason, stopped.message)
        return (*cases, aborted)
    if not _refuted(last, of_repeats[last.repeat]):
        cases[-1] = msgspec.structs.replace(
            last, verdict=DrillVerdict.ABORTED, reason=stopped.reason, message=stopped.message
        )
    return tuple(cases)


def final_status(drill: DrillFacts, incidents: Sequence[Incident], now: datetime) -> DrillStatus:
    """The status of a drill that is over."""
    cases = final_cases(drill, incidents, now)
    verdict, refusal, stopped = worst(cases), drill.status.refusal, _stopped(drill)
    said = next((each.message for each in cases if each.verdict is verdict), "")
    if not cases and refusal is not None:
        said = refusal.message
    elif not cases and stopped is not None:
        said = stopped.message
    return msgspec.structs.replace(drill.status, cases=cases, verdict=verdict, message=said)


def _stopped(drill: DrillFacts) -> DrillEnd | None:
    """Why the run ended before all repeats were run. None: all were run."""
    end = drill.spec.end
    if end is None:
        why = because(Reason.DRILL_ABANDONED, expires=f"{drill.over_at:%Y-%m-%dT%H:%M:%SZ}")
        return DrillEnd(drill.over_at, why.reason, message_of(why))
    return None if end.reason is Reason.DRILL_DONE else end


def _refuted(case: DrillCase, incidents: Sequence[Incident]) -> bool:
    """The repeat has failed, whatever would have come after the stop: what is still open or was not done yet could
    still have passed."""
    if case.verdict is not DrillVerdict.FAILED or case.reason is Reason.DRILL_UNEXPECTED_INCIDENTS:
        return False
    return case.reason is not Reason.DRILL_NOT_RECOVERED or all(each.closing is not None for each in incidents)


def _of_repeat(drill: DrillFacts, repeat: int, incidents: Sequence[Incident]) -> Sequence[Incident]:
    """The incidents of the repeat, and those that the drill did not cause and that began while the repeat ran.

    The first repeat begins with the drill. A later one begins with its first incident, or after the incidents before it
    if it has none. Each ends where the next one begins.
    """
    mine = {each.id: each.drill.repeat for each in incidents if each.drill is not None and each.drill.uid == drill.uid}
    of_it = [each for each in incidents if mine.get(each.id) == repeat]
    earlier = [each for each in incidents if mine.get(each.id, repeat) < repeat]
    later = [each.started_at for each in incidents if mine.get(each.id, repeat) > repeat]
    begun, until = drill.created_at, min(later, default=None)
    if earlier:
        begun = min((each.started_at for each in of_it), default=max(_last_date(each) for each in earlier))
    end = drill.spec.end
    # A clock of the client that is behind must not hide what happened.
    if end is not None and end.at >= max((_last_date(each) for each in (*earlier, *of_it)), default=drill.created_at):
        until = min(until or datetime.max.replace(tzinfo=end.at.tzinfo), end.at)
    strange = [
        each
        for each in incidents
        if each.id not in mine and each.started_at >= begun and (until is None or each.started_at <= until)
    ]
    return (*of_it, *strange)


def _last_date(incident: Incident) -> datetime:
    return incident.closing.ended_at if incident.closing is not None else incident.started_at
