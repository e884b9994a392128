"""Turns the chaos of a scenario into faults."""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from recovery.scenario.cluster_actions import ONLY_ON_A_CLUSTER
from recovery.scenario.failure_sign import Sign
from recovery.scenario.input_problems import Problems
from recovery.scenario.modelled_job import PlannedRuntime
from recovery.scenario.schema import (
    AnyChaos,
    Chaos,
    ChaosTarget,
    ClusterChaos,
    HttpAction,
    HttpChaos,
    KueueChaos,
    MachineAction,
    NetworkAction,
    NetworkChaos,
    PhysicalMachineChaos,
    PodAction,
    PodChaos,
    ScenarioFile,
    SelectionMode,
    StressChaos,
    TimeChaos,
    UserAction,
    UserChaos,
)
from recovery.scenario.selection import how_many, misfit
from recovery.scenario.strict_input import none_of, read_what_is_right
from recovery.sim.trials.chaos_kinds import (
    CLUSTER_KINDS,
    EXIT_CODES,
    HTTP_KINDS,
    LASTING,
    MACHINE_KINDS,
    OF_NODES,
    ONE_POD_EACH,
    POD_KINDS,
    STALLS,
    USER_KINDS,
)
from recovery.sim.trials.failure_signs import LEFT
from recovery.sim.trials.faults import FaultKey, FaultKind, TrialFault
from recovery.sim.trials.manifests import KILLABLE, container_name
from recovery.sim.trials.plan import JobPlan
from recovery.sim.trials.request_faults import HIT_LINES

WORLD = "world"


@dataclass(frozen=True)
class ReadJobs:
    """The jobs of a file, as far as they can be read."""

    plans: Mapping[str, JobPlan]
    """By namespace and name."""
    unsized: frozenset[str]
    """Jobs whose number of pods is wrong. The indexes of their pods are not checked."""
    complete: bool
    """The file has no other jobs. If it has, a name that matches no job in `plans` is not reported."""


class _AnyTime(Chaos, frozen=True):
    """The fields that every chaos has: when it happens, and what it selects."""


