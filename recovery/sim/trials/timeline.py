"""A trial as text: what happened to its objects, what the controller decided and did, and where an invariant broke."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from recovery.controller.lease import LEASE_NAME
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.standing import Standing
from recovery.ports import JOB_SETS, JOBS, LEASES, PODS, TRAIN_JOBS, Resource
from recovery.sim.api.store import ObjectChange
from recovery.sim.training.trace import EventKind, TraceRecord
from recovery.sim.training.training import JOBSET_NAME_LABEL
from recovery.sim.trials.ledger_history import LedgerWrite, action_of, ledger_writes
from recovery.sim.trials.trial_evidence import RequestRecord, TrialEvidence, Violation

MAX_LINES = 80
AFTER_LINES = 8
"""How many of those lines follow the violation."""
QUIET_SECONDS = 60.0
"""After so long without any lines, what happened before is over."""
_TOGETHER_SECONDS = 10.0
"""Similar things that happen within this time are merged into one line."""
_HOLDER = re.compile(rb'"holderIdentity":"([^"]*)"')
_WORKLOADS = (TRAIN_JOBS, JOB_SETS, JOBS)
_ENDS = ("Complete", "Completed", "Failed", "FailureTarget", "SuccessCriteriaMet")
_TRAINING = {
    EventKind.ROUND_FORMED: "all ranks have met; training goes on from step {step}",
    EventKind.RANK_LOST: "rank {index} was lost at step {step}; the others hang",
    EventKind.FINISHED: "training is finished at step {step}",
}


@dataclass(frozen=True)
class Line:
    at: datetime
    text: str
    group: str = ""
    """Namespace and name of the job that it is about, joined by a slash. Empty: all jobs."""
    counts: str = ""
    """What a merged line counts, as in `pods of team-a/llm deleted`. Empty: the line is never merged."""
    number: int = 1
    """How many of these the line reports."""
    mark: str = " "


def timeline(evidence: TrialEvidence, violation: Violation | None = None) -> list[str]:
    """The lines of the whole trial. `violation`: only what led to it, from the last quiet moment before it, in at most
    80 lines."""
    lines = _together(sorted(_lines(evidence), key=lambda line: line.at))
    if violation is not None:
        lines = _around(lines, violation)
    return [f"{line.mark} {offset(line.at - evidence.began_at)}  {_text(line)}" for line in lines]


def offset(since_start: timedelta) -> str:
    """As in `+01:23:45.678`."""
    milliseconds = round(since_start / timedelta(milliseconds=1))
    seconds, milliseconds = divmod(milliseconds, 1000)
    return f"+{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{milliseconds:03}"


def _text(line: Line) -> str:
    return f"{line.number} {line.counts}" if line.counts and line.number > 1 else line.text


def _together(lines: Iterable[Line]) -> list[Line]:
    """Merges lines of one kind into one, at the place of the first, even if other lines are between them."""
    merged: list[Line] = []
    places: dict[str, int] = {}
    for line in lines:
        place = places.get(line.counts) if line.counts else None
        if place is not None and (line.at - merged[place].at).total_seconds() <= _TOGETHER_SECONDS:
            merged[place] = replace(merged[place], number=merged[place].number + 1)
            continue
        if line.counts:
            places[line.counts] = len(merged)
        merged.append(line)
    return merged


# Around a violation.


def _around(lines: Sequence[Line], violation: Violation) -> list[Line]:
    """The violation with the lines around it, without other jobs and what came before the last pause."""
    group = str(violation.group) if violation.group is not None else ""
    about = [line for line in lines if not group or line.group in ("", group)]
    marked = Line(violation.at, f"{violation.invariant}: {violation.sentence}", group, mark=">")
    before = [line for line in about if line.at <= violation.at]
    after = [line for line in about if line.at > violation.at][:AFTER_LINES]
    before = before[_last_quiet(before, violation.at) :]
    room = MAX_LINES - len(after) - 1
    if len(before) > room:
        left_out = len(before) - room + 1
        before = before[left_out:]
        before.insert(0, Line(before[0].at, f"({left_out} lines before this one are left out)"))
    return [*before, marked, *after]


def _last_quiet(lines: Sequence[Line], at: datetime) -> int:
    """Index of the first line after the last pause that a fault followed. A story begins with a fault."""
    found = 0
    for number in range(len(lines) - 1, 0, -1):
        pause_seconds = (lines[number].at - lines[number - 1].at).total_seconds()
        if pause_seconds >= QUIET_SECONDS and any(line.mark == "!" and line.at <= at for line in lines[number:]):
            found = number
            break
    return found


# What the lines say.


def _lines(evidence: TrialEvidence) -> Iterator[Line]:
    yield Line(evidence.healing_from, "healing begins: nothing breaks from now on")
    for happening in evidence.happenings:
        yield Line(happening.at, happening.sentence, happening.fault.job, mark="!")
    for at, sentence in evidence.remarks:
        yield Line(at, sentence, mark="!")
    for life in evidence.processes:
        yield Line(life.started_at, f"{life.actor}: process {life.process} starts")
        if life.ended_at is not None:
            yield Line(life.ended_at, f"{life.actor}: process {life.process} ends, {life.how}")
    for failed in evidence.failed_reconciles:
        text = f"{failed.actor}: a reconcile of {failed.group} ended in {failed.error}"
        yield Line(
            failed.at,
            text,
            str(failed.group),
            f"reconciles of {failed.group} by {failed.actor} ended in {failed.error}",
        )
    yield from _of_ledgers(ledger_writes(evidence))
    yield from _of_leases(evidence.requests)
    for record in evidence.requests:
        yield from _of_request(record, evidence.jobs)
    replicas = {record.actor for record in evidence.requests}
    for change, at in zip(evidence.changes, evidence.change_times, strict=True):
        if change.actor not in replicas:  # The changes of replicas are reported as requests.
            yield from _of_change(change, at)
    for event in evidence.trace.records:
        yield from _of_training(event)


def _of_ledgers(writes: Iterable[LedgerWrite]) -> Iterator[Line]:
    """What is new in the ledgers. A sentence in which only numbers change is shown once, and a longer one only from its
    new part on."""
    sentences: dict[GroupKey, str] = {}
    for write in writes:
        incident, before = write.after.incident, write.before
        sentence = incident.message if incident is not None and incident.message else write.after.message
        known = sentences.get(write.group, "")
        phase = _shown_phase(write.after)
        if phase == _shown_phase(before) and _outline(sentence) == _outline(known):
            continue
        sentences[write.group] = sentence
        epoch = f" (epoch {write.after.epoch})" if write.after.epoch != before.epoch else ""
        news = _news(sentence, known)
        text = f"{write.actor}: {write.group} {phase}{epoch}{f': {news}' if news else ''}"
        yield Line(write.at, text, str(write.group))


def _shown_phase(ledger: Ledger) -> str:
    """The phase, or Broken for a group that hangs between incidents, as `recovery status` shows it."""
    return str(ledger.phase if ledger.broken is None or ledger.phase is not Phase.HEALTHY else Standing.BROKEN)


def _news(sentence: str, known: str) -> str:
    """The sentence from its first new part on. Empty: all its parts are known."""
    parts, old = sentence.split("; "), known.split("; ")
    same = 0
    while same < min(len(parts), len(old)) and parts[same] == old[same]:
        same += 1
    return "; ".join(parts) if same == 0 else "; ".join(["…", *parts[same:]] if parts[same:] else [])


def _outline(sentence: str) -> str:
    return re.sub(r"\d+", "0", sentence)


def _of_leases(records: Iterable[RequestRecord]) -> Iterator[Line]:
    leader: str | None = None
    for record in records:
        if record.request.resource != LEASES or not record.applied or not _about_election(record):
            continue
        found = _HOLDER.search(record.request.body or b"")
        holder = found.group(1).decode() if found is not None else ""
        if holder == leader:
            continue
        leader = holder
        yield Line(record.at, f"{holder} leads" if holder else f"{record.actor} gives the lease up; no replica leads")


def _about_election(record: RequestRecord) -> bool:
    return record.request.verb == "create" or record.request.name == LEASE_NAME


def _of_request(record: RequestRecord, jobs: Iterable[GroupKey]) -> Iterator[Line]:
    """A write to the workload or its pods. Ledgers, Leases and Events are reported elsewhere, or not at all."""
    request = record.request
    if not request.writes or request.resource not in (*_WORKLOADS, PODS):
        return
    answer = "no answer" if record.code is None else str(record.code)
    what = "applied" if record.applied else "not applied"
    outcome = answer if record.applied and record.code is not None and record.code < 300 else f"{answer}, {what}"
    action = action_of(record)
    title = f"{action.__name__}, {request}" if action is not None else str(request)
    group = _owner(request.namespace or "", request.name or "", jobs)
    counts = (
        f"pods of {group} are asked to go by {record.actor}" if request.resource == PODS and not record.fault else ""
    )
    yield Line(record.at, f"{record.actor}: {title}: {outcome}", group, counts)


def _owner(namespace: str, name: str, jobs: Iterable[GroupKey]) -> str:
    """The job that an object of that name belongs to. Empty: none."""
    owners = [
        key for key in jobs if key.namespace == namespace and (name == key.name or name.startswith(f"{key.name}-"))
    ]
    return str(max(owners, key=lambda key: len(key.name))) if owners else ""


def _of_change(change: ObjectChange, at: datetime) -> Iterator[Line]:
    if change.resource == PODS:
        yield from _of_pod(change, at)
    elif change.resource in _WORKLOADS:
        title = f"{change.resource.kind} {_title(change.body)}"
        for what in _of_workload(change):
            yield Line(at, f"{change.actor}: {title} {what}", _group_of(change.resource, change.body))


def _of_pod(change: ObjectChange, at: datetime) -> Iterator[Line]:
    what = ""
    if change.type == "ADDED":
        what = "made"
    elif change.type == "DELETED":
        what = "gone"
    elif _deleting(change.body) and not _deleting(change.before):
        what = "being deleted"
    elif _phase(change.body) != _phase(change.before):
        what = _phase(change.body)
    if not what:
        return
    group = _group_of(PODS, change.body)
    yield Line(at, f"pod {_title(change.body)} is {what}", group, f"pods of {group} are {what}")


def _of_workload(change: ObjectChange) -> Iterator[str]:
    body, before = change.body, change.before
    if change.type == "ADDED":
        yield f"is made, uid {body['metadata']['uid']}"
        return
    if change.type == "DELETED":
        yield "is gone"
        return
    if _deleting(body) and not _deleting(before):
        yield "is being deleted"
    suspended = _suspended(body)
    if suspended != _suspended(before):
        yield "is suspended" if suspended else "is resumed"
    for condition in _ended(body):
        if condition not in _ended(before):
            yield f"has condition {condition}"
    restarts = body.get("status", {}).get("restarts", 0)
    if before is not None and restarts != before.get("status", {}).get("restarts", 0):
        yield f"counts restart {restarts}"


def _of_training(event: TraceRecord) -> Iterator[Line]:
    words = _TRAINING.get(event.kind)
    if words is not None:
        yield Line(event.at, f"{event.training}: {words.format(step=event.step, index=event.index)}", event.training)


# Bodies.


def _title(body: Mapping[str, Any]) -> str:
    return f"{body['metadata']['namespace']}/{body['metadata']['name']}"


def _group_of(resource: Resource, body: Mapping[str, Any]) -> str:
    metadata = body["metadata"]
    labelled = metadata.get("labels", {}).get(JOBSET_NAME_LABEL) if resource in (JOBS, PODS) else None
    return str(GroupKey(metadata["namespace"], labelled or metadata["name"]))


def _deleting(body: Mapping[str, Any] | None) -> bool:
    return body is not None and "deletionTimestamp" in body["metadata"]


def _phase(body: Mapping[str, Any] | None) -> str:
    return str(body.get("status", {}).get("phase", "")) if body is not None else ""


def _suspended(body: Mapping[str, Any] | None) -> bool:
    return body is not None and body.get("spec", {}).get("suspend") is True


def _ended(body: Mapping[str, Any] | None) -> list[str]:
    if body is None:
        return []
    conditions = body.get("status", {}).get("conditions", ())
    return [
        f"{each['type']} ({each.get('reason', '')})"
        for each in conditions
        if each["type"] in _ENDS and each["status"] == "True"
    ]
