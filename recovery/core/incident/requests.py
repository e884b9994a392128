"""Requests of a person to the controller, as annotations on one job: restart, retry, reset-budget.

Every leader sees an annotation, it survives a crash, and kubectl alone can write it. Its `at` distinguishes a request
from the one before it. The ledger keeps the answer with that moment, so that each request is carried out once.
"""

from datetime import datetime, timedelta
from enum import StrEnum

import msgspec

from recovery.core.model.annotations import RESET_BUDGET_ANNOTATION, RESTART_ANNOTATION, RETRY_ANNOTATION
from recovery.core.model.facts import WorkloadFacts
from recovery.core.model.ledger import Ledger
from recovery.core.model.reason import Reason
from recovery.core.model.request_answer import RequestAnswer

EXPIRES_AFTER = timedelta(minutes=15)
"""An older request is not carried out: the ledger that knew of it may be lost, and the person no longer waits."""


class Verb(StrEnum):
    """restart: recreate the group now, uncharged. retry: leave Held or Backoff now. reset-budget: drop charges."""

    RESTART = "restart"
    RETRY = "retry"
    RESET_BUDGET = "reset-budget"


ANNOTATIONS = {
    Verb.RESTART: RESTART_ANNOTATION,
    Verb.RETRY: RETRY_ANNOTATION,
    Verb.RESET_BUDGET: RESET_BUDGET_ANNOTATION,
}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of the annotation: this struct as JSON, or an RFC 3339 time alone."""

    at: datetime
    """When the request was made. It identifies the request."""
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
    """The request in the annotation. None: it cannot be parsed, or its time has no zone."""
    try:
        request = _decode(value) if value.startswith("{") else Request(msgspec.convert(value, datetime))
    except (msgspec.DecodeError, RecursionError):  # a user who may annotate the job chooses how deeply the JSON nests
        return None
    return request if request.at.tzinfo is not None else None


def pending(workload: WorkloadFacts, ledger: Ledger) -> tuple[tuple[Verb, Request], ...]:
    """The requests without an answer, in the order of the verbs."""
    found = ((verb, parse(workload.annotations.get(name, ""))) for verb, name in ANNOTATIONS.items())
    return tuple((verb, asked) for verb, asked in found if asked is not None and not _known(verb, asked, ledger))


def _known(verb: Verb, asked: Request, ledger: Ledger) -> bool:
    """The request has an answer, or a later one was carried out: an old value that is restored asks for nothing new."""
    before = next((answer for answer in ledger.requests if answer.verb == verb), None)
    return before is not None and (asked.at == before.at or (before.accepted and asked.at < before.at))


def expired(request: Request, now: datetime) -> bool:
    """The request is too old to be carried out."""
    return now - request.at > EXPIRES_AFTER


def premature(request: Request, now: datetime) -> bool:
    """The request is dated further ahead than clocks differ. Once accepted, it would make later requests look old."""
    return request.at - now > EXPIRES_AFTER


def answered(ledger: Ledger, verb: Verb, request: Request, reason: Reason, message: str, *, accepted: bool) -> Ledger:
    """The ledger with the answer, which replaces an earlier one for that verb."""
    others = tuple(each for each in ledger.requests if each.verb != verb)
    answer = RequestAnswer(verb=verb, at=request.at, accepted=accepted, reason=reason, message=message)
    return msgspec.structs.replace(ledger, requests=(*others, answer))
