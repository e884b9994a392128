"""Real agents for the modelled pods of a job: each runs the command that admission has put into its container.

A kubelet of the model plays the pod, and its container ends when the agent does. A container is a set of processes with
one mark in their environment. All of them die with the agent, as with the first process of a real container.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from recovery.rendezvous.tokens import AUDIENCE
from recovery.sim.kubelets.environment import environment
from recovery.sim.kubelets.objects import Pod
from tests.agent.launches import AGENT, fake_torch, free_master_port
from tests.cluster.agents import FOLDER
from tests.cluster.controlplane.kubectl import KubectlError
from tests.cluster.controlplane.processes import die_with_parent
from tests.cluster.scene import Job, Object, until

_MARK = "CONTAINER_OF_THE_TEST"
_POLL_SECONDS = 0.05
SCRIPT = """
import os, time
slot, epoch = os.environ["GROUP_RANK"], int(os.environ["TORCHELASTIC_RESTART_COUNT"]) + 1
with open(os.environ["STARTS"], "a") as starts:
    starts.write(f"{slot} {epoch} {os.getpid()}\\n")
while not os.path.exists(os.path.join(os.environ["ORDERS"], f"die-{slot}-{epoch}")):
    time.sleep(0.02)
raise ValueError("told to")
"""


@dataclass(frozen=True)
class RankStart:
    """A rank that has started in one of the containers."""

    slot: int
    epoch: int
    pid: int
    container: str


@dataclass
class Container:
    """One run of the container of a pod, with the agent as its first process."""

    pod: Object
    mark: str
    process: asyncio.subprocess.Process
    log: Path
    ending: bool = False
    """Its pod is being deleted, or its agent has ended."""

    @property
    def slot(self) -> int:
        return int(self.pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"])

    @property
    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL to everything in the container."""
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has ended meanwhile
                if f"{_MARK}={self.mark}".encode() in (process / "environ").read_bytes().split(b"\0"):
                    os.kill(int(process.name), signal.SIGKILL)


