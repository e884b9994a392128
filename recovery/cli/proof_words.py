"""Whether the recovery of a job is proven, in the words of `status` and `explain`."""

from datetime import datetime

from recovery.cli.formatting import age
from recovery.core.model.reason import Reason, because
from recovery.core.sentences import render
from recovery.report.proof_account import ProofAccount

NEVER = "never"
_STATES = {
    Reason.PROOF_EXPIRED: "expired",
    Reason.PROOF_OUTDATED: "outdated",
    Reason.PROOF_NOT_VERIFIED: "not verified",
}
_ANSWERS = {Reason.RECOVERY_PROVEN: "yes", Reason.PROOF_NOT_VERIFIED: "not verified"}


def proof_cell(proof: ProofAccount | None, now: datetime) -> str:
    """Its age, and why it does not count."""
    if proof is None:
        return NEVER
    state = _STATES.get(proof.reason, "")
    return f"{age(proof.proven_at, now)}{f' ({state})' if state else ''}"


def proof_line(proof: ProofAccount | None, now: datetime) -> str:
    """Whether a recovery proves that the job recovers, and why not."""
    if proof is None:
        return f"Proven: no. {_as_sentence(render(because(Reason.NEVER_PROVEN)))}"
    answer = _ANSWERS.get(proof.reason, "no longer")
    return f"Proven: {answer}, last {age(proof.proven_at, now)} ago. {_as_sentence(proof.message)}"


def _as_sentence(message: str) -> str:
    return f"{message[:1].upper()}{message[1:]}."
