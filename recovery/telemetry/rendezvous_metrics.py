"""How long groups need to meet, as their agents or their joined probes show it.

What nothing measured is not observed: Ready pods without a joined probe only show that their containers run. Where both
exist, the agents' measurement counts, and the other one does not. All of it runs in the controller's event loop, like
the reconciles that report here.
"""

from collections.abc import Collection
from datetime import datetime

from prometheus_client import CollectorRegistry

from recovery.core.diagnosis.membership import member_jobs
from recovery.core.model.agent_facts import AgentFacts
from recovery.core.model.facts import GroupKey, Snapshot
from recovery.core.model.ledger import AttemptAction, Incident, Ledger, Phase, PhaseSpan
from recovery.ports import Clock, GroupStore
from recovery.telemetry.agent_rendezvous import AgentGroup
from recovery.telemetry.catalogue import of_fleet
from recovery.telemetry.catalogue.label_values import AGENT, INTERRUPTED, JOINED_ALL, JOINED_PROBE, START
from recovery.telemetry.families import histogram
from recovery.telemetry.incident_instruments import known_before, spans_ended

_DURATION_SECONDS = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600)
"""The buckets below 1 s are for restarts in place."""
_USUAL = (
    (AGENT, START),
    (AGENT, AttemptAction.RESTART_IN_PLACE),
    (AGENT, AttemptAction.RECREATE_GROUP),
    (JOINED_PROBE, AttemptAction.RECREATE_GROUP),
)
_SINCE_TRIGGER_SECONDS = (0.5, 1, 2.5, 5, 10, 20, 30, 45, 60, 90, 120, 180, 300, 600, 1200, 3600)


class _Group:
    """A group of the workload with this UID."""

    def __init__(self, workload_uid: str, ledger: Ledger) -> None:
        self.workload_uid = workload_uid
        self.job_uids: Collection[str] = ()
        """The member Jobs, as the latest reconcile has read them."""
        incident = ledger.incident
        self.agents = AgentGroup(incident.attempts if incident is not None else ())


class RendezvousMetrics:
    """The histograms of rendezvous, and what the agents report about the present ones."""

    def __init__(self, registry: CollectorRegistry, clock: Clock) -> None:
        self._clock = clock
        self._duration = histogram(of_fleet.RENDEZVOUS_DURATION, registry, _DURATION_SECONDS)
        self._since_trigger = histogram(of_fleet.RENDEZVOUS_SINCE_TRIGGER, registry, _SINCE_TRIGGER_SECONDS)
        for source, cause in _USUAL:  # start at 0, so that the first one is an increase, also after a restart of ours
            self._duration.labels(source, JOINED_ALL, cause)
            if source == AGENT and cause != START:
                self._since_trigger.labels(cause)
        self._store: GroupStore | None = None
        self._leads_since: datetime | None = None
        """None: another process leads. The leader of before has observed what ended before."""
        self._groups: dict[GroupKey, _Group] = {}

    def follow(self, store: GroupStore) -> None:
        """Read in this store which restart a rendezvous follows, if its ledger was written before this term."""
        self._store = store

    def leadership_changed(self, *, leads: bool) -> None:
        self._leads_since = self._clock.now() if leads else None
        self._groups.clear()

    def facts_read(self, key: GroupKey, snapshot: Snapshot) -> None:
        """A reconcile has read the group."""
        if snapshot.workload is not None:
            self._group(key, snapshot.workload.uid).job_uids = frozenset(job.uid for job in member_jobs(snapshot))

    def gone(self, key: GroupKey) -> None:
        """The workload is gone."""
        self._groups.pop(key, None)

    def reported(self, key: GroupKey, facts: AgentFacts) -> None:
        """The agents of the group have reported."""
        if self._leads_since is None or self._store is None:
            return
        group = self._groups.get(key)
        if group is None:
            workload = self._store.snapshot(key).workload
            if workload is None:
                return
            group = self._group(key, workload.uid)
        for each in group.agents.heard(facts, self._leads_since):
            self._duration.labels(AGENT, each.outcome, each.cause).observe(each.seconds)
            if each.since_trigger_seconds is not None:
                self._since_trigger.labels(each.cause).observe(each.since_trigger_seconds)

    def agents_of(self, key: GroupKey) -> AgentFacts | None:
        """The latest report of the group's agents. None: there is none, or it is about a Job that is gone."""
        group = self._groups.get(key)
        facts = group.agents.present(self._clock.now()) if group is not None else None
        return facts if group is not None and facts is not None and facts.job_uid in group.job_uids else None

    def ledger_written(self, key: GroupKey, before: Ledger, after: Ledger) -> None:
        """Observe the rendezvous that ended with this write, if a joined probe has measured it."""
        incident = after.incident
        if incident is None:
            return
        group = self._groups.get(key)
        if group is not None and incident.attempts:
            group.agents.attempts = incident.attempts
        agents = self.agents_of(key)
        if (agents is not None and agents.meets) or not _has_probe(incident):
            return
        for span, ended_at in spans_ended(known_before(before, incident), incident):
            if span.phase is Phase.RENDEZVOUS:
                outcome = JOINED_ALL if _joined(incident, span) else INTERRUPTED
                seconds = (ended_at - span.started_at).total_seconds()
                self._duration.labels(JOINED_PROBE, outcome, _cause(incident, span)).observe(seconds)

    def _group(self, key: GroupKey, workload_uid: str) -> _Group:
        """The group, which is another one if a workload of the same name has taken its place."""
        group = self._groups.get(key)
        if group is None or group.workload_uid != workload_uid:
            found = self._store.ledger_object(key, workload_uid) if self._store is not None else None
            group = self._groups[key] = _Group(workload_uid, found.ledger if found is not None else Ledger())
        return group


def _has_probe(incident: Incident) -> bool:
    """A joined probe shows the end of a rendezvous of this incident."""
    source = incident.closing.source if incident.closing is not None else ""
    return source == JOINED_PROBE or (incident.probe_proven and source != "ready")


def _joined(incident: Incident, span: PhaseSpan) -> bool:
    """All had joined when the span ended: the training continues then, or the incident ends as recovered."""
    following = incident.phases[incident.phases.index(span) + 1 :]
    if following:
        return following[0].phase is Phase.RESUMING
    return incident.closing is not None and bool(incident.closing.source)


def _cause(incident: Incident, span: PhaseSpan) -> str:
    before = [each.action for each in incident.attempts if each.started_at <= span.started_at]
    return str(before[-1] if before else AttemptAction.NONE)
