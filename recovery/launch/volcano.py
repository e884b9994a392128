"""Checks the pytorch plugin of Volcano: what each task should get from it, and what it does in which version.

Source: pkg/controllers/job/plugins/distributed-framework/pytorch/pytorch.go at v1.9.0 to v1.15.0. The ranks are the
pods of the tasks that its arguments name, `master` and `worker` by default. Up to v1.11 WORLD_SIZE counts the pods of
every task, since v1.12 only of those two. Every version appends MASTER_ADDR, MASTER_PORT and WORLD_SIZE to every
container of every task, after the user's own variables. Of two variables with one name the last counts, so the plugin
wins. RANK is 0 for every master, and the index + 1 for a worker. Volcano's webhook adds the svc plugin, which gives the
pods their names, if it is missing.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Setting
from recovery.launch.names import MAX_LABEL, NAME_TOO_LONG
from recovery.launch.places import Place
from recovery.launch.views import EnvVar, Task, VolcanoJob

PLUGIN_TASK = Code("plugin-task", Severity.ERROR, "the pytorch plugin names a task that does not exist")
PLUGIN_ARGUMENT = Code("plugin-argument", Severity.WARNING, "the pytorch plugin cannot read an argument")
SEVERAL_MASTERS = Code("several-masters", Severity.ERROR, "several pods get RANK 0")
PLUGIN_ENV_WINS = Code("plugin-env-wins", Severity.WARNING, "the pytorch plugin overrides a variable of the job")
PLUGIN_ENV_ELSEWHERE = Code(
    "plugin-env-elsewhere", Severity.NOTE, "the pytorch plugin sets variables in other tasks too"
)
GANG_STARTS_HALF = Code("gang-starts-half", Severity.WARNING, "minAvailable lets the job start without all ranks")
MIN_AVAILABLE = Code("min-available", Severity.ERROR, "minAvailable is larger than the number of pods")
CODES = (
    PLUGIN_TASK,
    PLUGIN_ARGUMENT,
    SEVERAL_MASTERS,
    PLUGIN_ENV_WINS,
    PLUGIN_ENV_ELSEWHERE,
    GANG_STARTS_HALF,
    MIN_AVAILABLE,
)

PLUGIN = "pytorch"
PORT = 23456
_FLAGS = ("master", "worker", "port", "wait-master-enabled", "wait-master-timeout", "wait-master-image")
_SWITCHES = ("wait-master-enabled",)
_PORT_NUMBER = re.compile(r"[0-9]{1,5}")
_NAMING_PLUGINS = frozenset({"svc", "pytorch", "tensorflow", "mpi", "ray"})
"""Plugins with which pods get their name as host name: svc, and those for which Volcano's webhook adds svc."""


class Plugin(msgspec.Struct, frozen=True):
    """The plugin as its arguments configure it."""

    place: Place
    master: str = "master"
    worker: str = "worker"
    port: int = PORT
    names_worker: bool = False
    """An argument names the worker task. Otherwise it is the default, and the task need not exist."""
    unread: str = ""
    """The first argument that the plugin cannot read. The plugin drops it and all after it."""


def check(job: VolcanoJob) -> Iterator[LintFinding]:
    job = named(job)
    yield from _name(job)
    available = _sum(job.tasks)
    if job.min_available is not None and job.min_available > available:
        message = f"minAvailable is {job.min_available} and the tasks have {available} pods: Volcano refuses the job"
        fix = f"write minAvailable: {available}, or remove it"
        yield LintFinding(MIN_AVAILABLE, job.place / "spec" / "minAvailable", message, fix)
    plugin = plugin_of(job)
    if plugin is None:
        return
    if plugin.unread:
        message = f"the pytorch plugin cannot read {plugin.unread}: it drops it and every argument after it"
        yield LintFinding(PLUGIN_ARGUMENT, plugin.place, message, f"write --flag=value; known are {', '.join(_FLAGS)}")
        return
    missing = list(_tasks(job, plugin))
    yield from missing
    if missing:
        return
    yield from _gang(job, plugin)
    yield from _overridden(job, plugin)
    yield from _elsewhere(job, plugin)


