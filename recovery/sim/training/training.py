"""Distributed training in the pods: ranks that meet, step together, checkpoint, and hang when one of them is lost.

This makes a lost member expensive. A rank that loses a peer does not die: it hangs in a collective operation and
ignores SIGTERM until its own NCCL timeout. A rank that starts alone waits for the others until a timeout. Trainings of
other kinds do not hang (`TrainingKind`). Steps are computed from time, not counted, so training costs nothing between
events.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from recovery import api_verbs
from recovery.ports import (
    JOB_SETS,
    JOBS,
    TRAIN_JOBS,
    ApiClient,
    ApiError,
    Clock,
    Entropy,
    PatchKind,
    ReadAgainError,
    TryLaterError,
)
from recovery.scenario.modelled_job import TrainingKind
from recovery.sim.kubelets.objects import Pod
from recovery.sim.kubelets.processes import SIGTERM_CODE, ContainerProcess, Exit
from recovery.sim.timers import Timers
from recovery.sim.training.rounds import (
    ABORT,
    JOIN_TIMEOUT,
    NCCL_TIMEOUT,
    Group,
    Rank,
    RankState,
    Round,
    TrainingOutcome,
    TrainingSettings,
)
from recovery.sim.training.trace import EventKind, Trace, TraceRecord

JOBSET_NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB_LABEL = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
ALL_JOBS_LABEL = "jobset.sigs.k8s.io/global-replicas"
"""How many Jobs the JobSet has."""
INITIALIZERS = frozenset({"dataset-initializer", "model-initializer"})
"""The initializers' ReplicatedJobs in Kubeflow Trainer's runtimes. Their step label is on Jobs, never on pods."""
SIZE_VARIABLE = "PET_NNODES"
EXITS_AFTER_VARIABLE = "EXITS_AFTER_SECONDS"
"""Environment variable of a container that does not train: it exits with 0 after that many seconds."""
TRAINING_CONTAINERS = frozenset({"node", "launcher"})
"""Names of the training containers in Kubeflow Trainer's runtimes."""
SIZE_POLL_SECONDS = 1.0
ANNOUNCES_AFTER_SECONDS = 1.5
"""Delay of the first report after all ranks have met, so that it is in a later whole second of API time."""


@dataclass(frozen=True)
class _Report:
    """A progress report of rank 0, with its own time."""

    training: str
    at: datetime
    percentage: int | None
    """None: the number of steps is not known."""


class _JobSpec(msgspec.Struct):
    completions: int | None = None


class _Job(msgspec.Struct):
    spec: _JobSpec


class _ReplicatedJob(msgspec.Struct):
    name: str
    replicas: int = 1


class _JobSetSpec(msgspec.Struct, rename="camel"):
    replicated_jobs: tuple[_ReplicatedJob, ...] = ()


class _JobSet(msgspec.Struct):
    spec: _JobSetSpec

    def members(self) -> tuple[str, ...]:
        jobs = [job for job in self.spec.replicated_jobs if job.name not in INITIALIZERS]
        return tuple(f"{job.name}-{index}" for job in jobs for index in range(job.replicas))


