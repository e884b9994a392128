"""What a run is about to do, computed before anything is done."""

from collections.abc import Iterator, Mapping

import msgspec

from recovery.chaos.job_state import JobMember, JobState
from recovery.chaos.node_pods import PodOnNode, read_pods_on
from recovery.chaos.preconditions import problems
from recovery.chaos.strikes import Reach, Strike, aimed, drives_out, over_limit, reach_of
from recovery.chaos.tools import ChaosRefusedError, ChaosTools
from recovery.core.model.drill import DrillAction
from recovery.core.model.facts import GroupKey
from recovery.ports import ApiClient
from recovery.scenario.experiment import Experiment
from recovery.scenario.experiment_chaos import ExperimentChaos
from recovery.scenario.strict_input import BadInputError

_PODS_SHOWN_MAX = 8


class RunPlan(msgspec.Struct, frozen=True):
    """The first entries with their pods. Later entries select from the pods that exist then."""

    state: JobState
    first: tuple[Strike, ...]
    reach: Reach
    """What the first entries affect."""


async def planned(tools: ChaosTools, experiment: Experiment) -> RunPlan:
    """The plan of a run that may begin now. Raises ChaosRefusedError with all that speaks against it, and ApiError."""
    state = await tools.probe.state()
    found = list(problems(state, experiment))
    first: tuple[Strike, ...] = ()
    if state.workload is not None:
        try:
            first = tuple(aimed(experiment, each, 1, state.members) for each in first_entries(experiment))
        except BadInputError as error:
            found.append(str(error))
    on_nodes = await pods_on_nodes_of(tools.api, first)
    reach = reach_of(first, on_nodes)
    found += beyond(experiment, reach, first, on_nodes, state.key)
    if found:
        raise ChaosRefusedError(tuple(found))
    return RunPlan(state, first, reach)


def first_entries(experiment: Experiment) -> tuple[ExperimentChaos, ...]:
    """The entries that act together at the beginning of a repeat, in the order of the file."""
    moments = [each.at_seconds for each in experiment.chaos if each.at_seconds is not None]
    return tuple(each for each in experiment.chaos if moments and each.at_seconds == min(moments))


async def pods_on_nodes_of(api: ApiClient, strikes: tuple[Strike, ...]) -> Mapping[str, tuple[PodOnNode, ...]]:
    """All pods on the nodes that the strikes change. Raises ApiError."""
    return await read_pods_on(api, [node for each in strikes if each.chaos.action.of_nodes for node in each.nodes])


def beyond(
    experiment: Experiment,
    reach: Reach,
    strikes: tuple[Strike, ...],
    on_nodes: Mapping[str, tuple[PodOnNode, ...]],
    key: GroupKey,
) -> list[str]:
    """What the strikes would affect that they may not: a limit of the file, or pods of others."""
    found = [over_limit(reach, experiment.limits), *(drives_out(each, on_nodes, key) for each in strikes)]
    return [why for why in found if why]


def plan_lines(plan: RunPlan, experiment: Experiment, server: str, context: str) -> Iterator[str]:
    """The plan, for the person who has to agree to it. `context` empty: there is none, as in a pod."""
    state = plan.state
    workload = state.workload
    assert workload is not None, "a plan has a job"
    times = "once" if experiment.repeat == 1 else f"up to {experiment.repeat} times"
    yield f"cluster     {server}{f' (context {context})' if context else ''}"
    yield f"job         {workload.kind} {state.key}, {len(state.members)} ranks"
    yield f"experiment  {experiment.name}, {times}"
    for strike in plan.first:
        yield f"first       {strike_words(strike)}"
    for each in experiment.chaos:
        if each not in first_entries(experiment):
            yield f"later       {_later_words(each)}"
    reach = f"{_count(len(plan.reach.nodes), 'node')}, {_count(plan.reach.gpus, 'GPU')}"
    yield f"affects     {reach} with the first entries"
    yield f"loses       steps since the checkpoint: {_steps_since_checkpoint(state)}"
    forced = [member.pod for each in plan.first if each.chaos.grace_seconds == 0 for member in each.members]
    yield f"forces      pods without a grace period: {_some(forced) if forced else 'none'}"


def strike_words(strike: Strike) -> str:
    """`pod-kill: llm-node-0-3 (rank 3, node gpu-3)`."""
    if strike.chaos.action.of_nodes:
        pods = ", ".join(_member_words(each) for each in strike.members[:_PODS_SHOWN_MAX])
        more = len(strike.members) - _PODS_SHOWN_MAX
        verb = "runs" if len(strike.members) == 1 else "run"
        where = f"{pods}{f' and {more} more' * (more > 0)} {verb}"
        return f"{_action_words(strike.chaos)} of {_some(strike.nodes)}, where {where}"
    return f"{_action_words(strike.chaos)}: {_some([_member_words(each) for each in strike.members])}"


def _later_words(chaos: ExperimentChaos) -> str:
    """`pod-kill, mode one, once the incident is in phase Rendezvous`."""
    value = "" if chaos.value is None else f" {chaos.value}"
    when = f"after {chaos.at_seconds:g} s" if chaos.during is None else f"once the incident is in phase {chaos.during}"
    return f"{_action_words(chaos)}, mode {chaos.mode}{value}, {when}"


def _action_words(chaos: ExperimentChaos) -> str:
    if chaos.action is DrillAction.TAINT and chaos.taint is not None:
        return f"{chaos.action} {chaos.taint.key}:{chaos.taint.effect}"
    if chaos.grace_seconds == 0:
        return f"{chaos.action} without a grace period"
    return str(chaos.action)


def _member_words(member: JobMember) -> str:
    return f"{member.pod} (rank {member.index}, node {member.node})"


def _steps_since_checkpoint(state: JobState) -> str:
    """How many steps a restart repeats. `not known`: the job does not report them."""
    if state.checkpoint.step is None or state.highest_step is None:
        return "not known"
    return str(max(0, state.highest_step - state.checkpoint.step))


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _some(names: list[str] | tuple[str, ...]) -> str:
    more = len(names) - _PODS_SHOWN_MAX
    return ", ".join(names[:_PODS_SHOWN_MAX]) + (f" and {more} more" if more > 0 else "")
