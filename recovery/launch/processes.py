"""Counts the processes that a node starts: by the devices that its container gets, and by Trainer's rules.

An explicit `numProcPerNode` wins. Otherwise there is one process for each accelerator. Without accelerators there is,
under torch, one for each CPU of the container's *limit*, rounded up. Without a limit there is one process, because the
cores of the host do not belong to the job.

Trainer 2.3 (pkg/runtime/framework/plugins/{torch,mpi}, pkg/runtime/runtime.go) has other rules in three places, and
each can lead to another number of processes. It counts a resource as a GPU only if its name contains `gpu` (no Gaudi,
no MIG profile, no TPU, no DRA claim). It prefers the CPU request over the limit. If `resourcesPerNode` is set, it
counts only there, though the container gets it merged into the runtime's resources
(pkg/runtime/core/trainingruntime.go; up to 2.2 it replaced them). That merge copies only requests and limits, so DRA
claims are lost.
"""

from collections.abc import Iterator

import msgspec

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member, Setting, place_of_command
from recovery.launch.places import Place
from recovery.launch.quantity import rounded_up
from recovery.launch.views import Container, MlPolicy, MpiPolicy, Resources, Trainer

CPU = "cpu"
TPU = "google.com/tpu"
CLAIM = "resource claim"
"""The device name for DRA claims. The manifest does not show what kind of device a claim gives."""

_DEVICES = frozenset({TPU, "habana.ai/gaudi", "gpu.intel.com/i915", "gpu.intel.com/xe"})
_DEVICE_ENDINGS = ("/gpu", "/gpu.shared")
_MIG_PROFILES = "nvidia.com/mig-"
PROCESSES_FLAG = "nproc-per-node"

PROCESSES_WORD = Code("processes-word", Severity.ERROR, "numProcPerNode is a word where Trainer takes a number")
PROCESSES_DIFFER = Code(
    "processes-differ", Severity.WARNING, "Trainer starts more or fewer processes than there are devices"
)
PROCESSES_NOT_GPUS = Code("processes-not-gpus", Severity.WARNING, "numProcPerNode is not the number of GPUs")
RESOURCES_REPLACED = Code(
    "resources-replaced", Severity.WARNING, "resourcesPerNode hides the accelerators of the runtime"
)
CODES = (PROCESSES_WORD, PROCESSES_DIFFER, PROCESSES_NOT_GPUS, RESOURCES_REPLACED)


class Processes(msgspec.Struct, frozen=True):
    """How many processes one node starts."""

    count: int
    """The number as it should be."""
    device: str
    """There is one process for each of these: a resource name, `cpu` or `resource claim`. Empty: a number was given."""
    rule: str
    """What set it, in words."""
    trainer_count: int
    """The number that Trainer 2.3 starts for the same manifest."""
    trainer_rule: str
    place: Place | None = None
    """The field that the number comes from. None: it is a default."""
    flag: str = ""
    """The value of torchrun's `--nproc-per-node`, which wins over Trainer: a number, a word, or a shell variable.
    Empty: the flag is not on the command line."""


def devices_of(resources: Resources | None) -> dict[str, int]:
    """Accelerators by resource name. If there are none, the DRA claims, counted as one device each because the manifest
    says no more about them. Empty: there are neither.

    Parts of a device (`nvidia.com/gpumem`, `gpu.intel.com/memory.max`) do not count.
    """
    if resources is None:
        return {}
    asked = {**resources.requests, **resources.limits}
    found = {name: rounded_up(amount) for name, amount in asked.items() if amount > 0 and _is_device(name)}
    if not found and resources.claims:
        return {CLAIM: len(resources.claims)}
    return found


def gpus_of(resources: Resources | None) -> int:
    """How many accelerators of any kind a container with these resources gets."""
    return sum(devices_of(resources).values())


def trained_by(launch: Launch) -> Member | None:
    """The ReplicatedJob whose pods hold the training processes that torch and MPI count. None: there is none, or the
    runtime is not known.

    Under torch it is the one labelled `trainer`. Under MPI that one is the launcher, and `node` has the processes.
    """
    wanted = "node" if _mpi(launch) is not None else ""
    named = (member for member in launch.members if wanted and member.job.name == wanted)
    labelled = (member for member in launch.members if member.job.ancestor == "trainer")
    return next(named, None) or next(labelled, None)


