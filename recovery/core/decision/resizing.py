"""Sizes of an elastic group: when it shrinks, and when it grows again.

A size changes by a restart of the whole group, like any other: birth settings first (`birth`), then the trigger. Pods
that the scheduler cannot place are the evidence for a shrink. Accelerators that have been free for long enough are the
evidence for a growth. Only the restart shows whether that is right: a growth that does not find its nodes is undone.
"""

from datetime import datetime, timedelta

import msgspec

from recovery.core.decision import avoidance, birth
from recovery.core.decision.guards import Move, Question, first_stop
from recovery.core.decision.verdict import Call, Verdict
from recovery.core.diagnosis.membership import group_runs_whole, member_count, pods_of
from recovery.core.diagnosis.resized import template_size
from recovery.core.incident import attempt_limits, preconditions, sizes
from recovery.core.model.durations import in_words
from recovery.core.model.facts import JobFacts, PodFacts, Room, Snapshot, WorkloadFacts
from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.model.rules import RuleAction
from recovery.core.plan.context import ReconcileContext
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode

PLACED_IN = timedelta(seconds=5)
"""The time that the scheduler gets to place the next pod, after it has placed one or one was created."""
GROWTH_GIVES_UP_AFTER = timedelta(seconds=30)
"""A growth whose pods have no node for this long is undone, because the whole group waits for them."""
AVOIDS_FOR = timedelta(seconds=15)
"""A group whose pods find no node for this long stops avoiding nodes."""
ROOM_ASKED_EVERY = timedelta(seconds=15)
"""How often a smaller group asks for room. A change of nodes makes it ask at once."""
DOUBLINGS_MAX = 8
"""The wait before a growth doubles at most this many times: 5 minutes become 21 hours."""


class NotShrunk(msgspec.Struct, frozen=True):
    """Why a group keeps its size for now although some of its pods have no node."""

    why: Explanation | None = None
    """None: there is nothing to report."""
    due_at: datetime | None = None
    """When it may be shrunk. None: time alone changes nothing."""


# --- fewer ---------------------------------------------------------------------------------------------------------


def smaller(context: ReconcileContext, ledger: Ledger) -> Verdict | NotShrunk:
    """Whether a group continues with fewer nodes because some of its pods have none."""
    open_, snapshot = ledger.current_incident, context.snapshot
    elastic = open_.pinned.elastic
    if elastic is None or open_.mode != Mode.ENFORCE:
        return NotShrunk()
    refused = next((each for each in open_.considered if each.action == Call.SHRINK), None)
    if refused is not None:
        return NotShrunk()
    job = sizes.resizable(snapshot)
    if isinstance(job, Explanation):
        return NotShrunk(job)
    placing_until = _placing_until(snapshot, job)
    if context.now < placing_until:
        return NotShrunk(due_at=placing_until)
    placed = _placed(snapshot, job)
    wanted = sizes.wanted_nodes(ledger, snapshot, job)
    nodes = sizes.largest(elastic, len(placed), wanted)
    if nodes is None:
        least = sizes.smallest(elastic, wanted)
        return NotShrunk(
            because(Reason.BELOW_MIN_NODES, placed=len(placed), ranks=member_count(job), least=least),
        )
    # A group that is down for its own growth does not wait for the budget too.
    charge = elastic.charge and not _undoes(ledger)
    due_at = _shrink_due_at(ledger, elastic, undoes=_undoes(ledger))
    if nodes >= member_count(job) or context.now < due_at:
        return NotShrunk(due_at=due_at if context.now < due_at else None)
    refusal = attempt_limits.refused(ledger, context.now, free=not charge)
    if refusal is not None:
        return NotShrunk(refusal.why, refusal.frees_at)
    reason = Reason.GROWTH_UNDONE if _undoes(ledger) else Reason.NODES_NOT_REPLACED
    why = because(reason, placed=len(placed), ranks=member_count(job), nodes=nodes, policy=open_.pinned.policy_name)
    return Verdict(Call.SHRINK, why, rule=open_.rule, charge=charge, nodes=nodes)


def _undoes(ledger: Ledger) -> bool:
    """The latest restart is a growth that has not brought the group back."""
    restart = attempt_limits.restart_of(ledger)
    return restart is not None and restart.action is AttemptAction.GROW


def _placed(snapshot: Snapshot, job: JobFacts) -> list[PodFacts]:
    """The members on a node that can run them."""
    pods = (pod for pod in pods_of(snapshot, job) if pod.node and pod.deleting_since is None)
    living = (pod for pod in pods if pod.phase not in {"Failed", "Succeeded"} and pod.dead_since is None)
    nodes = snapshot.nodes
    return [pod for pod in living if pod.node not in nodes or nodes[pod.node].ready]


