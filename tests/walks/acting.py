"""Performs the steps of a walk: chooses the target of each act, and carries it out through the API or the kubelets."""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from recovery import api_verbs
from recovery.ports import (
    JOB_SETS,
    JOBS,
    NODES,
    PODS,
    TRAIN_JOBS,
    NotFoundError,
    PatchKind,
    Propagation,
    ReadAgainError,
    RefusedError,
    Resource,
    TryLaterError,
)
from recovery.sim.kubelets.node_run import NodeDeath
from tests.contract.scene import Object, Scene, deleting, ended
from tests.walks.bodies import NAME
from tests.walks.draw import TRAINER
from tests.walks.history import Stories
from tests.walks.plan import Act, ActKind, Step
from tests.walks.settling import is_final, is_owned

EXPIRY_SECONDS = 3
"""Already over for a Job that runs. If the Job is resumed later, its pods still have time to start."""
REBOOT_SECONDS = 1.0
EVICTED_SECONDS = 150.0
"""By then the pods of a silent node are being deleted, or a node that is back is known to be back."""
AT_ONCE_SECONDS = (0.01, 0.1, 0.5, 2.0)
"""Two requests sent at once may be handled this far apart; the last two values occur on an overloaded machine."""
POLL_SECONDS = 0.2
TRIES = 20
TAINT = {"key": "walk", "effect": "NoExecute"}


