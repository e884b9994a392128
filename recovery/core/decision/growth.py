"""The growth of a smaller group. It is an incident of its own, because all ranks stop for it."""

import msgspec

from recovery.core.decision import avoidance, birth, resizing
from recovery.core.decision.teardown import trigger
from recovery.core.decision.verdict import Verdict
from recovery.core.diagnosis.classify import classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.incident import lifecycle, sizes
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason, because, explained
from recovery.core.model.sentence import Sentence
from recovery.core.plan.actions import Plan
from recovery.core.plan.context import ReconcileContext
from recovery.core.plan.parts import answer, message_of
from recovery.core.policy.resolved import Policy


def begin(context: ReconcileContext, ledger: Ledger, policy: Policy, verdict: Verdict) -> Plan:
    """The restart by which the group grows, once a dry run has shown that its Job can be created with that size."""
    job = sizes.only_job(context.snapshot)
    assert job is not None, "only a group of one Job grows"
    assert ledger.elastic is not None, "only a smaller group grows"
    avoid = avoidance.hosts(avoidance.current(context, ledger))
    tried = birth.tried(context, ledger, birth.wished(context.snapshot, job, verdict.nodes, avoid))
    if tried.trying is not None:
        why = because(Reason.TRYING_BIRTH_SETTINGS)
        return answer(tried.ledger, why, actions=(tried.trying,), requeue_at=context.now + birth.TRY_AGAIN_AFTER)
    if tried.refused is not None:
        failed = ledger.elastic.failed_growths + 1
        state = msgspec.structs.replace(ledger.elastic, room_since=None, room_nodes=None, failed_growths=failed)
        after = msgspec.structs.replace(tried.ledger, elastic=state)
        return answer(after, tried.refused, requeue_at=context.now + resizing.ROOM_ASKED_EVERY)
    evidence = Evidence(f"{job.uid}/room", LossKind.ROOM, message_of(verdict.why), "", at=context.now)
    opened = lifecycle.open_incident(
        tried.ledger, context.snapshot, policy, classify((evidence,), context.snapshot), context.now
    )
    why = explained(Sentence.GROWS, verdict.why.reason, why=verdict.why, nodes=verdict.nodes, jobs=job.name)
    return trigger(context, opened, why, verdict=verdict)
