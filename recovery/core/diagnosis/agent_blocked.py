"""Whether the agent for restarts in place keeps a group from starting. Without it the same pods might start.

What a kubelet 1.36 with containerd says (both read, the messages are theirs):

- The image of the volume cannot be pulled. The training container waits with the reason and message of that pull, and
  its own image is not pulled before (kuberuntime_manager.go, `toKubeContainerImageVolumes`; image_manager.go):
  `ErrImagePull: failed to pull and unpack image "IMAGE": ...`, `ImagePullBackOff: Back-off pulling image "IMAGE": ...`,
  `RegistryUnavailable: image pull failed for IMAGE because ...`, `ErrImageNeverPull: Container image "IMAGE" is not
  present ...`, `InvalidImageName: Failed to apply default image tag "IMAGE": ...`. So only IMAGE tells it from the
  training's own.
- The image cannot be mounted: `CreateContainerError: ... ImageVolumeMountFailed: ...`, which names the image by its id
  (containerd 2.3, container_image_mount.go; k8s.io/cri-api/pkg/errors).
- The runtime knows no image volumes. It takes the mount for one of the host without a path: `CreateContainerError: ...
  failed to apply OCI options: failed to mkdir "": mkdir : no such file or directory` (kind#3745).
- The training's image has no shell: the container ended with exit code 128 and reason StartError (containerd,
  container_start.go) or ContainerCannotRun (cri-dockerd), `... exec: "/bin/sh": stat /bin/sh: no such file or
  directory`. If it is started again, that is its last state, and it waits with RunContainerError or CrashLoopBackOff.

A volume that is empty where it should be mounted (k3s#14323) keeps nothing from starting. A kubelet without image
volumes shows its pod as ContainerCreating, and only an Event says why: that is not seen.
"""

import re
from datetime import datetime, timedelta
from functools import lru_cache

import msgspec

from recovery.core.diagnosis.finishing import finishing
from recovery.core.diagnosis.membership import failing, member_jobs, pods_of, stands_still
from recovery.core.diagnosis.trained import pods_of_run, trained_at
from recovery.core.diagnosis.waiting_reasons import CREATE_CONTAINER, IMAGE_PULL
from recovery.core.model.agent_facts import AGENT_FOLDER, AGENT_VOLUME
from recovery.core.model.facts import ContainerFacts, ExitFacts, JobFacts, PodFacts, Snapshot

LASTS = timedelta(seconds=60)
"""A registry that answers again within this time after the pod came to its node changes nothing."""
_NOT_STARTED = frozenset({"StartError", "ContainerCannotRun"})
_SHELL = "/bin/sh"
_OF_MOUNTS = (AGENT_VOLUME, AGENT_FOLDER, "ImageVolumeMountFailed", 'failed to mkdir ""')
"""Parts of the messages about containers that are not created because of the volume."""
_MAX_QUOTE = 300
_ENDED = frozenset({"Succeeded", "Failed"})


class AgentBlocked(msgspec.Struct, frozen=True):
    """A pod that the agent keeps from starting."""

    pod: PodFacts
    words: str
    """`ImagePullBackOff: Back-off pulling image ...`"""
    since: datetime
    """When the pod came to its node, or when its container could not be started."""
    counts_at: datetime
    """From when on it counts. A missing shell counts at once: it does not come back, and each try costs the Job one of
    its retries."""


class _Sign(msgspec.Struct, frozen=True):
    words: str
    ended_at: datetime | None = None
    """When the container could not be started. None: it waits to be created."""
    passes: bool = False
    """It may pass by itself."""


def blocked(snapshot: Snapshot) -> AgentBlocked | None:
    """The pod that it keeps from starting for the longest time. None: there is none, or all ranks have run already."""
    if finishing(snapshot) is not None:
        return None
    jobs = [job for job in member_jobs(snapshot) if _starts(job, snapshot)]
    found = [_blocked(pod, job) for job in jobs for pod in pods_of(snapshot, job)]
    return min((each for each in found if each is not None), key=lambda each: each.counts_at, default=None)


def keeps(pod: PodFacts, job: JobFacts) -> bool:
    """The agent keeps that pod from starting."""
    return _sign(pod, job) is not None


def _starts(job: JobFacts, snapshot: Snapshot) -> bool:
    """The Job has the agent, and its ranks have not all run at once yet."""
    if not job.agent_image or stands_still(job) or failing(job) is not None or job.succeeded:
        return False
    return trained_at(job, pods_of_run(job, snapshot.pods), snapshot.trained_at.get(job.uid)) is None


def _blocked(pod: PodFacts, job: JobFacts) -> AgentBlocked | None:
    sign = _sign(pod, job) if pod.deleting_since is None else None
    if sign is None:
        return None
    since = sign.ended_at or max(pod.accepted_at or pod.created_at, pod.created_at)
    return AgentBlocked(pod, sign.words, since, since + LASTS if sign.passes else since)


def _sign(pod: PodFacts, job: JobFacts) -> _Sign | None:
    if not job.agent_image or not pod.node or pod.dead_since is not None:
        return None
    found = (_of_container(each, job.agent_image, ended=pod.phase in _ENDED) for each in pod.containers)
    return next((sign for sign in found if sign is not None), None)


def _of_container(container: ContainerFacts, image: str, *, ended: bool) -> _Sign | None:
    """`ended`: the whole pod has."""
    last = None if container.running_since is not None else container.exit or container.last_exit
    if last is not None and _lacks_shell(last):
        return _Sign(f"{last.reason}: {last.message[:_MAX_QUOTE]}", last.finished_at)
    reason, message = container.waiting_reason, container.waiting_message
    if ended or not _is_of_agent(reason, message, image):
        return None
    return _Sign(f"{reason}: {_shortened(message, image)[:_MAX_QUOTE]}", passes=True)


def _shortened(message: str, image: str) -> str:
    """The message, which names the image once: with a digest in each name, its end would not be quoted."""
    before, name, after = message.partition(image)
    return f"{before}{name}{after.replace(image, '...')}"


def _lacks_shell(ended: ExitFacts) -> bool:
    return ended.reason in _NOT_STARTED and _SHELL in ended.message


def _is_of_agent(reason: str, message: str, image: str) -> bool:
    if reason in IMAGE_PULL:
        return _names(image).search(message) is not None
    if reason not in CREATE_CONTAINER:
        return False
    return any(part in message for part in _OF_MOUNTS) or _names(image).search(message) is not None


@lru_cache(maxsize=64)
def _names(image: str) -> re.Pattern[str]:
    """Finds the image, with the default tag or without, and no image whose name only begins or ends like it."""
    return re.compile(rf"(?<![\w.:-]){re.escape(image)}(?::latest)?(?![\w./-]|[:@]\w)")