def processes_of(launch: Launch) -> Processes | None:
    """How many processes a node starts. None: neither torch nor MPI starts any, or there is no container for them."""
    member, policy = trained_by(launch), launch.runtime.ml_policy if launch.runtime is not None else None
    if member is None or member.main is None or policy is None or (policy.torch is None and policy.mpi is None):
        return None
    found, run = _without_flag(launch, policy, member.main), run_by(member.main)
    flag = run.flags.get(PROCESSES_FLAG, "") if isinstance(run, Torchrun) and policy.mpi is None else ""
    return msgspec.structs.replace(found, flag=flag) if flag else found


def _without_flag(launch: Launch, policy: MlPolicy, main: Container) -> Processes:
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    given = trainer.num_proc_per_node if trainer is not None else None
    if trainer is not None and isinstance(given, int):
        place = trainer.place / "numProcPerNode"
        return Processes(given, "", "spec.trainer.numProcPerNode", given, "spec.trainer.numProcPerNode", place)
    if policy.mpi is not None and policy.mpi.num_proc_per_node not in (None, 1):
        slots, rule = policy.mpi.num_proc_per_node or 1, "mlPolicy.mpi.numProcPerNode of the runtime"
        return Processes(slots, "", rule, slots, rule, policy.mpi.place / "numProcPerNode")
    ours = _by_device(main.resources, policy.mpi is None, given if isinstance(given, str) else "auto")
    if launch.train_job is not None and trainer is None and policy.mpi is None:
        theirs = 1, "spec.trainer is missing, so that Trainer sets nothing and torchrun starts 1"
    else:
        theirs = _as_trainer_does(main, trainer, ours, policy.mpi)
    return msgspec.structs.replace(ours, trainer_count=theirs[0], trainer_rule=theirs[1])


def settings(launch: Launch) -> Iterator[Setting]:
    """numProcPerNode, with the rule that set it."""
    found, member = processes_of(launch), trained_by(launch)
    if found is None or member is None or member.main is None:
        return
    target = f"container {member.main.name} of ReplicatedJob {member.job.name}"
    if found.flag:
        rule = f"{_flag_rule(member.main)}, which wins over {found.trainer_count}: {found.trainer_rule}"
        yield Setting(target, "numProcPerNode", found.flag, rule, place_of_command(launch, member))
        return
    rule = found.trainer_rule
    if found.trainer_count != found.count:
        rule += f"; by the devices it would be {found.count}: {found.rule}"
    yield Setting(target, "numProcPerNode", str(found.trainer_count), rule, found.place)