class ChaosReader:
    """Reads the chaos of one scenario. Its jobs have been read before."""

    def __init__(self, file: ScenarioFile, jobs: ReadJobs, active_seconds: float, problems: Problems) -> None:
        """`active_seconds` 0: it is not known how long chaos may last."""
        self._file = file
        self._jobs = jobs.plans
        self._read_jobs = jobs
        self._active_seconds = active_seconds
        self._problems = problems
        self._numbers = 0
        """The number of faults of the world so far."""
        self._events: set[tuple[str, int, bool]] = set()
        """The events that already have a fault: replica, number, and whether it is a line of a watch."""

    def faults_of(self, chaos: AnyChaos, path: str) -> tuple[TrialFault, ...]:
        """Call it in the order of the file, which numbers the faults."""
        number = path.removeprefix("chaos[").removesuffix("]")
        if isinstance(chaos, PodChaos | PhysicalMachineChaos):
            chaos = self._simulated(chaos, path)
        return tuple(self._of(chaos, path, random.Random(f"{self._file.seed}:{number}")))

    def _simulated(self, chaos: PodChaos | PhysicalMachineChaos, path: str) -> PodChaos | PhysicalMachineChaos:
        """Reports an action that needs a cluster. The rest is checked as for the nearest action of the simulator."""
        instead = ONLY_ON_A_CLUSTER.get(chaos.action)
        if instead is None:
            return chaos
        self._problems.add(
            f"{path}.action", f"{chaos.action} needs target, a job of a cluster; say {' or '.join(instead)}"
        )
        return replace(chaos, action=instead[0])

    def check_unread(self, body: object, path: str) -> None:
        """Checks the moment and the selector of an entry whose kind or action is unknown."""
        if not isinstance(body, Mapping):
            return
        if body.get("kind") == PhysicalMachineChaos.__name__ and "duration" not in body:
            self._problems.add(f"{path}.duration", "is missing: what affects machines needs one")
        said = {name: body[name] for name in ("at", "during", "event", "selector") if name in body}
        chaos = read_what_is_right({**said, "kind": _AnyTime.__name__}, _AnyTime, path).value
        if chaos is None:
            return
        if chaos.at:
            self._at(chaos, path)
        if chaos.selector.job and (job := self._job(chaos, path)) is not None:
            self._indexes(chaos, job, path)

    def _of(self, chaos: AnyChaos, path: str, chance: random.Random) -> Iterator[TrialFault]:
        match chaos:
            case PodChaos(selector=selector) if selector.controller is not None:
                yield from self._killed_controller(chaos, path)
            case PodChaos():
                yield from self._pod_chaos(chaos, path, chance)
            case PhysicalMachineChaos():
                self._problems.unfit(path, chaos.action, taint=chaos.taint)
                duration = self._fitting(chaos.duration, chaos.action, path)
                yield from self._on_pods(chaos, MACHINE_KINDS[chaos.action], path, chance, duration=duration)
            case NetworkChaos():
                yield from self._network_chaos(chaos, path, chance)
            case HttpChaos():
                yield from self._http_chaos(chaos, path)
            case TimeChaos():
                sign = -1 if chaos.time_offset.startswith("-") else 1
                seconds = sign * self._problems.seconds(chaos.time_offset.removeprefix("-"), f"{path}.timeOffset")
                yield from self._on_event(chaos, FaultKind.CLOCK_JUMP, path, seconds)
            case StressChaos(selector=selector) if selector.component is not None:
                self._only(chaos, path, "component")
                yield from self._in_world(chaos, STALLS[selector.component], path, duration=chaos.duration)
            case StressChaos():
                yield from self._on_process(chaos, FaultKind.PROCESS_FREEZE, path, chaos.duration)
            case ClusterChaos():
                self._only(chaos, path)
                yield from self._in_world(chaos, CLUSTER_KINDS[chaos.action], path, duration=chaos.duration)
            case KueueChaos():
                yield from self._kueue_chaos(chaos, path)
            case UserChaos():
                yield from self._user_chaos(chaos, path)

    # Kinds.

    def _pod_chaos(self, chaos: PodChaos, path: str, chance: random.Random) -> Iterator[TrialFault]:
        action = chaos.action
        self._problems.unfit(path, "the pods of a job", target=chaos.target)
        if action is not PodAction.POD_KILL:
            self._problems.unfit(path, action, grace_period=chaos.grace_period)
        if action not in EXIT_CODES:
            self._problems.unfit(path, action, exit_code=chaos.exit_code, sign=chaos.sign)
        elif chaos.sign is not None and LEFT[chaos.sign].code is not None:
            self._problems.unfit(path, f"sign {chaos.sign}, which has its own", exit_code=chaos.exit_code)
        duration = self._fitting(chaos.duration, action, path)
        code = self._exit_code(chaos, path)
        if action is PodAction.POD_FAILURE:
            self._problems.unfit(path, "pod-failure, which affects rank 0 only", mode=chaos.mode, value=chaos.value)
            self._only(chaos, path, "job")
            if (job := self._job(chaos, path)) is not None:
                kind = POD_KINDS[action]
                yield from self._in_world(
                    chaos, kind, path, job=str(job), duration=duration, code=code, sign=chaos.sign or Sign.NONE
                )
            return
        if chaos.container_names:
            yield from self._killed_sidecars(chaos, path, chance)
            return
        kind = POD_KINDS[action] if chaos.grace_period is None else self._kind_of_kill(chaos, path)
        sign = chaos.sign or Sign.NONE
        yield from self._on_pods(chaos, kind, path, chance, duration=duration, code=code, sign=sign)

    def _killed_sidecars(self, chaos: PodChaos, path: str, chance: random.Random) -> Iterator[TrialFault]:
        self._problems.unfit(path, "sidecars, which the kernel kills", exit_code=chaos.exit_code, sign=chaos.sign)
        if chaos.action is not PodAction.CONTAINER_KILL:
            self._problems.add(f"{path}.containerNames", f"means nothing to {chaos.action}; say container-kill")
        job = self._found(chaos.selector.job)
        for sidecar in chaos.container_names:
            name = container_name(sidecar)
            if name not in KILLABLE:
                self._problems.add(f"{path}.containerNames", f"{sidecar} does not run for long; it cannot be killed")
            elif job is not None and sidecar not in job.sidecars:
                self._problems.add(f"{path}.containerNames", f"job {job} has no sidecar {sidecar}")
            yield from self._on_pods(chaos, FaultKind.SIDECAR_KILL, path, chance, duration=None, container=name)

    def _kind_of_kill(self, chaos: PodChaos, path: str) -> FaultKind:
        if chaos.grace_period == 0:
            return FaultKind.POD_FORCE_DELETE
        job = self._found(chaos.selector.job)
        if job is not None and chaos.grace_period != job.grace_seconds:
            own = f"its own, {job.grace_seconds} s"
            self._problems.add(f"{path}.gracePeriod", f"say 0, or leave it out: then each pod has {own}")
        return FaultKind.POD_KILL

    def _exit_code(self, chaos: PodChaos, path: str) -> int:
        code = chaos.exit_code if chaos.exit_code is not None else EXIT_CODES.get(chaos.action, 0)
        if chaos.action in EXIT_CODES and not 1 <= code <= 255:
            self._problems.add(f"{path}.exitCode", f"{code} is no failure; say 1 to 255")
        return code

    def _killed_controller(self, chaos: PodChaos, path: str) -> Iterator[TrialFault]:
        self._problems.unfit(
            path,
            "a controller",
            mode=chaos.mode,
            value=chaos.value,
            grace_period=chaos.grace_period,
            exit_code=chaos.exit_code,
            sign=chaos.sign,
            container_names=chaos.container_names or None,
        )
        if chaos.action is not PodAction.CONTAINER_KILL:
            self._problems.add(f"{path}.action", f"{chaos.action} affects no controller; say container-kill")
        if chaos.duration is None:
            self._problems.add(f"{path}.duration", "is missing: after it the controller starts again")
            return
        if chaos.target is None:
            yield from self._on_process(chaos, FaultKind.PROCESS_KILL, path, chaos.duration)
        elif chaos.target is ChaosTarget.WATCH:
            self._problems.add(f"{path}.target", "Watch is no moment to be killed at; say Request or Response")
        else:
            before = chaos.target is ChaosTarget.REQUEST
            kind = FaultKind.PROCESS_KILL if before else FaultKind.PROCESS_KILL_AFTER
            yield from self._on_event(chaos, kind, path, self._lasting(chaos.duration, 0.0, path))

    def _network_chaos(self, chaos: NetworkChaos, path: str, chance: random.Random) -> Iterator[TrialFault]:
        duration = self._fitting(chaos.duration, chaos.action, path)
        if chaos.action is NetworkAction.PARTITION:
            yield from self._on_pods(chaos, FaultKind.NODE_PARTITION, path, chance, duration=duration)
            return
        self._problems.unfit(path, "a controller", mode=chaos.mode, value=chaos.value)
        kind = FaultKind.WATCH_STALL if chaos.action is NetworkAction.LOSS else FaultKind.WATCH_DUPLICATE
        yield from self._on_event(chaos, kind, path, self._lasting(duration, 0.0, path))

    def _http_chaos(self, chaos: HttpChaos, path: str) -> Iterator[TrialFault]:
        problems = self._problems
        kind = HTTP_KINDS.get((chaos.action, chaos.target, chaos.code))
        if kind is None:
            there_are = ", ".join(
                f"{action} of a {target}" + ("" if code is None else f" by {code}")
                for action, target, code in HTTP_KINDS
            )
            problems.add(f"{path}.action", f"action, target and code do not go together; there are {there_are}")
            return
        if kind is not FaultKind.TOO_MANY_REQUESTS:
            problems.unfit(path, "anything but code 429", retry_after=chaos.retry_after)
        seconds = 0.0
        if chaos.action is not HttpAction.DELAY:
            problems.unfit(path, chaos.action, delay=chaos.delay)
        elif chaos.delay is None:
            problems.add(f"{path}.delay", "is missing")
        else:
            seconds = problems.seconds(chaos.delay, f"{path}.delay")
        if kind is FaultKind.TOO_MANY_REQUESTS:
            seconds = problems.seconds(chaos.retry_after or "1s", f"{path}.retryAfter")
        yield from self._on_event(chaos, kind, path, seconds)

    def _user_chaos(self, chaos: UserChaos, path: str) -> Iterator[TrialFault]:
        duration = self._fitting(chaos.duration, chaos.action, path)
        if chaos.action in OF_NODES:
            self._only(chaos, path)
            yield from self._in_world(chaos, USER_KINDS[chaos.action], path)
            return
        self._only(chaos, path, "job")
        job = self._job(chaos, path)
        if job is None:
            return
        if job.policy is None and chaos.action in (UserAction.POLICY_OBSERVE, UserAction.POLICY_DELETE):
            self._problems.add(f"{path}.selector.job", f"job {job} has no policy; give it one")
        if chaos.action is UserAction.DELETE_JOBSET and job.runtime is PlannedRuntime.BARE_JOBSET:
            self._problems.add(f"{path}.action", f"job {job} is a JobSet itself; say delete")
        if chaos.action is not UserAction.RESIZE:
            self._problems.unfit(path, chaos.action, value=chaos.value)
        elif not chaos.value:
            self._problems.add(f"{path}.value", "say how many pods more, or with a minus how many fewer")
        indexes = (0,) if chaos.action is UserAction.QUARANTINE else ()
        kind = USER_KINDS[chaos.action]
        for fault in self._in_world(chaos, kind, path, job=str(job), indexes=indexes, duration=duration):
            yield replace(fault, pods_more=chaos.value or 0)

    def _kueue_chaos(self, chaos: KueueChaos, path: str) -> Iterator[TrialFault]:
        self._only(chaos, path, "job")
        job = self._job(chaos, path)
        if job is None:
            return
        if not job.under_kueue:
            self._problems.add(f"{path}.selector.job", f"job {job} is none of Kueue's; give it admission: by-kueue")
        yield from self._in_world(chaos, FaultKind.KUEUE_EVICT, path, job=str(job), duration=chaos.duration)

    # Which objects it affects.

    def _on_pods(
        self,
        chaos: PodChaos | PhysicalMachineChaos | NetworkChaos,
        kind: FaultKind,
        path: str,
        chance: random.Random,
        *,
        duration: str | None,
        code: int = 0,
        sign: Sign = Sign.NONE,
        container: str = "",
    ) -> Iterator[TrialFault]:
        self._only(chaos, path, "job", "indexes")
        job = self._job(chaos, path)
        if job is None:
            return
        chosen = self._indexes(chaos, job, path)
        wanted = self._how_many(chaos.mode, chaos.value, len(chosen), path)
        indexes = sorted(chance.sample(chosen, wanted))
        together: list[tuple[int, ...]] = [tuple(indexes)]
        # Without an index the selection is wrong. One fault is still built, to check the moment too.
        for struck in [(index,) for index in indexes] or together if kind in ONE_POD_EACH else together:
            for fault in self._in_world(
                chaos, kind, path, job=str(job), indexes=struck, duration=duration, code=code, sign=sign
            ):
                yield replace(fault, container=container)

    def _indexes(self, chaos: Chaos, job: JobPlan, path: str) -> tuple[int, ...]:
        """The indexes to choose from. Empty: they are not known."""
        chosen = chaos.selector.indexes
        if len(set(chosen)) < len(chosen):
            self._problems.add(f"{path}.selector.indexes", "an index stands there twice")
        if str(job) in self._read_jobs.unsized:
            return ()
        outside = [index for index in chosen if not 0 <= index < job.pods]
        if outside:
            named = ", ".join(map(str, outside))
            self._problems.add(f"{path}.selector.indexes", f"{named}: job {job} has the indexes 0 to {job.pods - 1}")
        return chosen or tuple(range(job.pods))

    def _how_many(self, mode: SelectionMode | None, value: int | str | None, candidates: int, path: str) -> int:
        """How many candidates are selected. 0: mode or value is wrong, or there are no candidates."""
        if mode is None:
            self._problems.add(f"{path}.mode", f"is missing; say one of {', '.join(SelectionMode)}")
            return 0
        if mode in (SelectionMode.ONE, SelectionMode.ALL):
            self._problems.unfit(path, f"mode {mode}", value=value)
        wanted = how_many(mode, value, candidates)
        if candidates and not wanted:
            self._problems.add(f"{path}.value", misfit(mode, value, candidates))
        return wanted

    def _in_world(
        self,
        chaos: Chaos,
        kind: FaultKind,
        path: str,
        *,
        job: str = "",
        indexes: tuple[int, ...] = (),
        duration: str | None = None,
        code: int = 0,
        sign: Sign = Sign.NONE,
    ) -> Iterator[TrialFault]:
        self._problems.unfit(path, "what affects no controller", event=chaos.event)
        at_seconds = self._at(chaos, path)
        seconds = self._lasting(duration, at_seconds, path)
        key = FaultKey(WORLD, self._numbers, kind)
        self._numbers += 1
        yield TrialFault(key, seconds=seconds, at_seconds=at_seconds, job=job, indexes=indexes, code=code, sign=sign)

    def _on_process(self, chaos: Chaos, kind: FaultKind, path: str, duration: str) -> Iterator[TrialFault]:
        """A fault at a moment or at a request."""
        if chaos.event is not None:
            yield from self._on_event(chaos, kind, path, self._lasting(duration, 0.0, path))
        elif (replica := self._replica(chaos, path)) is not None:
            yield from self._in_world(chaos, kind, path, indexes=(replica,), duration=duration)

    def _on_event(self, chaos: Chaos, kind: FaultKind, path: str, seconds: float) -> Iterator[TrialFault]:
        """A fault at a request or at a line of a watch, by number: when a controller gets there is not known before."""
        replica = self._replica(chaos, path)
        self._problems.unfit(path, "what affects a controller", during=chaos.during)
        if chaos.at or chaos.event is None:
            self._problems.add(f"{path}.event", "say which request, or which line, by its number instead of at")
        elif chaos.event < 0:
            self._problems.add(f"{path}.event", f"{chaos.event} is no number of an event; they count from 0")
        elif replica is not None:
            actor = f"controller-{replica}"
            event = (actor, chaos.event, kind in HIT_LINES)
            if event in self._events:
                self._problems.add(f"{path}.event", f"{chaos.event} of {actor} meets with another fault already")
            self._events.add(event)
            yield TrialFault(FaultKey(actor, chaos.event, kind), seconds=seconds)

    def _replica(self, chaos: Chaos, path: str) -> int | None:
        """The selected replica. None: the selector is wrong."""
        self._only(chaos, path, "controller")
        replica, replicas = chaos.selector.controller, self._file.controllers.replicas
        if replica is not None and 0 <= replica < replicas:
            return replica
        said = "is missing" if replica is None else f"there is no {replica}"
        self._problems.add(f"{path}.selector.controller", f"{said}; controllers are 0 to {replicas - 1}")
        return None

    def _only(self, chaos: Chaos, path: str, *fields: str) -> None:
        """Reports all other fields of the selector."""
        selector = chaos.selector
        said = {
            "job": bool(selector.job),
            "indexes": bool(selector.indexes),
            "controller": selector.controller is not None,
            "component": selector.component is not None,
        }
        for field, is_said in said.items():
            if is_said and field not in fields:
                fix = f"select by {fields[0]}" if fields else "it affects the whole cluster"
                self._problems.add(f"{path}.selector.{field}", f"means nothing here; {fix}")

    def _job(self, chaos: Chaos, path: str) -> JobPlan | None:
        """The selected job. None: it is missing or unknown. The moment is then checked here, as nothing else is."""
        name = chaos.selector.job
        job = self._found(name)
        if job is not None:
            return job
        if not name:
            self._problems.add(f"{path}.selector.job", "is missing")
        elif sum(each.name == name for each in self._jobs.values()) > 1:
            self._problems.add(f"{path}.selector.job", f"several jobs are called {name!r}; write namespace/name")
        elif self._read_jobs.complete:
            known = self._jobs if "/" in name else dict.fromkeys(each.name for each in self._jobs.values())
            self._problems.add(f"{path}.selector.job", f"there is no job {name!r}; {none_of(name, known)}")
        self._at(chaos, path)
        return None

    def _found(self, name: str) -> JobPlan | None:
        """None: no job has that name, or several have it."""
        if "/" in name:
            return self._jobs.get(name)
        called = [job for job in self._jobs.values() if job.name == name]
        return called[0] if len(called) == 1 else None

    # When, and for how long.

    def _at(self, chaos: Chaos, path: str) -> float:
        if chaos.during is not None:
            self._problems.add(f"{path}.during", "needs target, a job of a cluster; say at")
        if not chaos.at:
            if chaos.during is None:
                self._problems.add(f"{path}.at", "is missing")
            return 0.0
        seconds = self._problems.seconds(chaos.at, f"{path}.at", may_be_none=True)
        if seconds >= self._active_seconds > 0:
            self._problems.add(f"{path}.at", f"{chaos.at} is not before the end of all chaos, {self._file.duration}")
        return seconds

    def _fitting(
        self, duration: str | None, action: PodAction | MachineAction | NetworkAction | UserAction, path: str
    ) -> str | None:
        """The duration. Reports one that is missing, or that the action does not take."""
        if action in LASTING and duration is None and not self._problems.is_wrong(f"{path}.duration"):
            self._problems.add(f"{path}.duration", f"is missing: {action} needs one")
        if action not in LASTING:
            self._problems.unfit(path, action, duration=duration)
            return None
        return duration

    def _lasting(self, duration: str | None, at_seconds: float, path: str) -> float:
        """The duration in seconds. Every fault must end before the healing begins."""
        if duration is None:
            return 0.0
        seconds = self._problems.seconds(duration, f"{path}.duration")
        if at_seconds < self._active_seconds < at_seconds + seconds:
            left_seconds = self._active_seconds - at_seconds
            self._problems.add(f"{path}.duration", f"{duration} reaches into healing; say {left_seconds:g}s or less")
        return seconds
