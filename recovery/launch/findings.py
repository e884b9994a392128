"""A finding: its code, its place, what is wrong, and how to fix it."""

from enum import StrEnum

import msgspec

from recovery.launch.places import Place


class Severity(StrEnum):
    """What a finding means for the job."""

    ERROR = "error"
    """The job is refused, fails, or does not train as its manifest says. `recovery lint` exits with 1, and admission
    refuses the job."""
    WARNING = "warning"
    """The job starts, but costs more or recovers worse than it needs to."""
    NOTE = "note"
    """Nothing is wrong, but the user should know about it."""


class Code(msgspec.Struct, frozen=True):
    """A kind of finding. Its name is API: `docs/lint/<name>.md` explains it, and users silence it by that name."""

    name: str
    """In kebab case, naming what is wrong: `reserved-env`."""
    severity: Severity
    title: str
    """What is wrong, in a few words without a full stop."""


class LintFinding(msgspec.Struct, frozen=True):
    """One thing that was found."""

    code: Code
    place: Place
    """The field that is wrong. For a missing field it is the nearest parent that exists."""
    message: str
    """What is wrong and what follows from it, in one sentence without a full stop; values as the user wrote them."""
    fix: str
    """What to write instead, as an imperative. Empty only for a note that requires no change."""
