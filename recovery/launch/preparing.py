"""What admission may set in a TrainJob whose owner asks for it: what is surely meant, and what no one has written.

It is little on purpose. Of a TrainJob only its own fields can be changed, of the runtime's pods `runtimePatches` takes
neither restartPolicy nor backoffLimit nor terminationMessagePolicy, and whatever a person has to choose (a volume, a
grace, tolerations, which a patch would replace as a whole) is reported by the lint and left to that person.
"""

import msgspec

from recovery.launch.commands import Torchrun, run_by
from recovery.launch.launch import Launch
from recovery.launch.places import Path, written
from recovery.launch.processes import CLAIM, processes_of, trained_by

PREPARE_ANNOTATION = "recovery.trainjob.dev/prepare-launch"
"""On a TrainJob, set by a person before it is created: `"true"`. Whatever else it says, nothing is changed."""
PREPARED_ANNOTATION = "recovery.trainjob.dev/prepared"
"""What was changed on behalf of the annotation above, and by which rule. Missing: nothing was."""


class PreparedChange(msgspec.Struct, frozen=True):
    """One field of a TrainJob that is set where it was not."""

    path: Path
    value: int
    rule: str
    """What set it, in words."""

    def __str__(self) -> str:
        """As the annotation records it."""
        return f"{written(self.path)}={self.value} ({self.rule})"


def prepare(launch: Launch) -> tuple[PreparedChange, ...]:
    """What to set in the TrainJob of this group. Empty: nothing, or its runtime is not known here."""
    processes = _processes(launch)
    return (processes,) if processes is not None else ()


def _processes(launch: Launch) -> PreparedChange | None:
    """numProcPerNode, where Trainer would start another number of processes than the node has devices, or CPUs by the
    container's limit. None: it is given, Trainer counts the same, or no field says how many are meant."""
    trainer = launch.train_job.trainer if launch.train_job is not None else None
    found, member = processes_of(launch), trained_by(launch)
    if trainer is None or trainer.num_proc_per_node is not None or found is None:
        return None
    if found.count == found.trainer_count or found.place is None or found.device == CLAIM:
        return None
    run = run_by(member.main) if member is not None and member.main is not None else None
    if isinstance(run, Torchrun) and "nproc-per-node" in run.flags:
        return None  # torchrun goes by its flag, and the variable would only say something else
    return PreparedChange(("spec", "trainer", "numProcPerNode"), found.count, found.rule)
