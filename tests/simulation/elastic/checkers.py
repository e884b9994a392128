"""The invariants of an elastic group. Each is checked on the changes of a finished trial.

They compare what was written with the state of the cluster, never with what the controller would have decided. Only
`is_allowed` is a second implementation of product code: of `sizes.allowed`, which restates the policy.
"""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from itertools import pairwise

from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import AttemptAction, Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.ports import JOBS, PODS, RECOVERY_GROUPS
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.sim.api.kinds.kind import Body
from recovery.sim.trials.manifests import JOBSET_LABEL, TRAINER
from recovery.sim.trials.trial import TrialOutcome
from recovery.sim.trials.trial_evidence import Violation
from tests.simulation.elastic.replay import Seen, Trial

SEEN_WITHIN = timedelta(seconds=16)
"""A smaller group looks for room every 15 s: nodes that are occupied for a shorter time may go unnoticed."""
TRIED_WITHIN = timedelta(seconds=10)
"""From the verdict until its restart, dry runs included."""
LABELLED_BEFORE = timedelta(seconds=1)
"""The label may exist this long without settings: the two are written separately."""
BOOKED_WITHIN_SECONDS = 2.0
"""For each time with fewer nodes, at both of its ends."""
_AROUND = timedelta(seconds=60)

Check = Callable[[Trial], Iterator[tuple[datetime, str]]]


def violations(outcome: TrialOutcome) -> Iterator[Violation]:
    """Violations of the invariants here, and of those that hold in every trial."""
    trial = Trial.of(outcome)
    for check in CHECKS:
        yield from (Violation(check.__name__, at, sentence) for at, sentence in check(trial))
    yield from outcome.violations


def is_allowed(elastic: PinnedElastic, nodes: int, wanted: int) -> bool:
    """Whether the size is allowed by the policy's own words (docs/policy.md)."""
    if nodes == wanted:
        return True
    between = elastic.min_nodes <= nodes <= min(elastic.max_nodes, wanted)
    return between and nodes % elastic.multiple_of == 0 and nodes in (elastic.allowed_sizes or (nodes,))


