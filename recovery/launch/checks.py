"""The list of all checks. A new check is added only here, so that lint, admission, explain-launch and the list of codes
all include it."""

from collections.abc import Callable, Iterator

import msgspec

from recovery.launch import (
    environment,
    exits,
    launchers,
    mpi,
    mpirun,
    names,
    other_launchers,
    pod_templates,
    processes,
    ranks,
    rendezvous,
    resource_names,
    resources,
    runtimes,
    torch_env,
    torchtune,
    volcano,
    volcano_policies,
)
from recovery.launch.findings import Code, LintFinding
from recovery.launch.launch import Launch, Setting
from recovery.launch.recoverability import (
    checkpoints,
    collective,
    deadlines,
    effective,
    gang,
    intervals,
    logs,
    native_policies,
    nccl,
    nodes,
    pods,
    shared_memory,
    sidecars,
    training_container,
    ttl,
)
from recovery.launch.views import VolcanoJob


class LaunchCheck(msgspec.Struct, frozen=True):
    """A module that judges groups of Trainer and JobSet."""

    codes: tuple[Code, ...]
    check: Callable[[Launch], Iterator[LintFinding]]
    settings: Callable[[Launch], Iterator[Setting]] | None = None
    """The settings that it adds to explain-launch. None: it adds none."""


class VolcanoCheck(msgspec.Struct, frozen=True):
    """A module that judges Jobs of Volcano."""

    codes: tuple[Code, ...]
    check: Callable[[VolcanoJob], Iterator[LintFinding]]
    settings: Callable[[VolcanoJob], Iterator[Setting]] | None = None
    """The settings that it adds to explain-launch. None: it adds none."""


LAUNCH_CHECKS: tuple[LaunchCheck, ...] = (
    LaunchCheck(names.CODES, names.check),
    LaunchCheck(runtimes.CODES, runtimes.check),
    LaunchCheck(pod_templates.CODES, pod_templates.check),
    LaunchCheck(resource_names.CODES, resource_names.check),
    LaunchCheck(resources.CODES, resources.check),
    LaunchCheck(processes.CODES, processes.check, processes.settings),
    LaunchCheck(torch_env.CODES, torch_env.check, torch_env.settings),
    LaunchCheck(torchtune.CODES, torchtune.check),
    LaunchCheck(mpi.CODES, mpi.check, mpi.settings),
    LaunchCheck(mpirun.CODES, mpirun.check),
    LaunchCheck(environment.CODES, environment.check),
    LaunchCheck(launchers.CODES, launchers.check),
    LaunchCheck(rendezvous.CODES, rendezvous.check),
    LaunchCheck(ranks.CODES, ranks.check),
    LaunchCheck((), other_launchers.check),  # its codes are listed with those of torchrun
    LaunchCheck(exits.CODES, exits.check),
    LaunchCheck(training_container.CODES, training_container.check, training_container.settings),
    LaunchCheck(collective.CODES, collective.check, collective.settings),
    LaunchCheck(pods.CODES, pods.check, effective.settings),
    LaunchCheck(nodes.CODES, nodes.check),
    LaunchCheck(native_policies.CODES, native_policies.check),
    LaunchCheck(deadlines.CODES, deadlines.check),
    LaunchCheck(ttl.CODES, ttl.check),
    LaunchCheck(sidecars.CODES, sidecars.check),
    LaunchCheck(shared_memory.CODES, shared_memory.check),
    LaunchCheck(gang.CODES, gang.check),
    LaunchCheck(nccl.CODES, nccl.check),
    LaunchCheck(checkpoints.CODES, checkpoints.check),
    LaunchCheck(intervals.CODES, intervals.check),
    LaunchCheck(logs.CODES, logs.check),
)
"""The checks in the order in which explain-launch shows their settings."""

VOLCANO_CHECKS: tuple[VolcanoCheck, ...] = (
    VolcanoCheck(volcano.CODES, volcano.check, volcano.settings),
    VolcanoCheck(volcano_policies.CODES, volcano_policies.check, volcano_policies.settings),
    # Their codes are listed with the checks above.
    VolcanoCheck((), resource_names.check_volcano),
    VolcanoCheck((), resources.check_volcano),
    VolcanoCheck((), exits.check_volcano),
    VolcanoCheck((), shared_memory.check_volcano),
)
