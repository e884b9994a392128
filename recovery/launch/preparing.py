"""Settings that admission may add to a TrainJob whose owner requests it: those that are surely meant, and not written.

They are few on purpose. Admission can change only the fields of the TrainJob itself. `runtimePatches` accepts neither
restartPolicy nor backoffLimit nor terminationMessagePolicy for the runtime's pods. The lint reports what a person has
to choose (a volume, a grace period, tolerations, which a patch would replace as a whole) and leaves it to that person.
"""

import msgspec

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.launch import Launch
from recovery.launch.places import Path, written
from recovery.launch.processes import CLAIM, processes_of, trained_by

PREPARE_ANNOTATION = "recovery.trainjob.dev/prepare-launch"
"""A person sets it to `"true"` on a TrainJob before creating it. With any other value nothing is changed."""
PREPARED_ANNOTATION = "recovery.trainjob.dev/prepared"
"""What was changed because of the annotation above, and by which rule. Missing: nothing was changed."""


class PreparedChange(msgspec.Struct, frozen=True):
    """One field of a TrainJob that was not set, and the value that it gets."""

    path: Path
    value: int
    rule: str
    """What set it, in words."""

    def __str__(self) -> str:
        """The change as the annotation records it."""
        return f"{written(self.path)}={self.value} ({self.rule})"


def prepare(launch: Launch) -> tuple[PreparedChange, ...]:
    """What to set in the TrainJob of this group. Empty: nothing, or its runtime is not known here."""
    processes = _processes(launch)
    return (processes,) if processes is not None else ()


def _processes(launch: Launch) -> PreparedChange | None:
    """numProcPerNode, if Trainer would start more or fewer processes than the node has devices, or CPUs by the
    container's limit. None: it is set, Trainer counts the same, or no field says how many are meant."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    found, member = processes_of(launch), trained_by(launch)
    if trainer is None or trainer.num_proc_per_node is not None or found is None:
        return None
    if found.count == found.trainer_count or found.place is None or found.device == CLAIM:
        return None
    run = run_by(member.main) if member is not None and member.main is not None else None
    if isinstance(run, Torchrun) and "nproc-per-node" in run.flags:
        return None  # torchrun uses its flag, and the variable would only contradict it
    return PreparedChange(("spec", "trainer", "numProcPerNode"), found.count, found.rule)
