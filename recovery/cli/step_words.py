"""The training step of a job as `status` shows it."""

from typing import Any

from recovery.core.model.ledger import Ledger, Phase
from recovery.core.model.training_steps import TrainingStep


def step_to_pass(ledger: Ledger) -> int | None:
    """The step at which a failure stopped the ranks. None: no incident waits for it."""
    open_ = ledger.incident
    if open_ is None or open_.training_steps is None or ledger.phase is not Phase.RESUMING:
        return None
    return open_.training_steps.before if open_.training_steps.absolute else None


def step_cell(reached: TrainingStep | None, to_pass: int | None) -> str:
    """The step that all ranks have reached, and in Resuming the one that they must pass. Empty: not known."""
    if reached is None:
        return ""
    return f"{reached.lowest}/{to_pass}" if to_pass is not None else str(reached.lowest)


def step_data(step: TrainingStep | None) -> dict[str, Any] | None:
    """None: no agent has reported a step, or the job has had no incident, so nothing keeps its step."""
    if step is None:
        return None
    return {
        "lowest": step.lowest,
        "highest": step.highest,
        "at": step.at.isoformat().replace("+00:00", "Z"),
        "absolute": step.absolute,
    }
