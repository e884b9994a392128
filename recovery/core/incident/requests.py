"""What a person asks of the controller about one job, by an annotation on it: restart, retry, reset-budget.

An annotation is seen by every leader, survives a crash, and can be written with kubectl alone. A request differs from
the one before it by its `at`; the answer stands in the ledger under that very moment, so that each is carried out once.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.model.annotations import RESET_BUDGET_ANNOTATION, RESTART_ANNOTATION, RETRY_ANNOTATION
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.ledger import Ledger, RequestAnswer
from recovery.core.model.reason import Reason

EXPIRES_AFTER = timedelta(minutes=15)
"""An older request is not carried out: the ledger that knew of it may have been lost, and the person has gone home."""


class Verb(StrEnum):
    """restart: recreate the group now, free of charge. retry: leave Held or Backoff now. reset-budget: empty it."""

    RESTART = "restart"
    RETRY = "retry"
    RESET_BUDGET = "reset-budget"


ANNOTATIONS = {
    Verb.RESTART: RESTART_ANNOTATION,
    Verb.RETRY: RETRY_ANNOTATION,
    Verb.RESET_BUDGET: RESET_BUDGET_ANNOTATION,
}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of the annotation: this as JSON, or an RFC 3339 time alone."""

    at: datetime
    """When it was asked; it names the request."""
    reason: str = ""
    by: str = ""
    """Who asked, as far as the tool knew."""
    force: bool = False
    """Act although the policy is in mode Observe, or the job is paused."""


_decode = msgspec.json.Decoder(Request).decode


def encode(request: Request) -> str:
    """The annotation's value."""
    return msgspec.json.encode(request).decode()


def parse(value: str) -> Request | None:
    """What the annotation asks for; None: that cannot be made out, or its time has no zone."""
    try:
        request = _decode(value) if value.startswith("{") else Request(msgspec.convert(value, datetime))
    except (msgspec.DecodeError, RecursionError):  # a user who may annotate the job chooses how deep the JSON goes
        return None
    return request if request.at.tzinfo is not None else None


def pending(workload: WorkloadFacts, ledger: Ledger) -> tuple[tuple[Verb, Request], ...]:
    """The requests that have no answer yet, in the order of the verbs."""
    found = ((verb, parse(workload.annotations.get(name, ""))) for verb, name in ANNOTATIONS.items())
    return tuple((verb, asked) for verb, asked in found if asked is not None and not _known(verb, asked, ledger))


def _known(verb: Verb, asked: Request, ledger: Ledger) -> bool:
    """It has its answer, or a later one has been carried out: who puts an old value back asks for nothing new."""
    before = next((answer for answer in ledger.requests if answer.verb == verb), None)
    return before is not None and (asked.at == before.at or (before.accepted and asked.at < before.at))


def expired(request: Request, now: datetime) -> bool:
    """It was asked too long ago to be carried out."""
    return now - request.at > EXPIRES_AFTER


def premature(request: Request, now: datetime) -> bool:
    """Its date is further ahead than clocks differ: later requests could not be distinguished from it."""
    return request.at - now > EXPIRES_AFTER


def answered(ledger: Ledger, verb: Verb, request: Request, reason: Reason, message: str, *, accepted: bool) -> Ledger:
    """The ledger with the answer, in place of an earlier one for that verb."""
    others = tuple(each for each in ledger.requests if each.verb != verb)
    answer = RequestAnswer(verb=verb, at=request.at, accepted=accepted, reason=reason, message=message)
    return msgspec.structs.replace(ledger, requests=(*others, answer))