def check(launch: Launch) -> Iterator[LintFinding]:
    """What is wrong with numProcPerNode, and with the resources that it is counted from."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is not None and isinstance(trainer.num_proc_per_node, str):
        yield _word(launch, trainer, trainer.num_proc_per_node)
        return
    if trainer is not None and trainer.resources is not None:
        lost = list(_lost_claims(launch, trainer.resources))
        yield from lost
        if lost:
            return
    found, member = processes_of(launch), trained_by(launch)
    if found is None or member is None or member.main is None:
        return
    run = run_by(member.main)
    flag = run.flags.get(PROCESSES_FLAG) if isinstance(run, Torchrun) else None
    if flag is not None and flag != str(found.count):
        return  # torchrun uses its flag, whatever Trainer counts, and `launchers` judges the flag
    if found.device == CPU and not isinstance(run, Torchrun):
        return  # nothing shows that the command starts one process for each CPU at all
    if found.count != found.trainer_count:
        # Without spec.trainer another finding says more: Trainer sets nothing at all.
        if flag is None and (launch.train_job is None or trainer is not None):
            yield _hidden(launch, found) or _differ(found, member.main)
    elif not found.device and found.count > 0 and found.place is not None:
        yield from _not_gpus(found, found.place, member.main)


def _is_device(name: str) -> bool:
    return name in _DEVICES or name.endswith(_DEVICE_ENDINGS) or name.startswith(_MIG_PROFILES)


def _mpi(launch: Launch) -> MpiPolicy | None:
    policy = launch.runtime.ml_policy if launch.runtime is not None else None
    return policy.mpi if policy is not None else None


def _by_device(resources: Resources | None, counts_cpus: bool, word: str) -> Processes:
    """`counts_cpus`: count CPUs if there is no accelerator. `word`: auto, gpu, cpu or tpu, with torchrun's meaning. A
    word whose device does not exist counts as `auto`."""
    devices = devices_of(resources)
    if word == "tpu" and TPU in devices:
        devices = {TPU: devices[TPU]}
    if devices and word != "cpu" and resources is not None:
        count, names = sum(devices.values()), " and ".join(devices)
        rule = f"one for each of the {count} {names}" if count > 1 else f"one for the {names}"
        if CLAIM in devices:
            claims = f"each of the {count} resource claims" if count > 1 else "the resource claim"
            rule = f"one for {claims}, if it gives one device"
        return Processes(count, names, rule, count, rule, _device_place(resources, next(iter(devices))))
    limit = resources.limits.get(CPU) if resources is not None and counts_cpus else None
    if limit is None or resources is None:
        rule = "no accelerator and no CPU limit: one process" if counts_cpus else "no accelerator: one process"
        return Processes(1, CPU, rule, 1, rule)
    count = max(1, rounded_up(limit))
    rule = f"one for each CPU of the limit of {limit:f}, rounded up"
    return Processes(count, CPU, rule, count, rule, resources.place / "limits" / CPU)


def _device_place(resources: Resources, name: str) -> Place:
    if name == CLAIM:
        return resources.place / "claims"
    return resources.place / ("limits" if name in resources.limits else "requests") / name


def _as_trainer_does(
    main: Container, trainer: Trainer | None, ours: Processes, mpi: MpiPolicy | None
) -> tuple[int, str]:
    """How many processes Trainer 2.3 starts, and by which rule, where no number is given."""
    alone = trainer.resources if trainer is not None else None
    counted = alone if alone is not None else main.resources
    where = "spec.trainer.resourcesPerNode" if alone is not None else "the container's resources"
    gpus = _trainer_gpus(counted)
    if mpi is not None:
        slots = gpus if gpus > 1 else 1
        return slots, f"Trainer counts {slots} by the GPUs of {where}"
    if gpus > 0:
        # PET_NPROC_PER_NODE stays `auto`: torchrun counts the devices that it sees.
        return ours.count, f"Trainer leaves auto, as {where} has GPUs, and torchrun counts {ours.count}"
    for kind, amounts in (("request", counted.requests), ("limit", counted.limits)) if counted is not None else ():
        if amounts.get(CPU):
            count = max(1, rounded_up(amounts[CPU]))
            return count, f"Trainer counts {count} by the CPU {kind} of {where}"
    return 1, f"Trainer finds neither a GPU nor CPUs in {where} and starts 1"


def _trainer_gpus(resources: Resources | None) -> int:
    """Counts as GetNumGPUPerNode does: the first resource with `gpu` in its name, requests before limits."""
    for amounts in (resources.requests, resources.limits) if resources is not None else ():
        found = next((rounded_up(amount) for name, amount in amounts.items() if "gpu" in name.lower()), 0)
        if found > 0:
            return found
    return 0


def _word(launch: Launch, trainer: Trainer, word: str) -> LintFinding:
    found, place = processes_of(launch), trainer.place / "numProcPerNode"
    message = f"numProcPerNode is {word!r}, and Trainer 2.3 takes a whole number only: the API server refuses it"
    if word.isascii() and word.isdecimal():
        return LintFinding(PROCESSES_WORD, place, message, f"write numProcPerNode: {word}, without quotes")
    if found is None or (word == "auto" and found.count == found.trainer_count):
        return LintFinding(PROCESSES_WORD, place, message, "remove it: left out, it means auto")
    return LintFinding(PROCESSES_WORD, place, message, f"write numProcPerNode: {found.count} ({found.rule})")


def _lost_claims(launch: Launch, wanted: Resources) -> Iterator[LintFinding]:
    """Reports DRA claims that are lost because resourcesPerNode is set, whether they are in it or in the runtime."""
    member = trained_by(launch)
    base = _runtime_container(launch, member.job.name) if member is not None else None
    before = base.resources.claims if base is not None and base.resources is not None else ()
    if member is None or not (before or wanted.claims):
        return
    whose = "resourcesPerNode" if wanted.claims else f"the runtime's container {base.name if base else 'node'}"
    message = (
        f"Trainer 2.3 drops the resource claims ({', '.join(wanted.claims or before)}) of {whose} where "
        "resourcesPerNode is set, so that the pods start without their devices"
    )
    fix = "remove resourcesPerNode, and write claims, requests and limits into the runtime's container"
    yield LintFinding(RESOURCES_REPLACED, wanted.place, message, fix)


def _hidden(launch: Launch, found: Processes) -> LintFinding | None:
    """Reports that the runtime's container has accelerators, but resourcesPerNode, where Trainer counts, has none."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    if trainer is None or trainer.resources is None or gpus_of(trainer.resources) > 0:
        return None
    member = trained_by(launch)
    base = _runtime_container(launch, member.job.name) if member is not None else None
    devices = devices_of(base.resources) if base is not None else {}
    if not devices:
        return None
    named = " and ".join(f"{amount} {name}" for name, amount in devices.items())
    message = (
        f"the runtime's container has {named}, which resourcesPerNode does not name: Trainer 2.3 counts processes in "
        f"resourcesPerNode alone, and each node starts {_processes(found.trainer_count)}"
    )
    fix = ", ".join(f"{name}: {amount}" for name, amount in devices.items())
    return LintFinding(RESOURCES_REPLACED, trainer.resources.place, message, f"add to resourcesPerNode.limits: {fix}")


