"""Reads documents into views: the fields of an object that are judged, and what is wrong with the object by itself.

A field of the wrong type is reported, and then read as if it were missing.
"""

from collections.abc import Callable

import msgspec

from recovery.launch import fields
from recovery.launch.documents import Document
from recovery.launch.fields import Field
from recovery.launch.findings import Code, LintFinding, Severity
from recovery.launch.kinds import (
    CLUSTER_TRAINING_RUNTIME,
    JOB_SET,
    OWN,
    PYTORCH_JOB,
    TRAIN_JOB,
    TRAINING_RUNTIME,
    VOLCANO_JOB,
    ManifestKind,
    kind_of,
    nearest,
)
from recovery.launch.places import Place
from recovery.launch.reading import numbers, objects, trainjobs
from recovery.launch.reading.jobsets import job_set
from recovery.launch.reading.objects import name_of
from recovery.launch.reading.trainjobs import runtime, train_job
from recovery.launch.reading.volcano import volcano_job
from recovery.launch.views import Object, PyTorchJob

UNKNOWN_KIND = Code("unknown-kind", Severity.NOTE, "an object of this kind is not judged")
WRONG_API_VERSION = Code("wrong-api-version", Severity.ERROR, "a known kind with an unknown apiVersion")
OLD_API = Code("old-api", Severity.NOTE, "the object belongs to training-operator v1")
CODES = (*fields.CODES, *numbers.CODES, *objects.CODES, *trainjobs.CODES, UNKNOWN_KIND, WRONG_API_VERSION, OLD_API)


class Reading(msgspec.Struct, frozen=True):
    """What was read from a document."""

    view: Object | None
    """None: its kind is not judged, or the text could not be read."""
    findings: tuple[LintFinding, ...] = ()


def read(document: Document) -> Reading:
    """Reads the object of that document."""
    if not document.body:
        return Reading(None, document.problems)
    found = list(document.problems)
    body = Field(dict(document.body), Place(document.number), found)
    kind = kind_of(document.kind, document.api_version)
    if kind is None:
        _unknown(body, document)
        return Reading(None, tuple(found))
    if kind in OWN:
        name_of(body)
        return Reading(None, tuple(found))
    return Reading(_READERS[kind](body), tuple(found))


def _pytorch_job(body: Field) -> PyTorchJob:
    body["apiVersion"].finding(
        OLD_API,
        "PyTorchJob is training-operator v1, which Trainer v2 replaces: nothing of it is judged",
        f"write a {TRAIN_JOB.name} of {TRAIN_JOB.api_version} whose runtimeRef names a torch runtime",
    )
    return PyTorchJob(name_of(body), body.place)


_READERS: dict[ManifestKind, Callable[[Field], Object]] = {
    TRAIN_JOB: train_job,
    TRAINING_RUNTIME: runtime,
    CLUSTER_TRAINING_RUNTIME: runtime,
    JOB_SET: job_set,
    VOLCANO_JOB: volcano_job,
    PYTORCH_JOB: _pytorch_job,
}


def _unknown(body: Field, document: Document) -> None:
    meant = nearest(document.kind, document.api_version)
    if meant is None:
        body["kind"].finding(UNKNOWN_KIND, f"a {document.kind} of {document.api_version} is not judged here", "")
        return
    body["apiVersion"].finding(
        WRONG_API_VERSION,
        f"there is no {document.kind} of {document.api_version} that is known here, so nothing of it is judged",
        f"write apiVersion: {meant.api_version}",
    )