@dataclass
class PodAgents:
    """The agents of a job. `run` starts one in each container that runs, and ends them with it."""

    job: Job
    folder: Path
    config_map: Mapping[str, str]
    """The ConfigMap `recovery-agent` of the job's namespace. Empty: there is none."""
    containers: dict[str, Container] = field(default_factory=dict)
    """The newest of each pod, by the pod's UID."""
    codes: list[tuple[int, int]] = field(default_factory=list)
    """Slot and exit code of each agent that ended before its pod was deleted."""
    _runs: int = 0
    _ports: dict[str, int] = field(default_factory=dict)
    """The master port of each Job, by its UID: pods have addresses of their own, and agents on loopback have none."""

    @classmethod
    @asynccontextmanager
    async def running(cls, job: Job, folder: Path, config_map: Mapping[str, str]) -> AsyncIterator["PodAgents"]:
        agents = cls(job, folder, config_map)
        (folder / "orders").mkdir()
        script_of(folder).write_text(SCRIPT)
        packages = fake_torch(folder)
        torchrun = packages / "torchrun"
        torchrun.write_text(f"#!{sys.executable}\n{torchrun.read_text()}")
        torchrun.chmod(0o755)
        running = asyncio.create_task(agents._run())
        try:
            yield agents
            assert not running.done(), "the agents' keeper has ended before the test; what ended it follows"
        finally:
            running.cancel()
            await asyncio.wait({running})
            for container in agents.containers.values():
                container.kill()
                await container.process.wait()
                print(f"agent of slot {container.slot}, {container.mark}", container.said[-3000:], sep="\n")
            if not running.cancelled():
                running.result()

    def starts(self, epoch: int) -> dict[int, RankStart]:
        """The newest rank of each slot that has started in that epoch, in the containers that run now."""
        found = {}
        for container in self.containers.values():
            log = self._starts_of(container.mark)
            for line in log.read_text().splitlines() if log.exists() else ():
                slot, of_epoch, pid = map(int, line.split())
                if of_epoch == epoch:
                    found[slot] = RankStart(slot, epoch, pid, container.mark)
        return found

    async def all_run(self, epoch: int) -> dict[int, RankStart]:
        await until(f"all ranks run epoch {epoch}", lambda: len(self.starts(epoch)) == self.job.ranks)
        return self.starts(epoch)

    async def permitted(self) -> None:
        """Wait until each agent has its zygote, which it starts by the permission alone."""
        await until("all agents are permitted", lambda: all(map(has_zygote, self.containers.values())))

    def of_slot(self, slot: int) -> Container:
        [found] = [each for each in self.containers.values() if each.slot == slot and not each.ending]
        return found

    def order_to_die(self, slot: int, epoch: int) -> None:
        """The rank of that slot fails in that epoch, as soon as it has started."""
        (self.folder / "orders" / f"die-{slot}-{epoch}").touch()

    def kill_rank(self, slot: int, epoch: int) -> None:
        os.kill(self.starts(epoch)[slot].pid, signal.SIGKILL)

    async def _run(self) -> None:
        while True:
            pods = {pod["metadata"]["uid"]: pod for pod in await self.job.pods()}
            for uid, container in list(self.containers.items()):
                await self._follow(container, pods.get(uid))
            for uid, pod in pods.items():
                if uid not in self.containers and _runs(pod) and (token := await self._token(pod)):
                    self.containers[uid] = await self._start(pod, token)
            await asyncio.sleep(_POLL_SECONDS)

    async def _follow(self, container: Container, pod: Object | None) -> None:
        if pod is None or _restarts(pod) > _restarts(container.pod):
            container.kill()
            await container.process.wait()
            del self.containers[container.pod["metadata"]["uid"]]
        elif "deletionTimestamp" in pod["metadata"] and not container.ending:
            container.ending = True
            if container.process.returncode is None:
                container.process.terminate()
        elif container.process.returncode is not None and not container.ending:
            self._ended(container, pod, container.process.returncode)

    def _ended(self, container: Container, pod: Object, code: int) -> None:
        """Tell the kubelet, which may start another container in the pod."""
        container.kill()
        self.codes.append((container.slot, code))
        print(f"agent of slot {container.slot} ended with {code}", container.said[-3000:], sep="\n")
        container.ending = True
        with suppress(LookupError):  # the pod is being deleted
            self.job.fleet.kubelets.exit_container(
                pod["metadata"]["name"], code if code >= 0 else 128 - code, namespace=self.job.namespace
            )

    async def _token(self, pod: Object) -> str:
        """The token that the kubelet would project. Empty: the pod has just been deleted."""
        meta = pod["metadata"]
        bound = (f"--bound-object-name={meta['name']}", f"--bound-object-uid={meta['uid']}")
        asked = ("create", "token", pod["spec"]["serviceAccountName"], "-n", self.job.namespace)
        about = (f"--audience={AUDIENCE}", "--bound-object-kind=Pod")
        try:
            return await self.job.control_plane.kubectl(*asked, *about, *bound)
        except KubectlError:
            if any(each["metadata"]["uid"] == meta["uid"] for each in await self.job.pods()):
                raise
            return ""

    async def _start(self, pod: Object, given_token: str) -> Container:
        self._runs += 1
        mark = f"{pod['metadata']['name']}-{self._runs}"
        [container] = [each for each in pod["spec"]["containers"] if each["name"] == "node"]
        token = self.folder / f"{mark}.token"
        token.write_text(given_token)
        log = self.folder / f"{mark}.log"
        with log.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(
                *(word.replace(FOLDER, str(AGENT)) for word in container["command"]),
                cwd=self.folder,
                env=self._environment(pod, mark, token),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=sink,
                stderr=sink,
                preexec_fn=die_with_parent(),
            )
        return Container(pod, mark, process, log)

    def _environment(self, pod: Object, mark: str, token: Path) -> dict[str, str]:
        """What the kubelet would give, with paths and addresses of this machine."""
        typed = msgspec.convert(pod, Pod)
        [node] = [each for each in typed.spec.containers if each.name == "node"]
        given = environment(typed, node, node=typed.spec.node_name, pod_ip="127.0.0.1", host_ip="127.0.0.1")
        packages = self.folder / "packages"
        paths = [path.replace(FOLDER, str(AGENT)) for path in (given.get("PYTHONPATH"), str(packages)) if path]
        return (
            given
            | self._from_config_map(pod)
            | {
                "PATH": f"{packages}:{os.environ['PATH']}",
                "PYTHONPATH": os.pathsep.join(paths),
                "PYTHONDONTWRITEBYTECODE": "1",
                "PET_MASTER_ADDR": "127.0.0.1",
                "PET_MASTER_PORT": str(self._port_of(typed.job_uid or "")),
                "RECOVERY_AGENT_TOKEN_FILE": str(token),
                "STARTS": str(self._starts_of(mark)),
                "ORDERS": str(self.folder / "orders"),
                _MARK: mark,
            }
        )

    def _from_config_map(self, pod: Object) -> dict[str, str]:
        variables = [each for container in pod["spec"]["containers"] for each in container.get("env", [])]
        wanted = {each["name"]: each.get("valueFrom", {}).get("configMapKeyRef") for each in variables}
        return {name: self.config_map[source["key"]] for name, source in wanted.items() if source is not None}

    def _port_of(self, job_uid: str) -> int:
        if job_uid not in self._ports:
            self._ports[job_uid] = free_master_port()
        return self._ports[job_uid]

    def _starts_of(self, mark: str) -> Path:
        return self.folder / f"{mark}.starts"


def script_of(folder: Path) -> Path:
    """The training script that the job's command names."""
    return folder / "train.py"


def zygotes(container: Container) -> list[int]:
    """The process ids of the zygotes in that container."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes()
            mine = f"{_MARK}={container.mark}".encode() in (process / "environ").read_bytes().split(b"\0")
            # A forked rank has its zygote's command line.
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if mine and b"zygote_host" in words and parent == container.process.pid:
                found.append(int(process.name))
    return found


def has_zygote(container: Container) -> bool:
    return bool(zygotes(container))


def waiting_zygote(container: Container) -> int | None:
    """The process id of the zygote that has imported torch and waits for an order. None: it is not so far."""
    for pid in zygotes(container):
        waits_in = Path(f"/proc/{pid}/wchan").read_text()
        if f"torch imported by {pid}\n" in container.said and waits_in.startswith("unix_stream"):
            return pid
    return None


def _runs(pod: Object) -> bool:
    states = [each.get("state", {}) for each in pod["status"].get("containerStatuses", [])]
    return "deletionTimestamp" not in pod["metadata"] and bool(states) and all("running" in each for each in states)


def _restarts(pod: Object) -> int:
    return sum(each["restartCount"] for each in pod["status"].get("containerStatuses", []))
