"""Which log is read at the time of a trigger, if any. It is chosen here and read elsewhere."""

import msgspec

from recovery.core.model.facts import ContainerFacts, Snapshot
from recovery.core.model.ledger import Suspect
from recovery.core.model.suspect_log import LogAbsence, SuspectLog, last_bytes, plain_text
from recovery.core.plan.actions import DeleteJob, DeleteJobSet, FailJobSet, Plan, SuspendWorkload

_TRIGGERS = (DeleteJob, DeleteJobSet, FailJobSet, SuspendWorkload)
"""Actions that remove the pods of the group, and their logs with them."""


class LogToRead(msgspec.Struct, frozen=True):
    """The log of an incident's first suspect."""

    incident_id: str
    known: SuspectLog
    """What is known without reading. With `absent` set there is nothing to read."""


def log_to_read(snapshot: Snapshot, plan: Plan) -> LogToRead | None:
    """None: the plan triggers nothing, or the incident names no suspect or already has its log."""
    incident = plan.ledger.incident
    if incident is None or incident.closing is not None or incident.suspect_log is not None or not incident.suspects:
        return None
    if not any(isinstance(action, _TRIGGERS) for action in plan.actions):
        return None
    return LogToRead(incident.id, _known(snapshot, incident.suspects[0]))


def _known(snapshot: Snapshot, suspect: Suspect) -> SuspectLog:
    pod = next((each for each in snapshot.pods if each.name == suspect.pod and each.gone_at is None), None)
    if pod is None:
        return SuspectLog(suspect.pod, absent=LogAbsence.NOT_FOUND)
    if not pod.containers:
        absent = LogAbsence.NO_LOGS if pod.training_known else LogAbsence.NO_TRAINING_CONTAINER
        return SuspectLog(suspect.pod, absent=absent)
    container = max(pod.containers, key=lambda each: _shows(each, suspect))  # the first of equals
    exits = (each for each in (container.exit, container.last_exit) if each is not None)
    failed = next((each for each in exits if each.code == suspect.exit_code), None)
    return SuspectLog(
        pod=pod.name,
        container=container.name,
        previous=failed is not None and failed is not container.exit,
        termination_message=last_bytes(plain_text(failed.message).strip()) if failed is not None else "",
    )


def _shows(container: ContainerFacts, suspect: Suspect) -> int:
    """How well the container matches the suspect's exit: by its present exit (2), by the one before (1), or not (0)."""
    code = suspect.exit_code
    if code is None:
        return 0
    if container.exit is not None and container.exit.code == code:
        return 2
    return 1 if container.last_exit is not None and container.last_exit.code == code else 0
