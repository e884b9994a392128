"""What is found: a code, where, what is wrong, and how to fix it."""

from enum import StrEnum

import msgspec

from recovery.launch.places import Place


class Severity(StrEnum):
    """What a finding means for the job."""

    ERROR = "error"
    """It will be refused, or fail, or not train as it says. `recovery lint` exits with 1; admission refuses it."""
    WARNING = "warning"
    """It will start, and then cost more, or recover worse, than it has to."""
    NOTE = "note"
    """Nothing is wrong; the user should know of it."""


class Code(msgspec.Struct, frozen=True):
    """A kind of finding. It is API: `docs/lint/<name>.md` explains it, and users silence it by that name."""

    name: str
    """In kebab case, naming what is wrong: `reserved-env`."""
    severity: Severity
    title: str
    """What is wrong, in a few words without a full stop."""


class LintFinding(msgspec.Struct, frozen=True):
    """One thing that was found."""

    code: Code
    place: Place
    """The field that is wrong; of one that is missing, its nearest parent that is there."""
    message: str
    """What is wrong and what follows from it, in one sentence without a full stop; values as the user wrote them."""
    fix: str
    """What to write instead, as an imperative; empty only for a note of which nothing follows."""