def _placing_until(snapshot: Snapshot, job: JobFacts) -> datetime:
    """From this moment on, pods without a node count as pods that no node has room for.

    To create and place a large group takes longer than `PLACED_IN`: a controller-manager creates about twenty pods a
    second, and a scheduler binds about fifty.
    """
    moments = (moment for pod in pods_of(snapshot, job) for moment in (pod.created_at, pod.scheduled_at))
    return max((moment for moment in moments if moment is not None), default=job.created_at) + PLACED_IN


def _shrink_due_at(ledger: Ledger, elastic: PinnedElastic, *, undoes: bool) -> datetime:
    """When the group may shrink: not before the scheduler has had its time."""
    open_ = ledger.current_incident
    phase_began_at = open_.phases[-1].started_at
    if undoes:
        return phase_began_at + GROWTH_GIVES_UP_AFTER
    rule = next((each for each in open_.pinned.rules if each.name == open_.rule), None)
    at_once = rule is not None and rule.action is RuleAction.SHRINK
    patience = timedelta() if at_once else timedelta(seconds=elastic.shrink_after_seconds)
    return max(open_.started_at + patience, phase_began_at + PLACED_IN)


# --- more ----------------------------------------------------------------------------------------------------------


class AtRest(msgspec.Struct, frozen=True):
    """What a group without an incident calls for, if it runs with fewer nodes than it is to have."""

    ledger: Ledger
    why: Explanation | None = None
    """What it waits for. None: it is not a smaller group, or no longer one."""
    grows: Verdict | None = None
    """The verdict to grow now. None: it does not grow."""
    requeue_at: datetime | None = None
    """When to ask again. None: only when something changes."""


def at_rest(context: ReconcileContext, ledger: Ledger, policy: Policy) -> AtRest:
    """One reconcile of a group without an incident."""
    ledger = agreed(context, ledger)
    if ledger.elastic is None:
        return AtRest(ledger)
    if not group_runs_whole(context.snapshot):
        return AtRest(sizes.interrupted(ledger, context.snapshot, context.now))
    ledger = sizes.running(ledger, context.now)
    state = ledger.elastic
    if state is None:
        return AtRest(ledger)
    elastic, job = policy.elastic, sizes.resizable(context.snapshot)
    if elastic is None or policy.mode is not Mode.ENFORCE:
        return AtRest(_with_room(ledger, None), _waits(state, "its policy does not let it grow"))
    if isinstance(job, Explanation):
        return AtRest(_with_room(ledger, None), job)
    return _with_growth(context, ledger, state, elastic)


def _with_growth(context: ReconcileContext, ledger: Ledger, state: ElasticState, elastic: PinnedElastic) -> AtRest:
    fleet = context.snapshot.fleet
    room = fleet.room if fleet is not None else None
    ask_at = context.now + ROOM_ASKED_EVERY
    if room is None:
        return AtRest(ledger, _waits(state, "it is not known where there is room"), requeue_at=ask_at)
    nodes = sizes.largest(elastic, state.nodes + room.pods, state.wanted_nodes)
    if nodes is None or nodes <= state.nodes:
        return AtRest(_with_room(ledger, None), _waits(state, _too_little(room, state, elastic)), requeue_at=ask_at)
    # Nodes come back one by one, and each growth costs a restart, so the wait begins again with each of them.
    known = state.room_nodes is not None and nodes <= state.room_nodes
    since = state.room_since if known and state.room_since is not None else context.now
    since = min(since, context.now)  # a clock that jumped back
    patience = timedelta(seconds=elastic.grow_back_after_seconds) * 2 ** min(state.failed_growths, DOUBLINGS_MAX)
    due_at = max(since + patience, _interval_ends_at(context, ledger) or since)
    ledger = _with_room(ledger, since, nodes)
    if context.now < due_at:
        since_when = f"{since:%Y-%m-%dT%H:%M:%SZ}"
        said = f"there has been room for {nodes} since {since_when}, and it grows {in_words(patience)} after that"
        return AtRest(ledger, _waits(state, said), requeue_at=min(due_at, ask_at))
    stop = first_stop(Move.GROW, Question(context, ledger))
    if stop is not None:
        return AtRest(ledger, stop.why, requeue_at=ask_at)
    spent = attempt_limits.spent(ledger, context.policy, context.now) if elastic.charge else None
    if spent is not None:
        return AtRest(ledger, spent, requeue_at=ask_at)
    why = because(
        Reason.ROOM_AGAIN,
        nodes=nodes,
        before=state.nodes,
        where=_named(room.nodes),
        spares=len(room.spares),
        since=f"{since:%Y-%m-%dT%H:%M:%SZ}",
    )
    return AtRest(ledger, why, Verdict(Call.GROW, why, charge=elastic.charge, nodes=nodes))


def _interval_ends_at(context: ReconcileContext, ledger: Ledger) -> datetime | None:
    """When `backoff.minInterval` since the last restart ends. None: there was none."""
    if ledger.restart_ended_at is None or not isinstance(context.policy, Policy):
        return None
    return ledger.restart_ended_at + context.policy.backoff.min_interval


