"""What the latest recovery of a group proves, and for how long.

A drill proves as much as an unplanned failure. A recovery proves nothing if nothing had failed, if a person
had to help, if no one restarted the group, or if its ranks still hang. An incident under Observe proves nothing.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from recovery.core.diagnosis.setup import image_digest, runtime_digest
from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.incident.standing import just_closed
from recovery.core.model.durations import in_words
from recovery.core.model.facts import Snapshot
from recovery.core.model.ledger import Incident, IncidentHandling, Ledger, Outcome
from recovery.core.model.proof import ProvenSetup, RecoveryProof
from recovery.core.model.reason import Explanation, Reason, because
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import PolicyError

RECOVERY_PROVEN = "RecoveryProven"
"""The type of the condition that says whether the recovery of the group is proven."""
_NO_FAILURES = frozenset({DisruptionClass.MANUAL, DisruptionClass.GROWTH})
"""Incidents in which nothing had failed: a person asked for the restart, or there was room for a smaller group."""


def noted(
    before: Ledger, after: Ledger, snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime
) -> Ledger:
    """The ledger with the proof of the incident that this reconcile closes, if there is one.

    What only Ready pods show takes no place of a proof that the training has confirmed and that still counts.
    """
    closed = just_closed(before, after)
    found = _proof_of(closed, snapshot) if closed is not None else None
    if found is None:
        return after
    known = after.proof
    if known is not None and not found.verified:
        judged = judge(known, setup_of(snapshot, policy), _max_age(policy), now)
        if judged.reason is Reason.RECOVERY_PROVEN:
            return after
    return msgspec.structs.replace(after, proof=found)


def _proof_of(incident: Incident, snapshot: Snapshot) -> RecoveryProof | None:
    """What the closed incident proves. None: nothing."""
    closing, steps, drill = incident.closing, incident.training_steps, incident.drill
    if closing is None or closing.outcome is not Outcome.RECOVERED or closing.still_broken:
        return None
    if incident.handling is not IncidentHandling.AUTOMATIC or incident.disruption_class in _NO_FAILURES:
        return None
    return RecoveryProof(
        proven_at=closing.ended_at,
        seconds=round((closing.ended_at - incident.started_at).total_seconds(), 3),
        incident=incident.id,
        verified=closing.verified,
        source=closing.source,
        step=steps.resumed if steps is not None and steps.absolute else None,
        run=drill.name if drill is not None else None,
        setup=ProvenSetup(
            runtime=runtime_digest(snapshot), policy=incident.pinned.policy_digest, image=image_digest(snapshot)
        ),
    )


def setup_of(snapshot: Snapshot, policy: Policy | PolicyError | None) -> ProvenSetup:
    """The present setup of the group, as far as it is known."""
    return ProvenSetup(
        runtime=runtime_digest(snapshot),
        policy=policy.digest if isinstance(policy, Policy) else "",
        image=image_digest(snapshot),
    )


def found(ledger: Ledger, snapshot: Snapshot, policy: Policy | PolicyError | None, now: datetime) -> Explanation | None:
    """What is known about the recovery of the group. None: what was found before still holds.

    While Jobs or pods are missing, a change that was seen before cannot be seen again. It is no less true.
    """
    proof = ledger.proof
    if proof is None:
        return because(Reason.NEVER_PROVEN)
    setup = setup_of(snapshot, policy)
    if not setup.covers(proof.setup) and reason_said(ledger) is Reason.PROOF_OUTDATED:
        return None
    return judge(proof, setup, _max_age(policy), now)


def judge(proof: RecoveryProof, setup: ProvenSetup, max_age: timedelta | None, now: datetime) -> Explanation:
    """Whether the proof still counts under this setup. `max_age` None: no proof expires."""
    proven, changed = _moment(proof.proven_at), setup.changes(proof.setup)
    if changed:
        return because(Reason.PROOF_OUTDATED, what=_listed(changed), proven=proven)
    if max_age is not None and now >= proof.proven_at + max_age:
        return because(Reason.PROOF_EXPIRED, proven=proven, max_age=in_words(max_age))
    how = f"drill {proof.run}" if proof.run is not None else f"incident {proof.incident}"
    took = f"{proof.seconds:.0f}"
    if not proof.verified:
        return because(Reason.PROOF_NOT_VERIFIED, how=how, seconds=took)
    at_step = "" if proof.step is None else f" and continued from step {proof.step}"
    return because(Reason.RECOVERY_PROVEN, how=how, seconds=took, at_step=at_step, source=proof.source)


def expires_at(ledger: Ledger, policy: Policy | PolicyError | None, now: datetime) -> datetime | None:
    """When the proof of the ledger will be too old. None: it is, no proof expires, or there is none."""
    max_age = _max_age(policy)
    if ledger.proof is None or max_age is None:
        return None
    moment = ledger.proof.proven_at + max_age
    return moment if moment > now else None


def reason_said(ledger: Ledger) -> Reason | None:
    """The reason of the condition RecoveryProven, as of the latest write. None: the ledger has no such condition."""
    said = next((each for each in ledger.conditions if each.type == RECOVERY_PROVEN), None)
    return Reason(said.reason) if said is not None else None


def _max_age(policy: Policy | PolicyError | None) -> timedelta | None:
    return policy.proof_max_age if isinstance(policy, Policy) else None


def _moment(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}Z"


def _listed(names: Sequence[str]) -> str:
    """`the runtime, the policy and the image`."""
    *first, last = (f"the {name}" for name in names)
    return f"{', '.join(first)} and {last}" if first else last
