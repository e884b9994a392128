"""Checks whether anything that the training writes survives a failure, and whether the training reads it afterwards.

It sees only the manifest, and no path that is in the script or in the image.
"""

from collections.abc import Iterator

from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.launch import Launch, Member
from recovery.launch.recoverability.container import command_place, says
from recovery.launch.recoverability.effective import runs_script
from recovery.launch.recoverability.words import counted
from recovery.launch.views import Container, PodTemplate

CHECKPOINT_LOST = Code("checkpoint-lost", Severity.WARNING, "nothing that the training writes outlives its pod")
CHECKPOINT_ON_NODE = Code("checkpoint-on-node", Severity.WARNING, "what the training writes stays on one node")
NO_RESUME = Code("no-resume", Severity.NOTE, "nothing says that the training resumes from a checkpoint")
CODES = (CHECKPOINT_LOST, CHECKPOINT_ON_NODE, NO_RESUME)

_ENDS_WITH_POD = frozenset(
    {"emptyDir", "ephemeral", "configMap", "secret", "projected", "downwardAPI", "image", "gitRepo"}
)
_ON_NODE = "hostPath"


def check(launch: Launch) -> Iterator[LintFinding]:
    if launch.nodes < 2:
        return
    for member in launch.members:
        if member.gpus_per_pod and member.main is not None and runs_script(launch, member):
            yield from _of(launch, member, member.main)


def _of(launch: Launch, member: Member, main: Container) -> Iterator[LintFinding]:
    lasting = _lasting(member.template, main)
    if not lasting and not says(main, "object store"):
        yield LintFinding(
            CHECKPOINT_LOST,
            main.place,
            f"container {main.name} mounts no volume to write to that outlives its pod, and its command and variables "
            f"name no object store: what {counted(launch.gpus, 'GPU')} have computed is lost with the first failure",
            f"mount a persistentVolumeClaim in container {main.name} and write checkpoints there, or write them to an "
            "object store",
        )
    elif lasting == {_ON_NODE} and not says(main, "object store"):
        yield LintFinding(
            CHECKPOINT_ON_NODE,
            main.place,
            f"the only volume that container {main.name} writes to and that outlives its pod is a hostPath: when a "
            "node is lost, or the group comes back on other nodes, its checkpoints are not there",
            f"mount a persistentVolumeClaim, or a network file system, in container {main.name} for checkpoints",
        )
    elif (main.command or main.args) and not says(main, "resume") and not says(main, "settings elsewhere"):
        yield LintFinding(
            NO_RESUME,
            command_place(launch, main),
            f"neither command nor variables of container {main.name} name a checkpoint to go on from: unless the "
            "script looks for one by itself, every recovery begins at step 0",
            "pass the script what makes it resume from its last checkpoint, such as --resume",
        )


def _lasting(template: PodTemplate, main: Container) -> set[str]:
    """Kinds of the volumes that the container can write to and that outlive the pod. A volume that the pod template
    does not have comes from the JobSet's volumeClaimPolicies."""
    sources = {each.name: each.source for each in template.volumes}
    written = {sources.get(each.volume, "persistentVolumeClaim") for each in main.mounts if not each.read_only}
    return written - _ENDS_WITH_POD
