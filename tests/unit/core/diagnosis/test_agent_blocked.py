"""Which words of a kubelet say that the agent keeps a pod from starting, and which say something else."""

import pytest

from recovery.core.diagnosis.agent_blocked import LASTS, blocked
from recovery.core.diagnosis.not_started import Hindrance, not_started
from recovery.core.model.facts import ContainerFacts, ExitFacts
from tests.unit.core.agents import IMAGE, injected, waits
from tests.unit.core.groups import group, training
from tests.unit.core.world import World, at

PULL = f'failed to pull and unpack image "{IMAGE}": failed to resolve reference "{IMAGE}": not found'
NO_SHELL = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: "
    'unable to start container process: error during container init: exec: "/bin/sh": stat /bin/sh: no such file or '
    "directory: unknown"
)
UNSUPPORTED = 'failed to generate container "7c" spec: failed to apply OCI options: failed to mkdir "": mkdir : no such'


def starting(**job: object) -> World:
    """A group of four with the agent, whose pods came to their nodes at 0."""
    return injected(group(born=0).all_scheduled(0)).with_job(**job)


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", PULL),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}": ErrImagePull: {PULL}'),
        ("ErrImageNeverPull", f'Container image "{IMAGE}" is not present with pull policy of Never'),
        ("InvalidImageName", f'Failed to apply default image tag "{IMAGE}": invalid reference format'),
        ("ImageInspectError", f'Failed to inspect image "{IMAGE}": rpc error'),
        ("RegistryUnavailable", f"image pull failed for {IMAGE} because the registry is unavailable: EOF"),
        ("SignatureValidationFailed", f"image pull failed for {IMAGE} because the signature validation failed"),
        ("CreateContainerError", "failed to mount: ImageVolumeMountFailed: failed to unpack image volume"),
        ("CreateContainerError", UNSUPPORTED),
        ("CreateContainerError", "mount recovery-agent is not supported"),
        ("CreateContainerConfigError", "cannot mount /opt/recovery-agent"),
        ("RunContainerError", "error mounting to rootfs at /opt/recovery-agent"),
    ],
)
def test_a_container_that_waits_for_the_agents_volume(reason: str, message: str) -> None:
    found = blocked(waits(starting(), 2, reason, message).snapshot())
    assert found is not None
    assert (found.pod.index, found.since, found.counts_at) == (2, at(0), at(LASTS.total_seconds()))
    assert found.words.startswith(f"{reason}: {message[:60]}")
    assert found.words.endswith(message[-10:]), "the cause stands at the end"


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("ErrImagePull", 'failed to pull and unpack image "registry.example/train:typo": not found'),
        ("ImagePullBackOff", 'Back-off pulling image "registry.example/recovery-agent-training:1"'),
        ("ImagePullBackOff", 'Back-off pulling image "registry.example/trainjob-recovery-agent:own"'),
        ("ImagePullBackOff", f'Back-off pulling image "other-{IMAGE}"'),
        ("ImagePullBackOff", f'Back-off pulling image "{IMAGE}0"'),
        ("ImagePullBackOff", ""),
        ("CreateContainerConfigError", 'configmap "settings" not found'),
        ("CreateContainerError", 'failed to mkdir "/data": read-only file system'),
        ("ContainerCreating", IMAGE),
        ("PodInitializing", IMAGE),
    ],
)
def test_what_is_not_the_agents_does_not_count(reason: str, message: str) -> None:
    assert blocked(waits(starting(), 2, reason, message).snapshot()) is None


@pytest.mark.parametrize(
    ("image", "shown", "counts"),
    [
        ("registry/agent", '"registry/agent:latest"', True),
        ("registry/agent", '"registry/agent:v2"', False),
        ("registry/agent", '"registry/agent-training:v2"', False),
        ("registry/agent:v1", "registry/agent:v1: not found", True),
        ("registry/agent:v1", "registry/agent:v12: not found", False),
        ("agent:v1", '"docker.io/library/agent:v1"', True),
    ],
)
def test_an_image_is_recognised_by_its_whole_name(image: str, shown: str, counts: bool) -> None:
    world = starting(agent_image=image)
    assert (blocked(waits(world, 2, "ErrImagePull", f"cannot pull {shown}").snapshot()) is not None) is counts


def shell_missing(world: World, index: int, *, again: bool = False, reason: str = "StartError") -> World:
    """The runtime could not start `/bin/sh` at 5. `again`: the kubelet tries it again in the same pod."""
    ended = ExitFacts(128, reason, NO_SHELL, finished_at=at(5))
    if again:
        waiting = ContainerFacts(name="node", restarts=1, waiting_reason="CrashLoopBackOff", last_exit=ended)
        return world.with_pod(index, containers=(waiting,), phase="Running")
    return world.with_pod(index, containers=(ContainerFacts(name="node", exit=ended),), phase="Failed")


@pytest.mark.parametrize("reason", ["StartError", "ContainerCannotRun"])
@pytest.mark.parametrize("again", [False, True])
def test_an_image_without_a_shell_counts_at_once(reason: str, again: bool) -> None:
    world = starting(pod_restart_policy="OnFailure" if again else "Never")
    found = blocked(shell_missing(world, 1, again=again, reason=reason).snapshot())
    assert found is not None
    assert (found.pod.index, found.since, found.counts_at) == (1, at(5), at(5))


def test_a_script_that_ends_with_the_same_exit_code_is_not_the_agent() -> None:
    world = shell_missing(starting(), 1)
    other = ExitFacts(127, "Error", "/bin/sh: train: not found", finished_at=at(5))
    assert blocked(world.with_pod(1, containers=(ContainerFacts(name="node", exit=other),)).snapshot()) is None


@pytest.mark.parametrize("why", ["no agent", "suspended", "failing", "has run", "deleted", "not on a node"])
def test_nothing_is_blocked(why: str) -> None:
    world = waits(starting(), 2, "ErrImagePull", PULL)
    match why:
        case "no agent":
            world = world.with_job(agent_image="")
        case "suspended":
            world = world.suspended()
        case "failing":
            world = world.job_failing("BackoffLimitExceeded", 1)
        case "has run":
            world = waits(injected(training()).pod_gone(2, 0).replaced(2, 0).scheduled(2), 2, "ErrImagePull", PULL)
        case "deleted":
            world = world.pod_deleted(2, 1)
        case "not on a node":
            world = world.with_pod(2, node="", scheduled_at=None)
    assert blocked(world.snapshot()) is None


def test_the_pod_that_waits_longest_is_named() -> None:
    world = waits(waits(starting(), 3, "ErrImagePull", PULL), 1, "ErrImagePull", PULL).with_pod(1, accepted_at=at(40))
    found = blocked(world.snapshot())
    assert found is not None
    assert found.pod.index == 3


def test_the_status_says_how_to_leave_the_agent_out() -> None:
    found = not_started(waits(starting(), 2, "ErrImagePull", PULL).snapshot())
    assert found is not None
    assert (found.hindrance, found.cause) == (Hindrance.IMAGE_PULL, "rank 2: ErrImagePull")
    assert found.words.endswith("the key without of ConfigMap recovery-agent leaves it out")
    own = not_started(waits(starting(), 2, "ErrImagePull", '"train:typo": not found').snapshot())
    assert own is not None
    assert own.words == 'pod train-node-0-2-10 (rank 2, node gpu-2) waits: ErrImagePull: "train:typo": not found'