def _runtime_container(launch: Launch, job_name: str) -> Container | None:
    """The container `node` as the runtime has it, before the TrainJob changes it."""
    jobs = launch.runtime.job_set.jobs if launch.runtime is not None else ()
    job = next((job for job in jobs if job.name == job_name), None)
    return next((each for each in job.pods.containers if each.name == "node"), None) if job is not None else None


def _differ(found: Processes, main: Container) -> LintFinding:
    place = found.place or (main.resources.place if main.resources is not None else main.place)
    message = (
        f"each node starts {_processes(found.trainer_count)}, because {found.trainer_rule}; by what its container gets "
        f"it would be {found.count} ({found.rule})"
    )
    fix = f"write spec.trainer.numProcPerNode: {found.count}"
    if found.device == CLAIM:
        fix = "write the number of devices that the claims give as spec.trainer.numProcPerNode"
    return LintFinding(PROCESSES_DIFFER, place, message, fix)


def _not_gpus(found: Processes, place: Place, main: Container) -> Iterator[LintFinding]:
    devices = devices_of(main.resources)
    gpus, names = sum(devices.values()), " and ".join(devices)
    if gpus in (0, found.count) or CLAIM in devices:  # a claim may well give several devices
        return
    idle = gpus - found.count
    follows = f"{idle} of them are idle" if idle > 0 else f"{-idle} processes find no device of their own"
    message = f"{found.rule} is {found.count} and each node has {gpus} {names}: {follows}"
    fix = f"write numProcPerNode: {gpus}, or ask for {found.count} devices"
    yield LintFinding(PROCESSES_NOT_GPUS, place, message, fix)


def _flag_rule(main: Container) -> str:
    """The rule for the flag that decides. If the flag appears twice, it names both values."""
    run = run_by(main)
    first = run.overruled.get(PROCESSES_FLAG) if isinstance(run, Torchrun) else None
    flag = f"--{PROCESSES_FLAG} of torchrun"
    return flag if first is None else f"the last --{PROCESSES_FLAG} of torchrun (the first one says {first})"


def _processes(count: int) -> str:
    return "1 process" if count == 1 else f"{count} processes"