class Actor:
    """Performs the events of one walk on its workload and its nodes."""

    def __init__(
        self, scene: Scene, stories: Stories, workloads: Resource, nodes: Sequence[str], dice: random.Random | None
    ) -> None:
        """`workloads`: the kind of the object that the user suspends and resumes.

        `dice` draws which of the acts of one step comes first. None: the real world decides.
        """
        self.silent: set[str] = set()
        """Nodes that have fallen silent."""
        self.tainted: set[str] = set()
        """Nodes that the walk has tainted."""
        self._scene = scene
        self._stories = stories
        self._workloads = workloads
        self._nodes = nodes
        self._dice = dice

    async def do(self, step: Step) -> list[str]:
        """All targets are chosen before any act. Returns what was done to which object, and the answers."""
        chosen = [(act, self._choose(act)) for act in step.acts]
        return list(await asyncio.gather(*(self._try_soon(act, target) for act, target in chosen)))

    # Choosing.

    def _choose(self, act: Act) -> Object | str | None:
        """An object or the name of a node. None: there is none, or the act needs none."""
        match act.kind:
            case ActKind.EXIT:
                return _at(act.place, self._pods(lambda pod: act.container in _running(pod)))
            case ActKind.DELETE_POD | ActKind.EVICT:
                return _at(act.place, self._pods(lambda _: True))
            case ActKind.RESIZE | ActKind.EXPIRE | ActKind.FINISH:
                return _at(act.place, self._jobs(lambda job: not is_final(job)))
            case ActKind.DELETE_JOB:
                return _at(act.place, self._jobs(lambda _: True))
            case ActKind.SUSPEND | ActKind.RESUME:
                return self._named(self._workloads)
            case ActKind.RESTART_JOB_SET | ActKind.DELETE_JOB_SET:
                return self._named(JOB_SETS)
            case ActKind.TAINT | ActKind.REBOOT | ActKind.LOSE_NODE:
                used = {pod["spec"].get("nodeName") for pod in self._pods(lambda _: True)}
                return _at(act.place, [name for name in self._nodes if name in used and name not in self.tainted])
            case ActKind.UNTAINT | ActKind.RECOVER_NODES | ActKind.REST:
                return None

    def _named(self, kind: Resource) -> Object | None:
        return (self._stories.train_jobs if kind == TRAIN_JOBS else self._stories.job_sets).named(NAME)

    def _pods(self, wanted: Callable[[Object], bool]) -> list[Object]:
        """Pods that have not ended, are not being deleted and are not on a silent node, by role."""
        return self._by_role(
            pod
            for pod in self._stories.pods.present.values()
            if not ended(pod) and not deleting(pod) and pod["spec"].get("nodeName") not in self.silent and wanted(pod)
        )

    def _jobs(self, wanted: Callable[[Object], bool]) -> list[Object]:
        jobs = self._stories.jobs.present.values()
        return self._by_role(job for job in jobs if not deleting(job) and wanted(job))

    def _by_role(self, bodies: Iterable[Object]) -> list[Object]:
        roles = self._stories.roles()
        return sorted(bodies, key=lambda body: roles[body["metadata"]["uid"]])

    # Doing.

    async def _try_soon(self, act: Act, target: Object | str | None) -> str:
        if self._dice:
            await self._scene.clock.sleep(self._dice.uniform(0.0, self._dice.choice(AT_ONCE_SECONDS)))
        return await self._try(act, target)

    async def _try(self, act: Act, target: Object | str | None) -> str:
        if target is None and act.kind not in {ActKind.UNTAINT, ActKind.RECOVER_NODES, ActKind.REST}:
            return f"{act}: there is nothing to do it to"
        told = f"{act}{self._told(target)}"
        for _ in range(TRIES):
            try:
                await self._do(act, target)
            except NotFoundError:
                return f"{told}: it is gone"
            except RefusedError:
                return f"{told}: refused"
            except (ReadAgainError, TryLaterError):
                await self._scene.clock.sleep(POLL_SECONDS)
            else:
                return told
        raise AssertionError(f"{told}: the server did not take it in {TRIES} tries")

    def _told(self, target: Object | str | None) -> str:
        match target:
            case None:
                return ""
            case str():
                return f": node {self._nodes.index(target)}"
            case _:
                return f": {self._stories.roles()[target['metadata']['uid']]}"

    async def _do(self, act: Act, target: Object | str | None) -> None:
        match act.kind, target:
            case ActKind.SUSPEND | ActKind.RESUME, dict():
                body = {"spec": {"suspend": act.kind is ActKind.SUSPEND}}
                await self._scene.patch(self._workloads, NAME, body)
            case ActKind.EXIT, dict():
                await self._end([target], act.container, act.value)
            case ActKind.FINISH, dict():
                pods = self._pods(lambda pod: is_owned(pod, target) and TRAINER in _running(pod))
                await self._end(pods, TRAINER, 0)
            case ActKind.UNTAINT, _:
                for name in sorted(self.tainted):
                    await self._taint(name, [])
                    self.tainted.discard(name)
            case ActKind.RECOVER_NODES, _:
                await self._recover_nodes()
            case ((ActKind.TAINT | ActKind.REBOOT | ActKind.LOSE_NODE), str()):
                await self._break(act, target)
            case _, dict():
                await self._change(act, target)
            case _:
                assert act.kind is ActKind.REST, f"{act} needs a target"

    async def _end(self, pods: Sequence[Object], container: str, code: int) -> None:
        """Returns when their kubelets have reported the end. Raises NotFoundError: the only pod is gone."""
        kubelets, namespace = self._scene.kubelets, self._scene.namespace
        before = {pod["metadata"]["uid"]: _runs(pod, container) for pod in pods}
        for pod in pods:
            try:
                kubelets.exit_container(pod["metadata"]["name"], code, namespace=namespace, container=container)
            except LookupError as gone:
                if len(pods) == 1:
                    raise NotFoundError(str(gone)) from gone
        present = self._stories.pods.present

        def told() -> bool:
            return all(uid not in present or _runs(present[uid], container) != runs for uid, runs in before.items())

        await self._scene.until(f"the end of {container} is told", told)

    async def _change(self, act: Act, target: Object) -> None:
        scene, name, uid = self._scene, target["metadata"]["name"], target["metadata"]["uid"]
        match act.kind:
            case ActKind.DELETE_POD:
                grace_seconds = 0 if act.value else None
                await api_verbs.delete(
                    scene.api, PODS, name, namespace=scene.namespace, uid=uid, grace_seconds=grace_seconds
                )
            case ActKind.EVICT:
                metadata = {"name": name, "namespace": scene.namespace}
                body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
                await api_verbs.create(
                    scene.api, PODS, body, namespace=scene.namespace, name=name, subresource="eviction"
                )
            case ActKind.RESIZE:
                await scene.patch(JOBS, name, {"spec": {"parallelism": act.value, "completions": act.value}})
            case ActKind.EXPIRE:
                await scene.patch(JOBS, name, {"spec": {"activeDeadlineSeconds": EXPIRY_SECONDS}})
            case ActKind.DELETE_JOB:
                how = Propagation.BACKGROUND if act.value else Propagation.FOREGROUND
                await api_verbs.delete(scene.api, JOBS, name, namespace=scene.namespace, uid=uid, propagation=how)
            case ActKind.DELETE_JOB_SET:
                how = Propagation.FOREGROUND
                await api_verbs.delete(scene.api, JOB_SETS, name, namespace=scene.namespace, uid=uid, propagation=how)
            case ActKind.RESTART_JOB_SET:
                latest = await scene.read(JOB_SETS, name)
                restarts = latest.get("status", {}).get("restarts", 0)
                operations = [("test", "/status/restarts", restarts), ("replace", "/status/restarts", restarts + 1)]
                await scene.json_patch(JOB_SETS, name, *operations, subresource="status")
            case _:
                raise AssertionError(f"{act} is not done to an object")

    # Nodes.

    async def _break(self, act: Act, name: str) -> None:
        kubelets = self._scene.kubelets
        if act.kind is ActKind.TAINT:
            self.tainted.add(name)
            await self._taint(name, [TAINT])
        elif act.kind is ActKind.REBOOT:
            kubelets.reset_node(name, REBOOT_SECONDS)
            await self._scene.clock.sleep(2 * REBOOT_SECONDS)
        else:
            self.silent.add(name)
            kubelets.kill_node(name, NodeDeath.POWER_LOSS if act.value else NodeDeath.PARTITION)
            await self._evicted(name)

    async def _evicted(self, node: str) -> None:
        """Wait until its pods are being deleted: about 50 s until the node counts as silent, plus their tolerations."""
        present = self._stories.pods.present
        uids = [uid for uid, pod in present.items() if pod["spec"].get("nodeName") == node and not ended(pod)]

        def asked() -> bool:
            return all(uid not in present or deleting(present[uid]) for uid in uids)

        await self._scene.until(f"the pods of silent node {node} are asked to go", asked, EVICTED_SECONDS)

    async def _recover_nodes(self) -> None:
        for name in sorted(self.silent):
            self._scene.kubelets.revive_node(name)
        for name in sorted(self.silent):
            async with asyncio.timeout(EVICTED_SECONDS):
                while any(taint["key"] != TAINT["key"] for taint in await self._taints(name)):
                    await self._scene.clock.sleep(POLL_SECONDS)
        self.silent.clear()

    async def _taints(self, name: str) -> list[Object]:
        return list((await self._scene.read(NODES, name))["spec"].get("taints", []))

    async def _taint(self, name: str, ours: list[dict[str, str]]) -> None:
        """Raises ConflictError: another client has changed the node."""
        node = await self._scene.read(NODES, name)
        others = [taint for taint in node["spec"].get("taints", []) if taint["key"] != TAINT["key"]]
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        await self._scene.patch(
            NODES, name, {"metadata": version, "spec": {"taints": [*others, *ours]}}, PatchKind.MERGE
        )


def _at(place: float, those: Sequence[Object] | Sequence[str]) -> Object | str | None:
    return those[int(place * len(those))] if those else None


def _running(pod: Object) -> set[str]:
    """Names of the running containers, native sidecars included."""
    status = pod["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    return {each["name"] for each in statuses if "running" in each["state"]}


def _runs(pod: Object, container: str) -> tuple[bool, int]:
    """Whether that container runs, and how often it was restarted."""
    status = pod["status"]
    statuses = (*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ()))
    [found] = [each for each in statuses if each["name"] == container]
    return "running" in found["state"], found["restartCount"]
