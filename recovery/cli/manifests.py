"""Manifests as they were read, and the findings in them."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from recovery.cli.arguments import ServerOptions
from recovery.launch.documents import Document
from recovery.launch.findings import LintFinding
from recovery.launch.places import written


class Problem(NamedTuple):
    """Why something that was named is not judged."""

    message: str
    """One line that names what cannot be read."""
    file: str = ""
    """The file as the user named it. Empty: the problem is not about a file."""


class Manifests(msgspec.Struct, frozen=True):
    """What was read."""

    documents: tuple[Document, ...]
    files: int
    """How many files were read."""
    passed_over: int = 0
    """How many of them were skipped, because nothing in them is judged."""
    problems: tuple[Problem, ...] = ()
    """What could not be read."""
    templates: tuple[str, ...] = ()
    """The skipped files of folders that are templates and must be rendered first."""


class Located(msgspec.Struct, frozen=True):
    """A finding, and the object that it is in."""

    finding: LintFinding
    document: Document

    @property
    def line(self) -> int:
        """The line in the file. 0: the object came from no file."""
        return self.document.line_of(self.finding.place.path)

    @property
    def path(self) -> str:
        """The path of the field. Empty: the document itself."""
        return written(self.finding.place.path)

    @property
    def where(self) -> str:
        """`llm.yaml:12`, or `TrainingRuntime/torch:spec.template` in an object of the cluster, which has no lines."""
        if self.document.file:
            return f"{self.document.file}:{self.line}"
        return f"{title(self.document)}:{self.path}" if self.path else title(self.document)

    @property
    def sentence(self) -> str:
        """`message (fix)`."""
        return f"{self.finding.message} ({self.finding.fix})" if self.finding.fix else self.finding.message


def located(findings: Iterable[LintFinding], documents: Iterable[Document]) -> tuple[Located, ...]:
    """The findings with their documents. `documents`: those that were judged."""
    by_number = {document.number: document for document in documents}
    return tuple(Located(finding, by_number[finding.place.document]) for finding in findings)


def title(document: Document) -> str:
    """`TrainJob/llm`. Empty: the text could not be read."""
    metadata = document.body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{document.kind}/{name}" if isinstance(name, str) and name else document.kind


class RuntimeSource(NamedTuple):
    """Where to look up runtimes that no file has."""

    server: ServerOptions
    namespace: str | None
    """The namespace of TrainJobs that name none. None: that of the context."""
