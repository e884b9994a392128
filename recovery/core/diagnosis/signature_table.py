"""The signature table: the signs by which a loss is recognised, and what each means. The first row that fits counts.

The table follows public records of failures of GPU training: NVIDIA's XID catalogue, the sources of PyTorch, NCCL and
the kubelet, and the conditions and taints that node-problem-detector, NVSentinel and the clouds' agents set on nodes.
The order of the rows matters: first proofs of a fault, then what the script reports about itself, then signs that only
say that another member is missing. Bare exit codes come last, because any failure may end with them.
"""

from collections.abc import Iterable
from functools import lru_cache

from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.node_signatures import DISRUPTIONS, HARDWARE_MESSAGES, NODE_SIGNS, XID
from recovery.core.diagnosis.program_signatures import (
    EXIT_CODES,
    LAUNCHER,
    MEMORY,
    OTHER_MESSAGES,
    PEERS_MISSING,
    USER_ERRORS,
)
from recovery.core.diagnosis.signature import EXITED, DisruptionClass, Signature, fits, texts
from recovery.core.model.facts import NodeFacts, PodFacts, Snapshot
from recovery.core.model.patterns import compiled

SIGNATURES: tuple[Signature, ...] = (
    *HARDWARE_MESSAGES,
    *DISRUPTIONS,
    *MEMORY,
    *USER_ERRORS,
    *NODE_SIGNS,
    *LAUNCHER,
    *PEERS_MISSING,
    *OTHER_MESSAGES,
    *EXIT_CODES,
)
"""The table; the first row that fits counts."""

_FAULTS = tuple(row for row in SIGNATURES if row.disruption_class is DisruptionClass.HARDWARE_FAULT)
"""The only rows that can explain why a rule of a policy calls the node of a running member faulty."""

_PROOFS = tuple(row for row in _FAULTS if row.blames_node)

BY_NAME = {signature.name: signature for signature in SIGNATURES}


def shows_another_loss(name: str) -> bool:
    """The row of that name shows that a rank waited in vain for another one, so its own node is not at fault."""
    row = BY_NAME.get(name)
    return row is not None and row.cascade


def rests_on_message(name: str) -> bool:
    """The row of that name matches a message, which the job may have written itself."""
    row = BY_NAME.get(name)
    return row is not None and bool(row.message)


def sign_of_node(node: NodeFacts, pods: Iterable[PodFacts]) -> str:
    """The name of the row by which the platform itself reports a problem of the node: a condition, a taint, or an
    unhealthy device. Empty: it reports none. Of `pods`, only those on the node count."""
    return _sign(_FAULTS, node, pods)


def proof_of_node(node: NodeFacts, pods: Iterable[PodFacts]) -> str:
    """As `sign_of_node`, but only with rows that blame the node. A job can heat a GPU until its clock is throttled, and
    can cause XIDs. Signs that jobs can cause may confirm what the jobs report, but they prove nothing."""
    return _sign(_PROOFS, node, pods)


def _sign(rows: Iterable[Signature], node: NodeFacts, pods: Iterable[PodFacts]) -> str:
    mine = [pod for pod in pods if pod.node == node.name]
    return next((row.name for row in rows if not row.message and _says(row, node, mine)), "")


def _says(row: Signature, node: NodeFacts, pods: Iterable[PodFacts]) -> bool:
    """A pod that the kubelet rejected is no sign: it also rejects a pod that names a node whose devices are in use."""
    if row.node_conditions and any((each.type, each.status) in row.node_conditions for each in node.conditions):
        return True
    if row.node_taints and any(taint.key in row.node_taints for taint in node.taints):
        return True
    return any(
        (row.unhealthy_devices and any(container.unhealthy_devices for container in pod.containers))
        or any(c.type == "DisruptionTarget" and c.reason in row.disrupted_by for c in pod.conditions)
        for pod in pods
    )


_COMPILED = {signature.name: compiled(signature.message) for signature in SIGNATURES if signature.message}


_HAVE_SIGNATURES = frozenset({*EXITED, LossKind.POD_DELETED, LossKind.POD_DISRUPTED, LossKind.NODE_FAULT})
"""The other kinds explain themselves."""


def signature_of(evidence: Evidence, snapshot: Snapshot) -> Signature | None:
    """The first row that fits. None: no row does, and the kind of loss decides."""
    if evidence.kind not in _HAVE_SIGNATURES:
        return None
    found = _found(evidence)
    rows = _FAULTS if evidence.kind is LossKind.NODE_FAULT else SIGNATURES
    return next((row for row in rows if fits(row, evidence, snapshot, found)), None)


def xid_of(evidence: Evidence, signature: Signature) -> str:
    """The number of the XID that the row has matched. Empty: the row is not about XIDs."""
    if not signature.message.startswith(XID):
        return ""
    matches = (_COMPILED[signature.name].search(text) for text in texts(evidence))
    said = next((match.group() for match in matches if match is not None), "")
    return said[len(said.rstrip("0123456789")) :]


def _found(evidence: Evidence) -> frozenset[str]:
    """The names of all rows whose pattern matches."""
    return frozenset().union(*(_rows_of(text) for text in texts(evidence) if text))


@lru_cache(maxsize=4096)
def _rows_of(text: str) -> frozenset[str]:
    """Cached, because the ranks of a group end with similar messages, and each reconcile reads them again."""
    return frozenset(name for name, pattern in _COMPILED.items() if pattern.search(text) is not None)
