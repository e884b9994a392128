"""Whether the recovery of a group is proven."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text

_SHOWN_BY = {"progress": "its progress report", "joined-probe": "its joined probe", "agent": "its agent"}


def _proven(found: Details) -> str:
    shown_by = _SHOWN_BY.get(str(found["source"]), found["source"])
    return f"the group recovered from {found['how']} in {found['seconds']} s{found['at_step']}, as {shown_by} shows"


TEXTS: dict[Sentence | Reason, Text] = {
    Reason.RECOVERY_PROVEN: _proven,
    Reason.PROOF_EXPIRED: "the last proof is from {proven}, and drill.maxAge of the policy is {max_age}",
    Reason.PROOF_OUTDATED: "{what} changed since the last proof, which is from {proven}",
    Reason.PROOF_NOT_VERIFIED: (
        "the group recovered from {how} in {seconds} s, but only Ready pods show it; a joined probe or the agent would"
        " prove it"
    ),
    Reason.NEVER_PROVEN: "the group has not recovered from a failure yet",
}
