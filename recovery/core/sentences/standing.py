"""What a group that hangs between incidents shows people."""

from datetime import datetime

from recovery.core.model.standing import Broken


def hangs(since: datetime, what: str) -> str:
    """Since when the group is Broken, and why. `what` empty: it is not known what broke it."""
    why = what.strip().removesuffix(".")
    return (
        f"The group has been Broken since {since:%Y-%m-%d %H:%M:%S}Z{f': {why}' if why else ''}. Its other ranks hang."
    )


def sentence_of(broken: Broken) -> str:
    """The same of the ledger's record."""
    return hangs(broken.since, broken.message)