def _too_little(room: Room, state: ElasticState, elastic: PinnedElastic) -> str:
    more = range(1, state.wanted_nodes - state.nodes + 1)
    needed = next((each for each in more if sizes.allowed(elastic, state.nodes + each, state.wanted_nodes)), None)
    reserved = f", and {room.reserved} are reserved for waiting groups" if room.reserved else ""
    if not room.pods:
        return f"there is no room for more pods{reserved}"
    least = f", and the next allowed size needs {needed}" if needed is not None else ""
    return f"there is room for {room.pods} more {'pod' if room.pods == 1 else 'pods'}{least}{reserved}"


def _named(nodes: tuple[str, ...]) -> str:
    shown = ", ".join(nodes[:4])
    return f"{shown} and {len(nodes) - 4} more" if len(nodes) > 4 else shown


def _waits(state: ElasticState, why: str) -> Explanation:
    return because(Reason.WAITING_FOR_ROOM, nodes=state.nodes, wanted=state.wanted_nodes, why=why)


def _with_room(ledger: Ledger, since: datetime | None, nodes: int | None = None) -> Ledger:
    state = ledger.elastic
    if state is None or (state.room_since, state.room_nodes) == (since, nodes):
        return ledger
    return msgspec.structs.replace(ledger, elastic=msgspec.structs.replace(state, room_since=since, room_nodes=nodes))


# --- ledger and Job agree ------------------------------------------------------------------------------------------


def agreed(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger with the size that the Job has, no matter who has changed it.

    If a user has set the size, the group is to have that size from then on. If others have created the Job again
    without the settings, it has the size of its template.
    """
    ledger = _avoiding_still(context, ledger)
    job, state = sizes.only_job(context.snapshot), ledger.elastic
    if job is None:
        return ledger
    if state is None:
        elastic = isinstance(context.policy, Policy) and context.policy.elastic is not None
        return sizes.found_smaller(ledger, context.snapshot, job) if elastic else ledger
    if member_count(job) == state.nodes:
        return ledger
    if member_count(job) == template_size(context.snapshot, job) or sizes.by_user(job):
        return msgspec.structs.replace(sizes.booked(ledger, context.now), elastic=None)
    return sizes.as_born(sizes.booked(ledger, context.now), context.snapshot, job)


def followed(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger of a restarted group, with the size of its new Job.

    That may not be the size that the latest restart is for: an API server that lags has created the Job with earlier
    settings, or others have had it created again while a size was being tried.
    """
    job, open_, settings = sizes.only_job(context.snapshot), ledger.current_incident, ledger.birth_settings
    restart = attempt_limits.restart_of(ledger)
    if job is None or job.uid in open_.target.job_uids or restart is None:
        return ledger
    # A size that a user has set before does not make a smaller group, and a restart that is made for it applies it.
    made_before = settings is not None and restart.started_at < settings.since
    by_others = made_before or restart.action is AttemptAction.ADOPTED
    if ledger.elastic is not None or (by_others and member_count(job) < open_.ranks):
        return sizes.as_born(ledger, context.snapshot, job)
    return ledger


def settled(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger of a group whose next Job is to have the size of the present one: no other size is being tried."""
    return birth.kept(context, agreed(context, ledger))


def _avoiding_still(context: ReconcileContext, ledger: Ledger) -> Ledger:
    """The ledger without the nodes that the group has avoided for long enough."""
    still = avoidance.current(context, ledger)
    return ledger if still == ledger.avoided else msgspec.structs.replace(ledger, avoided=still)


def without_avoidance(context: ReconcileContext, ledger: Ledger) -> tuple[Ledger, Verdict] | None:
    """The ledger of a group that stops avoiding nodes because some of its pods find none, and the restart for that.

    None: its Job was not created to avoid any, or the scheduler has not had its time.
    """
    job = sizes.only_job(context.snapshot)
    began_at = ledger.current_incident.phases[-1].started_at
    if not ledger.avoided or job is None or not job.birth_revision or context.now < began_at + AVOIDS_FOR:
        return None
    why = because(
        Reason.AVOIDANCE_ENDED,
        placed=len(_placed(context.snapshot, job)),
        ranks=member_count(job),
        nodes=", ".join(each.node for each in ledger.avoided),
    )
    after = msgspec.structs.replace(ledger, avoided=())
    return after, Verdict(Call.RECREATE_GROUP, why, charge=False)


def at_an_end(ledger: Ledger, workload: WorkloadFacts, now: datetime) -> Ledger:
    """The ledger of a job that has ended or is suspended. It books the time that the job has run with fewer nodes.

    A job that has ended needs no settings. One that is suspended gets the same settings when it is resumed.
    """
    stood_still = workload.condition("Complete") or workload.condition("Suspended")
    since = stood_still.since if stood_still is not None else None
    ledger = sizes.booked(ledger, now if since is None else min(since, now))
    over = preconditions.ended(workload) is not None
    return msgspec.structs.replace(ledger, elastic=None, birth_settings=None, avoided=()) if over else ledger
