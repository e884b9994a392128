"""`recovery explain JOB`: what the controller sees of a job, what it decides right now, and what it has done before.

The controller's own function decides, from objects that are read for this answer and the current ledger. Nothing is
carried out or written.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import msgspec

from recovery.cli import explain_lines, explain_nodes_and_deadlines, explain_size, explain_standing
from recovery.cli.applied_policy import AppliedPolicy, policy_of
from recovery.cli.arguments import ServerOptions
from recovery.cli.birth_policy import BirthPolicy, read_birth_policy
from recovery.cli.connection import CommandError, Connection, chosen_namespace, connect, execute
from recovery.cli.controller_lease import Leader, LeaderProbe
from recovery.cli.elastic_outlook import ElasticOutlook, elastic_outlook
from recovery.cli.exit_codes import print_error
from recovery.cli.explain_kueue import concerns_kueue, kueue_lines
from recovery.cli.formatting import AccountOutput, age, moment, print_data, printable
from recovery.cli.job_lookup import absence, title_of
from recovery.cli.proof_words import proof_line
from recovery.cli.status_rows import JobRow, as_data, job_row, ledger_problem, stamp
from recovery.core.decision import crash_loop
from recovery.core.decision.decide import decide
from recovery.core.decision.judged import as_judged
from recovery.core.decision.protection import protection
from recovery.core.incident import budget, requests
from recovery.core.incident.lifecycle import present
from recovery.core.incident.preconditions import paused
from recovery.core.model.annotations import PAUSED_ANNOTATION
from recovery.core.model.facts import GroupKey, WorkloadFacts
from recovery.core.model.fleet_ledger import FleetLedger
from recovery.core.model.ledger import Incident, Ledger
from recovery.core.model.protection import Protection
from recovery.core.model.reason import Explanation
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode, PolicyError
from recovery.core.sentences import render
from recovery.kube.cluster_reader import JobReading, read_job, with_fleet
from recovery.kube.incident_records import read_incident
from recovery.kube.kueue_workloads import KueueReading, read_kueue_workloads
from recovery.report.enforce_words import enforce_sentence
from recovery.report.proof_account import proof_account


def show_explanation(
    server: ServerOptions,
    namespace: str | None,
    job: str,
    incident_id: str | None,
    output: AccountOutput,
) -> None:
    """Print the explanation. If the job or the incident does not exist: one line, and exit code 1."""
    execute(_explain(server, namespace, job, incident_id, output))


async def _explain(
    server: ServerOptions,
    namespace: str | None,
    job: str,
    incident_id: str | None,
    output: AccountOutput,
) -> int:
    async with connect(server) as connection:
        key = GroupKey(await chosen_namespace(server, namespace), job)
        reading = await read_job(connection.client, key)
        now = connection.clock.now()
        for line in reading.unreadable:
            print_error(line)
        if incident_id is not None:
            incident = await _incident(connection, key, reading, incident_id)
            if output is AccountOutput.TEXT:
                _print(f"Incident of {_kind(reading)} {key}", explain_lines.incident_lines(incident, now))
            else:
                print_data(msgspec.to_builtins(incident), as_yaml=output is AccountOutput.YAML)
            return 0
        workload = reading.snapshot.workload
        if workload is None:
            raise await absence(connection.client, key, reading.snapshot.undecodable)
        leader = await LeaderProbe(connection.client, connection.clock).leader()
        explanation = _Explanation(key, workload, reading, leader, now)
        if words := explanation.about_leader:
            print_error(words)
        if explanation.asks_the_fleet:
            snapshot = await with_fleet(connection.client, reading.snapshot, now, room=explanation.seeks_room)
            reading = msgspec.structs.replace(reading, snapshot=snapshot)
            birth_policy = await read_birth_policy(connection.client) if explanation.outlook is not None else None
            explanation = _Explanation(key, workload, reading, leader, now, birth_policy)
        if concerns_kueue(workload):
            explanation.kueue = await read_kueue_workloads(connection.client, key.namespace, job_uid=workload.uid)
    if output is AccountOutput.TEXT:
        explanation.print()
    else:
        print_data(explanation.as_data(), as_yaml=output is AccountOutput.YAML)
    return 0


def _kind(reading: JobReading) -> str:
    """The kind of the job. An incident does not show it, so a deleted job is only `job`."""
    return reading.snapshot.workload.kind if reading.snapshot.workload is not None else "job"


async def _incident(connection: Connection, key: GroupKey, reading: JobReading, incident_id: str) -> Incident:
    """The incident from the ledger, else from its record, which outlives the job."""
    incident = reading.group.ledger.incident if reading.group is not None else None
    if incident is not None and incident.id == incident_id:
        return incident
    recorded = await read_incident(connection.client, key, incident_id)
    if recorded is None:
        raise CommandError(f"there is no incident {incident_id!r} of job {key}")
    return recorded


class _Explanation:
    """Everything that is shown about one job."""

    def __init__(
        self,
        key: GroupKey,
        workload: WorkloadFacts,
        reading: JobReading,
        leader: Leader,
        now: datetime,
        birth_policy: BirthPolicy | None = None,
    ) -> None:
        """`birth_policy` None: it was not read."""
        self.kueue = KueueReading()
        """What Kueue says. Empty unless it may manage the job."""
        self._birth_policy = birth_policy
        self._key = key
        self._workload = workload
        self._reading = reading
        self._leader = leader
        self._now = now
        self._selection = policy_of(reading.policies, workload)
        self._unreadable = ledger_problem(reading.group)
        self._ledger = reading.group.ledger if reading.group is not None and not self._unreadable else Ledger()

        self._plan = None if self._unreadable else self._decided(workload, self._selection.decides)
        """None: the ledger cannot be read, so nothing is decided."""
        self._after_pause = None if self._unreadable else self._decided_without_pause()
        """What would be decided if the pause ended now. None: there is none, or nothing is decided."""

    def _decided(self, workload: WorkloadFacts, policy: Policy | PolicyError | None) -> Plan:
        snapshot = msgspec.structs.replace(self._reading.snapshot, workload=workload)
        return decide(snapshot, self._ledger, policy, self._now)

    def _decided_without_pause(self) -> Plan | None:
        policy, workload = self._selection.decides, self._workload
        if not isinstance(policy, Policy) or not (paused(workload) or policy.global_pause is not None):
            return None
        annotations = {name: value for name, value in workload.annotations.items() if name != PAUSED_ANNOTATION}
        return self._decided(
            msgspec.structs.replace(workload, annotations=annotations),
            msgspec.structs.replace(policy, global_pause=None),
        )

    @property
    def asks_the_fleet(self) -> bool:
        """The answer depends on all nodes of the cluster."""
        return self._decided_by_fleet or self.outlook is not None

    @property
    def _decided_by_fleet(self) -> bool:
        """The decision depends on all nodes: an incident is open or would be opened, or the group has too few nodes."""
        plans = [plan for plan in (self._plan, self._after_pause) if plan is not None]
        return bool(plans) and (any(plan.ledger.incident is not None for plan in plans) or self._grows)

    @property
    def _grows(self) -> bool:
        """The group grows once there is room for it."""
        return self._ledger.elastic is not None and self._ledger.incident is None

    @property
    def seeks_room(self) -> bool:
        """The answer shows whether the group has room for more pods."""
        return self._grows or self.outlook is not None

    @property
    def outlook(self) -> ElasticOutlook | None:
        """What a loss would mean. None: the group is not elastic, or something has been lost already."""
        plan = self._plan
        if plan is None or plan.ledger.incident is not None:
            return None
        return elastic_outlook(self._reading.snapshot, self._ledger, self._selection.policy)

    @property
    def _enforces(self) -> bool:
        """In mode Enforce, what Enforce would have done is no longer of interest."""
        return self._selection.policy is not None and self._selection.policy.mode is Mode.ENFORCE

    @property
    def _asks_for_proof(self) -> bool:
        """The group has recovered before, or its policy asks for a proof that it does."""
        policy = self._selection.policy
        return self._ledger.proof is not None or (policy is not None and policy.proof_max_age is not None)

    def _not_asked(self) -> str:
        """What the decision leaves out. Empty: nothing."""
        left_out = self._decided_by_fleet and self._reading.snapshot.fleet is None
        return "nodes may not be listed, so caps, feasible nodes and storms were not asked" if left_out else ""

    def _protection(self) -> Protection:
        reading = self._reading
        found = protection(self._workload, reading.snapshot, reading.group, self._selection.decides, self._now)
        return self._leader.protects(found)

    @property
    def about_leader(self) -> str:
        """Empty: a controller leads, or that is not known and no controller would restart the job anyway."""
        return self._leader.words() if self._leader.leads is False or self._protection().protected else ""

    def print(self) -> None:
        ledger, now = self._ledger, self._now
        print(f"{title_of(self._key, self._workload)}, created {age(self._workload.created_at, now)} ago")
        print(printable(explain_lines.protection_line(self._protection())))
        if self._asks_for_proof:
            print(printable(proof_line(proof_account(ledger), now)))
        _print("Policy", explain_lines.policy_lines(self._selection, ledger, now))
        _print("Now", self._readiness_lines())
        self._print_if_any("Kueue", self._kueue_lines())
        plan = self._plan
        if plan is None:
            _print("Decision", [f"none, and no controller of this version takes one: {self._unreadable}"])
            return
        self._print_if_any("Crash loop", self._crash_loop_lines())
        left_out = self._not_asked()
        _print("Decision", [*self._decision_lines(plan), *([left_out] if left_out else [])])
        self._print_if_any(
            "Next", explain_nodes_and_deadlines.next_lines(plan, self._reading.snapshot, self._selection.decides, now)
        )
        self._print_if_any("Size", explain_size.size_lines(ledger, self.outlook, self._birth_policy))
        self._print_if_any("Nodes", self._node_lines(plan))
        self._print_if_any("Requests", explain_lines.request_lines(self._workload, ledger))
        if ledger.incident is not None:
            shown = self._evidence_of(ledger)
            _print("Incident", explain_lines.incident_lines(ledger.incident, now, shown))
        elif plan.ledger.incident is not None:
            shown = self._evidence_of(plan.ledger)
            lines = explain_lines.incident_lines(plan.ledger.incident, now, shown)
            _print("Incident, as it would be opened now", lines)
        self._print_after_pause()
        if ledger.totals.enforce_estimate.restarts and not self._enforces:
            _print("With Enforce", (enforce_sentence(ledger.totals.enforce_estimate),))
        if ledger.history:
            last = explain_lines.last_incident_lines(ledger.history[0], self._key, now)
            _print("Last incident" if ledger.incident is None else "Incident before", last)
            _print("History", explain_lines.history_lines(ledger.history, now))

    def _evidence_of(self, ledger: Ledger) -> tuple[str, ...]:
        """The evidence of the ledger's incident that the objects still show, in words."""
        if ledger.incident is None:
            return ()
        snapshot = as_judged(self._reading.snapshot, ledger, self._selection.decides, self._now)
        return tuple(item.text for item in present(snapshot, ledger))

    def _print_after_pause(self) -> None:
        """The decision names everything that was lost during the pause."""
        plan = self._after_pause
        if plan is None:
            return
        _print("If the pause ended now", self._decision_lines(plan))
        if self._ledger.incident is None and plan.ledger.incident is not None:
            shown = self._evidence_of(plan.ledger)
            lines = explain_lines.incident_lines(plan.ledger.incident, self._now, shown)
            _print("Incident, as it would be opened then", lines)

    def _readiness_lines(self) -> Iterator[str]:
        snapshot, found = self._reading.snapshot, self._protection()
        yield from explain_standing.standing_lines(self._row().standing, snapshot, self._ledger, found)
        yield from explain_lines.readiness_lines(snapshot, self._workload, self._ledger, found, self._now)

    def _crash_loop_lines(self) -> Iterator[str]:
        """What restarts the group without end, and how a person stops that. No line: nothing does."""
        context = ReconcileContext(
            self._reading.snapshot, self._workload, self._selection.decides, self._now, self._ledger.epoch
        )
        why, ends_at = crash_loop.seen(context, self._ledger), crash_loop.ends_at(context, self._ledger)
        if why is not None and ends_at is not None:
            yield render(why)
            yield f"it counts as a crash loop until {moment(ends_at)}, or until recovery reset-budget {self._key.name}"

    def _kueue_lines(self) -> Iterator[str]:
        return kueue_lines(self.kueue, self._workload, self._key.namespace)

    def _row(self) -> JobRow:
        reading = self._reading
        return job_row(
            self._key, self._workload, reading.group, reading.policies, self._leader, self._now, reading.snapshot
        )

    def _decision_message(self, plan: Plan) -> str:
        return explain_standing.decision_message(plan, self._ledger, self._protection())

    def _decision_lines(self, plan: Plan) -> list[str]:
        """The sentence of the decision, and the actions that it would take."""
        return [self._decision_message(plan), *(f"it would {words}" for words in explain_lines.action_lines(plan))]

    def _decision_data(self, plan: Plan) -> dict[str, Any]:
        would = explain_lines.action_lines(plan)
        return {"reason": str(plan.reason), "message": self._decision_message(plan), "wouldDo": would}

    @staticmethod
    def _print_if_any(title: str, lines: Iterable[str]) -> None:
        found = list(lines)
        if found:
            _print(title, found)

    def _node_lines(self, plan: Plan | None) -> Iterator[str]:
        config = self._reading.policies.config
        fleet = config.fleet if config is not None else FleetLedger()
        incident = plan.ledger.incident if plan is not None else None
        yield from explain_nodes_and_deadlines.node_lines(
            self._reading.snapshot, self._selection.decides, fleet, incident, self._now
        )
        yield from explain_nodes_and_deadlines.avoided_lines(self._ledger, self._now)

    def as_data(self) -> dict[str, Any]:
        """The row of `status -o json`, and what the text shows beyond it. `decision` null: nothing is decided."""
        plan, ledger, snapshot = self._plan, self._ledger, self._reading.snapshot
        after = self._after_pause
        opened = after.ledger.incident if after is not None and ledger.incident is None else None
        row = as_data(self._row())
        return row | {
            "policy": row["policy"] | _policy_data(self._selection, ledger, self._now),
            "now": list(self._readiness_lines()),
            "crashLoop": list(self._crash_loop_lines()),
            "kueue": list(self._kueue_lines()),
            "decision": plan and self._decision_data(plan) | {"notAsked": self._not_asked()},
            "afterPause": after and self._decision_data(after) | {"incident": msgspec.to_builtins(opened)},
            "next": list(explain_nodes_and_deadlines.next_lines(plan, snapshot, self._selection.decides, self._now))
            if plan
            else [],
            "elastic": explain_size.size_data(ledger, self.outlook, self._birth_policy),
            "nodes": list(self._node_lines(plan)),
            "ledgerProblem": self._unreadable,
            "requests": msgspec.to_builtins(ledger.requests),
            "pendingRequests": [
                {"verb": str(verb), **msgspec.to_builtins(asked)}
                for verb, asked in requests.pending(self._workload, ledger)
            ],
            "incident": msgspec.to_builtins(ledger.incident),
            "evidence": list(self._evidence_of(ledger)),
            "history": msgspec.to_builtins(ledger.history),
        }


def _policy_data(selection: AppliedPolicy, ledger: Ledger, now: datetime) -> dict[str, Any]:
    """What the row lacks about the policy."""
    policy = selection.policy
    if policy is None:
        return {"why": selection.why, "error": str(selection.error or "")}
    frees_at = budget.frees_at(ledger.budget, policy.budget_limit, policy.budget_window, now)
    return {
        "why": selection.why,
        "restart": str(policy.restart),
        "globalPause": _message(policy.global_pause),
        "breaker": _message(policy.breaker),
        "budgetFreesAt": stamp(frees_at),
    }


def _message(why: Explanation | None) -> str:
    """The sentence. Empty: there is nothing to explain."""
    return render(why) if why is not None else ""


def _print(title: str, lines: Iterable[str]) -> None:
    print(f"\n{title}:")
    for line in lines:
        print(f"  {printable(line)}")