def every_size_is_allowed(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """A Job has the full size or one that the policy allows, and never more pods than its JobSet's template."""
    for change, seen in trial.steps():
        if change.resource != JOBS or change.body["metadata"]["uid"] not in seen.jobs:
            continue
        nodes, template = change.body["spec"]["parallelism"], _template(seen)
        if template is not None and nodes > template:
            yield seen.at, f"the Job has {nodes} pods, its template {template}"
        if not is_allowed(trial.elastic, nodes, trial.job.pods):
            yield seen.at, f"the Job has {nodes} pods, and {trial.elastic} of {trial.job.pods} does not allow that"


def _template(seen: Seen) -> int | None:
    if seen.jobset is None:
        return None
    replicated = (each for each in seen.jobset["spec"]["replicatedJobs"] if each["name"] == TRAINER)
    return int(next(replicated)["template"]["spec"]["parallelism"])


def all_pods_at_once(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """Parallelism and completions of a Job are always equal."""
    for change, seen in trial.steps():
        spec = change.body.get("spec", {})
        if change.resource == JOBS and spec.get("parallelism") != spec.get("completions"):
            yield seen.at, f"a Job has parallelism {spec.get('parallelism')} and completions {spec.get('completions')}"


def ranks_are_told_the_size(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """PET_NNODES in the pods is the size of their Job, and that many ranks meet."""
    sizes: dict[str, int] = {}
    for change, seen in trial.steps():
        metadata = change.body["metadata"]
        if change.resource == JOBS:
            sizes[metadata["uid"]] = change.body["spec"]["completions"]
        if change.resource != PODS or change.type != "ADDED" or not _of_group(trial, change.body):
            continue
        size = sizes.get(metadata["ownerReferences"][0]["uid"])
        told = {
            variable.get("value")
            for container in change.body["spec"]["containers"]
            for variable in container.get("env") or ()
            if variable["name"] == "PET_NNODES"
        }
        if told != {str(size)}:
            yield seen.at, f"pod {metadata['name']} is told {told}, and its Job has {size}"
    for each in trial.outcome.evidence.rounds(str(trial.job)):
        if each.size != sizes[each.job_uid]:
            yield each.formed_at, f"{each.size} ranks of Job {each.job_uid} met, and it has {sizes[each.job_uid]}"


def _of_group(trial: Trial, pod: Body) -> bool:
    return bool(pod["metadata"].get("labels", {}).get(JOBSET_LABEL) == trial.job.name)


def every_job_has_the_size_of_the_ledger(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """A new Job, no matter who caused it, has the size in the ledger or a size that is being tried just then."""
    tried: list[tuple[datetime, int]] = []
    before = Ledger()
    for change, seen in trial.steps():
        if change.resource == RECOVERY_GROUPS:
            sizes = {_size(trial, ledger) for ledger in (before, seen.ledger)} | {_asked(trial, seen.ledger)}
            tried += [(seen.at, size) for size in sizes] if _changed(before, seen.ledger) else []
            before = seen.ledger
        if change.resource != JOBS or change.type != "ADDED" or change.body["metadata"]["uid"] not in seen.jobs:
            continue
        nodes = change.body["spec"]["parallelism"]
        recent = {size for at, size in tried if seen.at - at <= TRIED_WITHIN}
        if nodes not in {_size(trial, seen.ledger), *recent}:
            yield seen.at, f"a Job is made with {nodes} pods, and the ledger says {_size(trial, seen.ledger)}"


def _size(trial: Trial, ledger: Ledger) -> int:
    return trial.job.pods if ledger.elastic is None else ledger.elastic.nodes


def _asked(trial: Trial, ledger: Ledger) -> int:
    settings = ledger.birth_settings
    return trial.job.pods if settings is None or settings.nodes is None else settings.nodes


def _changed(before: Ledger, after: Ledger) -> bool:
    nodes = [each.elastic.nodes if each.elastic is not None else None for each in (before, after)]
    return nodes[0] != nodes[1] or before.birth_settings != after.birth_settings


def growths_have_their_room(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """A group grows only to a size for which nodes were free, and only after they were free for `growBackAfter`. This
    wait doubles with each growth that has failed in a row."""
    free: list[tuple[datetime, int]] = []
    epoch, state = 0, None
    for _, seen in trial.steps():
        ledger = seen.ledger
        nodes = seen.free_nodes([each.node for each in ledger.avoided])
        if not free or free[-1][1] != nodes:
            free.append((seen.at, nodes))
        grows = ledger.incident is not None and ledger.incident.attempt is not None
        if ledger.epoch > epoch and grows and ledger.current_incident.attempts[-1].action is AttemptAction.GROW:
            if state is None or ledger.elastic is None:
                yield seen.at, "a group grows that was not smaller"
            else:
                yield from _grown(trial, free, state, ledger.elastic.nodes, seen.at)
        epoch, state = ledger.epoch, ledger.elastic


def _grown(
    trial: Trial, free: list[tuple[datetime, int]], before: ElasticState, nodes: int, at: datetime
) -> Iterator[tuple[datetime, str]]:
    needed = nodes - before.nodes
    latest = [count for since, until, count in _spans(free, at) if until >= at - TRIED_WITHIN]
    if max(latest) < needed:
        yield at, f"it grows from {before.nodes} to {nodes}, and {max(latest)} nodes are free"
    wait = timedelta(seconds=trial.elastic.grow_back_after_seconds) * 2**before.failed_growths
    for since, until, count in _spans(free, at):
        since = max(since, at - wait)  # noqa: PLW2901 - the part that counts
        larger = (size for size in range(before.nodes + 1, before.nodes + count + 1))
        if any(is_allowed(trial.elastic, size, before.wanted_nodes) for size in larger) or until <= since:
            continue
        if trial.undisturbed_seconds(since, until) > SEEN_WITHIN.total_seconds():
            yield at, f"it grows to {nodes}, though {count} nodes were free for {until - since} since {since}"


def _spans(free: list[tuple[datetime, int]], until: datetime) -> Iterator[tuple[datetime, datetime, int]]:
    for (since, count), (end, _) in pairwise([*free, (until, 0)]):
        yield since, end, count


def all_agree_at_rest(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """A group at rest has the size in its ledger, and its next Job would have it too. A whole group has no elastic
    state, no settings except nodes to avoid, and no label without settings."""
    too_many_since: datetime | None = None
    for seen, job in trial.rests():
        ledger, nodes = seen.ledger, job["spec"]["parallelism"]
        if nodes != _size(trial, ledger):
            yield seen.at, f"the Job has {nodes} pods, the ledger says {_size(trial, ledger)}"
        trying = ledger.birth_settings is not None and _tried_for(trial, seen) <= TRIED_WITHIN.total_seconds()
        if nodes != _asked(trial, ledger) and not trying:
            yield seen.at, f"the Job has {nodes} pods, its successor would get {_asked(trial, ledger)}"
        if ledger.elastic is not None and nodes == trial.job.pods:
            yield seen.at, "it is whole, and has an elastic state"
        settings = ledger.birth_settings
        if nodes == trial.job.pods and settings is not None and not settings.avoid_hosts:
            yield seen.at, f"it is whole, and has settings at birth: {settings}"
        if settings is not None and not seen.labelled:
            yield seen.at, f"its label is missing, and its settings are {settings}"
        too_many_since = (too_many_since or seen.at) if settings is None and seen.labelled else None
        if too_many_since is not None and seen.until - too_many_since > LABELLED_BEFORE:
            yield seen.at, f"its label has been there without settings since {too_many_since}"


def _tried_for(trial: Trial, seen: Seen) -> float:
    """Seconds since the settings were made, without those in which the controllers were held up: a dry run without an
    answer."""
    settings = seen.ledger.birth_settings
    return trial.undisturbed_seconds(settings.since, seen.at) if settings is not None else 0.0


def the_books_are_right(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """The booked seconds with fewer nodes, and the GPU-seconds gained, match the time in which a smaller Job was
    whole."""
    times = list(_smaller(trial))
    seen, ends_at = trial.last, trial.outcome.evidence.ends_at
    state, totals = seen.ledger.elastic, seen.ledger.totals
    running = state is not None and state.running_since is not None
    open_seconds = (ends_at - state.running_since).total_seconds() if running else 0.0  # type: ignore[union-attr,operator]
    told = totals.reduced_seconds + open_seconds
    gained = totals.gained_gpu_seconds + open_seconds * (state.gpus if state is not None else 0)
    seconds = sum((until - since).total_seconds() for since, until, _ in times)
    gpu_seconds = sum((until - since).total_seconds() * nodes for since, until, nodes in times) * trial.job.gpus_per_pod
    within = sum(BOOKED_WITHIN_SECONDS + _held_up(trial, since) + _held_up(trial, until) for since, until, _ in times)
    if abs(told - seconds) > within:
        yield ends_at, f"the ledger says {told:.1f} s with fewer nodes, it was {seconds:.1f} s, in {len(times)} times"
    if abs(gained - gpu_seconds) > within * trial.job.pods * trial.job.gpus_per_pod:
        yield ends_at, f"the ledger says {gained:.0f} GPU-seconds gained, it was {gpu_seconds:.0f}"


def _smaller(trial: Trial) -> Iterator[tuple[datetime, datetime, int]]:
    """The times in which a Job with fewer pods was whole, each with its size."""
    since: datetime | None = None
    nodes = 0
    for _, seen in trial.steps():
        job = seen.trains
        now = job["spec"]["parallelism"] if job is not None and job["spec"]["parallelism"] < trial.job.pods else 0
        if now == nodes:
            continue
        if since is not None and nodes:
            yield since, seen.at, nodes
        since, nodes = seen.at, now
    if since is not None and nodes:
        yield since, trial.outcome.evidence.ends_at, nodes


def _held_up(trial: Trial, at: datetime) -> float:
    since, until = at - _AROUND, min(at + _AROUND, trial.outcome.evidence.ends_at)
    return (until - since).total_seconds() - trial.undisturbed_seconds(since, until)


def avoided_nodes_stay_empty(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """No pod of a Job is bound to a node that the ledger said to avoid when the Job was created."""
    avoided: dict[str, set[str]] = {}
    for change, seen in trial.steps():
        if change.resource == JOBS and change.type == "ADDED":
            avoided[change.body["metadata"]["uid"]] = {each.node for each in seen.ledger.avoided}
        if change.resource != PODS or change.type == "DELETED" or not _of_group(trial, change.body):
            continue
        node, owner = change.body["spec"].get("nodeName"), change.body["metadata"]["ownerReferences"][0]["uid"]
        if node in avoided.get(owner, ()) and not (change.before or {"spec": {}})["spec"].get("nodeName"):
            yield seen.at, f"pod {change.body['metadata']['name']} is bound to {node}, which its group avoids"


def ends_with_all_that_there_is(trial: Trial) -> Iterator[tuple[datetime, str]]:
    """When all nodes have been back for long, the group is whole, or waits after failed growths, or for nodes that it
    does not avoid. A group that its own policies have ended is left out."""
    seen, ends_at = trial.last, trial.outcome.evidence.ends_at
    job, state = seen.whole, seen.ledger.elastic
    if trial.job.runtime is PlannedRuntime.NATIVE and _failed(seen):
        return
    if job is None:
        yield ends_at, f"the group does not run: {seen.ledger.message}"
        return
    if state is None or not _has_room(trial, seen, state):
        return
    wait = timedelta(seconds=trial.elastic.grow_back_after_seconds) * 2**state.failed_growths
    if state.room_since is None or ends_at - state.room_since > wait + _AROUND:
        yield ends_at, f"it still has {state.nodes} nodes of {state.wanted_nodes}: {seen.ledger.message}"


def _has_room(trial: Trial, seen: Seen, state: ElasticState) -> bool:
    """Whether a larger size has nodes. Without avoided nodes it always has: all nodes are back."""
    avoided = [each.node for each in seen.ledger.avoided]
    larger = range(state.nodes + 1, state.nodes + seen.free_nodes(avoided) + 1)
    return not avoided or any(is_allowed(trial.elastic, size, state.wanted_nodes) for size in larger)


def _failed(seen: Seen) -> bool:
    return seen.jobset is not None and (seen.jobset.get("status") or {}).get("terminalState") == "Failed"


CHECKS: tuple[Check, ...] = (
    every_size_is_allowed,
    all_pods_at_once,
    ranks_are_told_the_size,
    every_job_has_the_size_of_the_ledger,
    growths_have_their_room,
    all_agree_at_rest,
    the_books_are_right,
    avoided_nodes_stay_empty,
    ends_with_all_that_there_is,
)