def settings(job: VolcanoJob) -> Iterator[Setting]:
    """The variables of each task, as the plugin of Volcano 1.12 and later sets them."""
    job = named(job)
    plugin = plugin_of(job)
    if plugin is None or next(_tasks(job, plugin), None) is not None:
        return
    for task in job.tasks:
        for name, value, rule in _variables(job, plugin, task):
            own = next((each for each in _env(task) if each.name == name and each.value != value), None)
            wins = f"; the {own.value} of the container has no effect" if own is not None else ""
            yield Setting(f"task {task.name}", name, value, rule + wins, plugin.place)
        for variable in _env(task):
            if variable.name not in (name for name, _, _ in _variables(job, plugin, task)):
                value = variable.value if variable.value is not None else "known only in the cluster (valueFrom)"
                yield Setting(f"task {task.name}", variable.name, value, "env of the container", variable.place)
    if "svc" not in job.plugins:
        rule = "Volcano's webhook adds it, as the pytorch plugin needs the names of the pods"
        yield Setting("Job", "plugin svc", "[]", rule)


def plugin_of(job: VolcanoJob) -> Plugin | None:
    """The pytorch plugin of the job. None: the job does not use it."""
    if PLUGIN not in job.plugins:
        return None
    values, unread = _flags(job.plugins[PLUGIN])
    port = values.get("port", "")
    return Plugin(
        place=job.place / "spec" / "plugins" / PLUGIN,
        master=values.get("master", "master"),
        worker=values.get("worker", "worker"),
        port=int(port) if port else PORT,
        names_worker="worker" in values,
        unread=unread,
    )


def world_size(job: VolcanoJob, plugin: Plugin) -> int:
    """WORLD_SIZE as it should be, and as it is since Volcano 1.12: the pods of master and worker."""
    return _sum([task for task in job.tasks if task.name in (plugin.master, plugin.worker)])


def _flags(arguments: Sequence[str]) -> tuple[dict[str, str], str]:
    """The flags by name, as Go's `flag` reads them, and the first that it cannot read. Empty: it reads all."""
    values: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        written = rest.pop(0)
        flag, equals, value = written.partition("=")
        name = flag.removeprefix("-").removeprefix("-")
        if not flag.startswith("-") or name not in _FLAGS:
            return values, written
        if not equals and name not in _SWITCHES:
            if not rest:
                return values, written
            value = rest.pop(0)
        if name == "port" and not _PORT_NUMBER.fullmatch(value):
            return values, f"{flag}={value}"
        values[name] = value
    return values, ""


def named(job: VolcanoJob) -> VolcanoJob:
    """The job with the names that Volcano's webhook gives to tasks that have none."""
    tasks = (
        msgspec.structs.replace(task, name=task.name or f"default{number}") for number, task in enumerate(job.tasks)
    )
    return msgspec.structs.replace(job, tasks=tuple(tasks))


def _sum(tasks: Sequence[Task]) -> int:
    """The pods of the tasks. A task without replicas has none."""
    return sum(task.replicas or 0 for task in tasks)


def _address(job: VolcanoJob, plugin: Plugin) -> str:
    return f"{job.name}-{plugin.master}-0.{job.name}"


def _name(job: VolcanoJob) -> Iterator[LintFinding]:
    if not job.name or not _NAMING_PLUGINS.intersection(job.plugins):
        return
    names = (f"{job.name}-{task.name}-{max(1, task.replicas or 0) - 1}" for task in job.tasks)
    longest = max(names, key=len, default="")
    over = len(longest) - MAX_LABEL
    if over > 0:
        message = (
            f"the name has {len(job.name)} characters, and a pod's host name would have {len(longest)} ({longest}) "
            f"where {MAX_LABEL} are allowed: no pod can be made"
        )
        fix = f"choose a name of at most {max(1, len(job.name) - over)} characters for {_sum(job.tasks)} pods"
        yield LintFinding(NAME_TOO_LONG, job.place / "metadata" / "name", message, fix)


def _tasks(job: VolcanoJob, plugin: Plugin) -> Iterator[LintFinding]:
    tasks = {task.name: task for task in job.tasks}
    known = ", ".join(tasks) or "none"
    master = tasks.get(plugin.master)
    if master is None:
        message = f"the pytorch plugin looks for task {plugin.master}, there is none, and so it sets nothing in any pod"
        yield LintFinding(PLUGIN_TASK, plugin.place, message, f"write --master=<task> with one of the tasks: {known}")
    elif not master.replicas:
        message = f"task {plugin.master} has no replicas, so that nothing answers at MASTER_ADDR"
        yield LintFinding(PLUGIN_TASK, master.place, message, "write replicas: 1")
    elif master.replicas > 1:
        message = (
            f"task {plugin.master} has {master.replicas} replicas, and the pytorch plugin gives each of them RANK 0"
        )
        fix = f"write replicas: 1, and the other {master.replicas - 1} as replicas of task {plugin.worker}"
        yield LintFinding(SEVERAL_MASTERS, master.place / "replicas", message, fix)
    # A master that is the only task trains alone, which works.
    if plugin.names_worker and plugin.worker not in tasks and tasks.keys() != {plugin.master}:
        message = f"--worker names task {plugin.worker}, there is none, and so WORLD_SIZE counts the master only"
        yield LintFinding(PLUGIN_TASK, plugin.place, message, f"write --worker=<task> with one of the tasks: {known}")