class TrainingWorld:
    """The workload of all pods: ranks in pods of Indexed Jobs, initializers, and processes that run until SIGTERM.

    A rank is the one training process of its pod. The containers beside it neither meet nor step.

    A training is identified by the `namespace/name` of its JobSet. Its last checkpoint outlives pods, Jobs and JobSets.
    All Jobs of a JobSet except initializers train together: a round uses the ranks of each member's newest Job. The
    readiness probe of a rank is a joined probe, which succeeds when all ranks have met. Other processes answer their
    probes from the start.
    """

    def __init__(
        self,
        api: ApiClient,
        clock: Clock,
        entropy: Entropy,
        settings: TrainingSettings | None = None,
        sink: Callable[[bytes], None] | None = None,
    ) -> None:
        """`sink` gets the trace line by line, as JSON."""
        self.trace = Trace(sink)
        self._api = api
        self._clock = clock
        self._entropy = entropy
        self._settings = settings or TrainingSettings()
        self._timers = Timers(clock)
        self._groups: dict[str, Group] = {}
        self._rounds: dict[str, list[Round]] = {}
        self._checkpoints: dict[str, int] = {}
        self._saved_at: dict[str, datetime] = {}
        self._size_wanted = asyncio.Event()
        self._reports: asyncio.Queue[_Report] = asyncio.Queue()

    # Queries.

    def step_of(self, training: str) -> int:
        """Steps done until now by the newest round. 0 before the first round."""
        return self.step_at(training, self._clock.now())

    def step_at(self, training: str, at: datetime) -> int:
        """Steps done at that moment. The number falls when a new round goes back to the last checkpoint."""
        formed = (round_ for round_ in reversed(self.rounds(training)) if round_.formed_at <= at)
        newest = next(formed, None)
        return newest.step_at(at) if newest else 0

    def checkpoint_of(self, training: str) -> int:
        """The step from which the next round would start."""
        return self._checkpoints.get(training, 0)

    def rounds(self, training: str) -> list[Round]:
        """The rounds of a training, oldest first."""
        return self._rounds.get(training, [])

    def passed(self, training: str, step: int, since: datetime) -> bool:
        """Whether a round formed at `since` or later has done more than `step` steps."""
        now = self._clock.now()
        return any(round_.formed_at >= since and round_.step_at(now) > step for round_ in self.rounds(training))

    def ranks(self, training: str) -> Counter[RankState]:
        """How many processes of all incarnations are in each state."""
        groups = [group for group in self._groups.values() if group.training == training]
        return Counter(rank.state for group in groups for rank in group.ranks.values())

    # Calls of the kubelets.

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._timers.run())
            tasks.create_task(self._keep_sizes())
            tasks.create_task(self._keep_reporting())

    def process_started(self, process: ContainerProcess) -> None:
        pod = process.pod
        if pod.metadata.labels.get(REPLICATED_JOB_LABEL) in INITIALIZERS:
            process.answer_probe()
            self._timers.after(self._settings.initializer_seconds, lambda: process.end(Exit(0)))
            return
        if pod.index is None or pod.job_uid is None or process.container.name != _rank_container(pod):
            process.answer_probe()
            seconds = process.variable(EXITS_AFTER_VARIABLE)
            if seconds is not None:
                self._timers.after(float(seconds), lambda: process.end(Exit(0)))
            return
        group = self._group(process, pod.job_uid)
        rank = Rank(process, group, pod.index)
        group.ranks[process] = group.waiting[rank.index] = rank
        self._record_of(rank, EventKind.PROCESS_STARTED)
        if self._joins(rank):
            return
        self._limit_wait(rank)
        if group.asks:
            self._size_wanted.set()
        else:
            self._form_if_complete(group)

    def process_termed(self, process: ContainerProcess) -> None:
        rank = self._rank(process)
        if rank is None:
            self._timers.after(self._settings.term_seconds, lambda: process.end(Exit(SIGTERM_CODE)))
            return
        if rank.state is RankState.HUNG:
            return
        saving = self._settings.savings_of.get(rank.group.training) if rank.state is RankState.TRAINING else None
        if rank.round and saving is None and self._kind(rank.group.training) is not TrainingKind.INDEPENDENT:
            self._end_steps(rank.round)
        self._stop_waiting(rank)
        rank.state = RankState.LEAVING
        seconds, code = (saving.seconds, saving.code) if saving else (self._settings.term_seconds, SIGTERM_CODE)
        rank.die_after(self._timers, seconds, Exit(code))

    def process_exited(self, process: ContainerProcess) -> None:
        rank = self._rank(process)
        if rank is None or process.exit is None:
            return
        group = rank.group
        if rank.death:
            rank.death.cancel()
        self._stop_waiting(rank)
        del group.ranks[process]
        if not group.ranks:
            del self._groups[group.job_uid]
        self._record_of(rank, EventKind.PROCESS_EXITED, exit_code=process.exit.code)
        if rank.round:
            self._lose(rank.round, rank, process.exit.code)

    # Rounds.

    def _kind(self, training: str) -> TrainingKind:
        return self._settings.kinds_of.get(training, TrainingKind.REQUIRED)

    def _joins(self, rank: Rank) -> bool:
        """A rank that waits for no other joins the round that its Job has formed. False: there is none."""
        group = rank.group
        if self._kind(group.training) is not TrainingKind.INDEPENDENT:
            return False
        rank.process.answer_probe()
        present = self.rounds(group.training)[-1:]
        if not present or present[0].outcome or group.job_uid not in present[0].job_uids:
            return False
        self._stop_waiting(rank)
        rank.state, rank.round = RankState.TRAINING, present[0]
        present[0].ranks.append(rank)
        return True

    def _limit_wait(self, rank: Rank) -> None:
        """A rank that waits for the others gives up after a while. Workers of a launcher only serve, so they do not."""
        kind = self._kind(rank.group.training)
        if kind is not TrainingKind.INDEPENDENT and (kind is not TrainingKind.LAUNCHER or rank.launches):
            rank.die_after(self._timers, self._settings.join_timeout_seconds, JOIN_TIMEOUT)

    def _form_if_complete(self, group: Group) -> None:
        if not group.complete or group.members is None:
            return
        groups = [group] if len(group.members) == 1 else [self._newest(group, member) for member in group.members]
        met = [each for each in groups if each and each.complete]
        if len(met) < len(groups) or group not in met:
            return
        formed = Round(
            training=group.training,
            job_uids=tuple(each.job_uid for each in met),
            size=sum(each.size or 0 for each in met),
            formed_at=self._clock.now(),
            from_step=self.checkpoint_of(group.training),
            step_seconds=self._settings.step_seconds,
            total_steps=self._settings.total_steps_of.get(group.training, self._settings.total_steps),
            ranks=[each.waiting.pop(index) for each in met for index in range(each.size or 0)],
        )
        for rank in formed.ranks:
            rank.state, rank.round = RankState.TRAINING, formed
            if rank.death:
                rank.death.cancel()
            rank.process.answer_probe()
        self._rounds.setdefault(group.training, []).append(formed)
        self._record(EventKind.ROUND_FORMED, formed)
        self._set_checkpoint(formed)
        self._timers.after(ANNOUNCES_AFTER_SECONDS, lambda: self._announce(formed))
        self._set_report(formed)
        if formed.total_steps is not None:
            left_seconds = (formed.total_steps - formed.from_step) * formed.step_seconds
            formed.finish = self._timers.after(max(0.0, left_seconds), lambda: self._finish(formed))

    def _newest(self, group: Group, member: str) -> Group | None:
        """The newest Job of that member in this training that has a process."""
        jobs = (each for each in reversed(self._groups.values()) if each.training == group.training)
        return next((each for each in jobs if each.member == member), None)

    def _set_checkpoint(self, formed: Round) -> None:
        every = self._settings.checkpoint_every_steps
        step = (max(formed.from_step, self.checkpoint_of(formed.training)) // every + 1) * every
        due_at = formed.formed_at + timedelta(seconds=(step - formed.from_step) * formed.step_seconds)
        due_seconds = max(0.0, (due_at - self._clock.now()).total_seconds())
        formed.next_checkpoint = self._timers.after(due_seconds, lambda: self._checkpoint(formed, step))

    def _checkpoint(self, formed: Round, step: int) -> None:
        self._checkpoints[formed.training] = step
        self._saved_at[formed.training] = self._clock.now()
        self._record(EventKind.CHECKPOINT, formed)
        self._set_checkpoint(formed)

    def _set_report(self, formed: Round) -> None:
        every_seconds = self._settings.reports_every_seconds_of.get(formed.training)
        if every_seconds is not None:
            formed.next_report = self._timers.after(every_seconds, lambda: self._report(formed))

    def _announce(self, formed: Round) -> None:
        """Report 0 %, regardless of the checkpoint, as transformers does when training begins."""
        if formed.training in self._settings.reports_every_seconds_of and formed.ended_at is None:
            self._reports.put_nowait(_Report(formed.training, self._clock.now(), 0))

    def _report(self, formed: Round) -> None:
        """Rank 0 reports. While independent ranks train on without it, none does."""
        self._set_report(formed)
        if not any(rank.index == 0 and rank.group.job_uid == formed.job_uid for rank in formed.ranks):
            return
        now, total = self._clock.now(), formed.total_steps
        percentage = None if not total else min(100, 100 * formed.step_at(now) // total)
        self._reports.put_nowait(_Report(formed.training, now, percentage))
        self._record(EventKind.REPORTED, formed)

    async def _keep_reporting(self) -> None:
        """Write the reports, as Trainer's status server does. A failed write is lost, and the training continues."""
        while True:
            report = await self._reports.get()
            namespace, _, name = report.training.partition("/")
            at, metrics = report.at.strftime("%Y-%m-%dT%H:%M:%SZ"), self._checkpoint_metrics(report.training)
            status: dict[str, object] = {"lastUpdatedTime": at, "metrics": metrics}
            if report.percentage is not None:
                status["progressPercentage"] = report.percentage
            try:
                await api_verbs.patch(
                    self._api,
                    TRAIN_JOBS,
                    name,
                    {"status": {"trainerStatus": status}},
                    kind=PatchKind.MERGE,
                    namespace=namespace,
                    subresource="status",
                )
            except ApiError:
                continue

    def _checkpoint_metrics(self, training: str) -> list[dict[str, str]]:
        """Empty: it has saved none yet."""
        if training not in self._saved_at:
            return []
        metrics = {
            "checkpoint_timestamp_seconds": f"{self._saved_at[training].timestamp():.3f}",
            "checkpoint_step": f"{self._checkpoints[training]}",
        }
        return [{"name": name, "value": value} for name, value in metrics.items()]

    def _end_steps(self, ending: Round) -> None:
        if ending.ended_at is None:
            ending.ended_at = self._clock.now()
            for timer in (ending.next_checkpoint, ending.finish, ending.next_report):
                if timer:
                    timer.cancel()

    def _lose(self, broken: Round, lost: Rank, exit_code: int) -> None:
        """The first lost rank ends the round. Later losses change nothing."""
        if broken.outcome:
            return
        kind = self._kind(broken.training)
        if kind is TrainingKind.INDEPENDENT:
            broken.ranks.remove(lost)
            if broken.ranks:
                return  # The others train on.
        self._end_steps(broken)
        broken.outcome = TrainingOutcome.BROKEN
        ranks, broken.ranks = broken.ranks, []
        self._record_of(lost, EventKind.RANK_LOST, exit_code=exit_code)
        left = [rank for rank in ranks if rank.state is RankState.TRAINING and rank is not lost]
        if kind in {TrainingKind.SELF_HEALING, TrainingKind.LAUNCHER}:
            self._wait_again(left, kind)
        elif exit_code != 0 or len(broken.job_uids) == 1:
            self._hang(left)  # Otherwise the launcher is done. The others have no collective to hang in.

    def _hang(self, ranks: Sequence[Rank]) -> None:
        jitter = self._settings.nccl_jitter_seconds
        for rank in ranks:
            rank.state = RankState.HUNG
            self._record_of(rank, EventKind.RANK_HUNG)
            seconds = self._settings.nccl_timeout_seconds + self._entropy.uniform(-jitter, jitter)
            rank.die_after(self._timers, max(0.0, seconds), NCCL_TIMEOUT)

    def _wait_again(self, ranks: Sequence[Rank], kind: TrainingKind) -> None:
        """The ranks that are left wait for the rank that replaces the lost one, except a launcher, which ends."""
        for rank in ranks:
            rank.round = None
            if kind is TrainingKind.LAUNCHER and rank.launches:
                rank.die_after(self._timers, self._settings.abort_seconds, ABORT)
                continue
            rank.state = RankState.WAITING
            rank.group.waiting[rank.index] = rank
            self._limit_wait(rank)
        for group in dict.fromkeys(rank.group for rank in ranks):
            self._form_if_complete(group)

    def _finish(self, finished: Round) -> None:
        """All steps are done: every rank exits with 0. A training that starts again finds the last checkpoint."""
        self._end_steps(finished)
        finished.outcome = TrainingOutcome.FINISHED
        ranks, finished.ranks = finished.ranks, []
        self._checkpoints[finished.training] = finished.step_at(self._clock.now())
        self._record(EventKind.FINISHED, finished)
        for rank in ranks:
            rank.process.end(Exit(0))

    # Ranks and groups.

    def _group(self, process: ContainerProcess, job_uid: str) -> Group:
        if job_uid not in self._groups:
            pod = process.pod
            namespace, labels = pod.metadata.namespace, pod.metadata.labels
            literal = process.variable(SIZE_VARIABLE) or ""
            size = int(literal) if literal.isdecimal() else None
            name = labels.get(JOBSET_NAME_LABEL, pod.job_name)
            member = f"{labels.get(REPLICATED_JOB_LABEL, '')}-{labels.get(JOB_INDEX_LABEL, 0)}"
            alone = int(labels.get(ALL_JOBS_LABEL, 1)) == 1
            self._groups[job_uid] = Group(
                job_uid,
                pod.job_name,
                namespace,
                f"{namespace}/{name}",
                member,
                (member,) if alone else None,
                size,
                size_is_literal=size is not None,
            )
        return self._groups[job_uid]

    def _rank(self, process: ContainerProcess) -> Rank | None:
        """The rank of the process. None: it is not a rank."""
        group = self._groups.get(process.pod.job_uid or "")
        return group.ranks.get(process) if group else None

    def _stop_waiting(self, rank: Rank) -> None:
        if rank.group.waiting.get(rank.index) is rank:
            del rank.group.waiting[rank.index]

    async def _keep_sizes(self) -> None:
        """Poll the API while ranks wait and only API objects show how many must meet."""
        while True:
            await self._size_wanted.wait()
            asking = [group for group in self._groups.values() if group.asks]
            for group in asking:
                try:
                    await self._ask(group)
                except (ReadAgainError, TryLaterError):
                    continue  # The loop polls again, or the ranks time out.
                self._form_if_complete(group)
            if not asking:
                self._size_wanted.clear()
                continue
            await self._clock.sleep(SIZE_POLL_SECONDS)

    async def _ask(self, group: Group) -> None:
        if group.members is None:
            name = group.training.partition("/")[2]
            body = await api_verbs.get(self._api, JOB_SETS, name, namespace=group.namespace)
            group.members = msgspec.json.decode(body, type=_JobSet).members()
            # If several Jobs train together, the size in the pods is not the size of one Job.
            group.size_is_literal = group.size_is_literal and len(group.members) == 1
        if not group.size_is_literal:
            body = await api_verbs.get(self._api, JOBS, group.job_name, namespace=group.namespace)
            group.size = msgspec.json.decode(body, type=_Job).spec.completions

    def _record(self, kind: EventKind, round_: Round) -> None:
        """Record the event once for each Job, so that a reader of one Job's records does not need the others."""
        now = self._clock.now()
        step = self.step_at(round_.training, now)
        for uid in round_.job_uids:
            self.trace.add(TraceRecord(at=now, kind=kind, training=round_.training, job_uid=uid, step=step))

    def _record_of(self, rank: Rank, kind: EventKind, exit_code: int | None = None) -> None:
        now = self._clock.now()
        group, process = rank.group, rank.process
        record = TraceRecord(
            at=now,
            kind=kind,
            training=group.training,
            job_uid=group.job_uid,
            step=self.step_at(group.training, now),
            member=group.member,
            pod=process.pod.name,
            pod_uid=process.pod.uid,
            restart_count=process.restart_count,
            index=rank.index,
            node=process.node,
            exit_code=exit_code,
        )
        self.trace.add(record)


def _rank_container(pod: Pod) -> str:
    """Name of the training container: the one whose environment has the group's size, else the one with a name that
    Trainer uses, else the first."""
    containers = pod.spec.containers
    sized = (container for container in containers if container.sets(SIZE_VARIABLE))
    named = (container for container in containers if container.name in TRAINING_CONTAINERS)
    return next(sized, next(named, containers[0])).name
