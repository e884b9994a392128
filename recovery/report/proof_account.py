"""The latest proof that a job recovers, as commands and reports show it. Only its ledger has it."""

from datetime import datetime

import msgspec

from recovery.core.incident.proofs import RECOVERY_PROVEN
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason


class ProofAccount(msgspec.Struct, frozen=True, rename="camel"):
    """A recovery that proves that the job recovers, and whether it still counts."""

    proven_at: datetime
    seconds: float
    """From the failure until the recovery ended."""
    incident: str
    run: str | None
    """Name of the RecoveryDrill that caused the failure. None: no drill did."""
    step: int | None
    """The training step that the ranks continued from. None: not known."""
    verified: bool
    source: str
    counts: bool
    """It is verified, not too old, and nothing of the setup has changed since."""
    reason: Reason
    """Why it counts, or does not."""
    message: str
    """The reason as a sentence."""


def proof_account(ledger: Ledger) -> ProofAccount | None:
    """What the ledger says, as of its latest write. The controller writes it when a proof becomes too old or its setup
    changes. None: there is no proof."""
    proof = ledger.proof
    said = next((each for each in ledger.conditions if each.type == RECOVERY_PROVEN), None)
    if proof is None or said is None:
        return None
    return ProofAccount(
        proven_at=proof.proven_at,
        seconds=proof.seconds,
        incident=proof.incident,
        run=proof.run,
        step=proof.step,
        verified=proof.verified,
        source=proof.source,
        counts=said.status == "True",
        reason=Reason(said.reason),
        message=said.message,
    )