def _gang(job: VolcanoJob, plugin: Plugin) -> Iterator[LintFinding]:
    """Decides as the gang plugin does: the job's minAvailable counts, and each task's only if the job's is not below
    their sum (`CheckTaskReady` in pkg/scheduler/api/job_info.go)."""
    ranks = [task for task in job.tasks if task.name in (plugin.master, plugin.worker)]
    least = {task.name: task.replicas or 0 if task.min_available is None else task.min_available for task in job.tasks}
    wanted = job.min_available or sum(least.values())  # the webhook treats 0 as not set
    world, others = _sum(ranks), _sum(job.tasks) - _sum(ranks)
    surely = max(0, wanted - others)
    if wanted >= sum(least.values()):
        surely = max(surely, sum(least[task.name] for task in ranks))
    if surely >= world:
        return
    task = next((task for task in ranks if task.min_available is not None), None)
    place = job.place / "spec" / "minAvailable" if job.min_available else (task.place if task else job.place)
    message = (
        f"minAvailable {wanted} of {_sum(job.tasks)} pods lets the job start with {surely} of its {world} ranks, "
        "and those wait for the others and hold their GPUs"
    )
    fix = f"write minAvailable: {_sum(job.tasks)}, and none for the tasks"
    yield LintFinding(GANG_STARTS_HALF, place, message, fix)


def _overridden(job: VolcanoJob, plugin: Plugin) -> Iterator[LintFinding]:
    for task in job.tasks:
        values = {name: value for name, value, _ in _variables(job, plugin, task)}
        for variable in _env(task):
            value = values.get(variable.name)
            if value is None or value == variable.value:
                continue
            env = f"{variable.name}={variable.value}" if variable.value is not None else variable.name
            message = f"{env} has no effect: the pytorch plugin (Volcano 1.9 to 1.15) appends its own {value} after it"
            fix = f"set it in the command instead: env {variable.name}=... before the program"
            yield LintFinding(PLUGIN_ENV_WINS, variable.place, message, fix)


def _env(task: Task) -> tuple[EnvVar, ...]:
    """The variables of all its containers. The plugin does not change init containers."""
    return tuple(variable for container in task.pods.containers for variable in container.env)


def _variables(job: VolcanoJob, plugin: Plugin, task: Task) -> Iterator[tuple[str, str, str]]:
    """Name, value and rule of each variable that the plugin of Volcano 1.12 and later sets in the task's containers."""
    world, every = world_size(job, plugin), _sum(job.tasks)
    counted = f"the pods of {plugin.master} and {plugin.worker}"
    if every != world:
        counted += f" (up to Volcano 1.11 it is {every}: the pods of every task count)"
    ours = task.name in (plugin.master, plugin.worker)
    besides = "" if ours else "; the task is not part of the group, but has it too"
    yield "MASTER_ADDR", _address(job, plugin), f"pod 0 of task {plugin.master}{besides}"
    yield "MASTER_PORT", str(plugin.port), f"--port of the plugin, {PORT} by default{besides}"
    yield "WORLD_SIZE", str(world), counted + besides
    if task.name == plugin.master:
        yield "RANK", "0", "the rank of a master"
    elif ours:
        last = task.replicas or 0
        yield "RANK", f"1 to {last}" if last > 1 else "1", "the index of the worker + 1"


def _elsewhere(job: VolcanoJob, plugin: Plugin) -> Iterator[LintFinding]:
    others = [task for task in job.tasks if task.name not in (plugin.master, plugin.worker) and task.replicas]
    if not others:
        return
    names, world = ", ".join(task.name for task in others), world_size(job, plugin)
    message = (
        f"the pytorch plugin sets MASTER_ADDR, MASTER_PORT and WORLD_SIZE in task {names} too, which is not of the "
        f"group of {world}; up to Volcano 1.11 it even counts it, and with WORLD_SIZE {_sum(job.tasks)} the group "
        "waits for ever"
    )
    fix = (
        "run Volcano 1.12 or later, and write env -u WORLD_SIZE -u MASTER_ADDR -u MASTER_PORT before the program of "
        "that task if it uses torch.distributed"
    )
    yield LintFinding(PLUGIN_ENV_ELSEWHERE, others[0].place, message, fix)
