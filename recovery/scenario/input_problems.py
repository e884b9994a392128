"""Collects everything that is wrong with an input, so that a person can fix it in one go."""

from collections.abc import Iterable

from recovery.core.model.durations import DurationError, parse_duration


class Problems:
    def __init__(self, found: Iterable[str] = ()) -> None:
        self.found: list[str] = list(found)
        """Each begins with its path."""

    def is_wrong(self, path: str, *, parts: bool = True) -> bool:
        """A problem with this field was already reported, or with a part of it, so its value cannot be used."""
        ends = (":", ".", "[") if parts else (":",)
        return any(said.startswith(tuple(f"{path}{end}" for end in ends)) for said in self.found)

    def add(self, path: str, sentence: str) -> None:
        """`sentence` says what is wrong with the field at `path`, and how to fix it."""
        self.found.append(f"{path}: {sentence}")

    def forget(self, path: str) -> None:
        """Drops what was reported about the parts of `path`, which has to go as a whole."""
        self.found = [said for said in self.found if not said.startswith((f"{path}.", f"{path}["))]

    def unfit(self, path: str, what: str, **said: object) -> None:
        """`said`: fields of `path` that mean nothing to `what`, with their values. None: the field is not set."""
        for field, value in said.items():
            if value is not None:
                self.add(f"{path}.{_camel(field)}", f"means nothing to {what}; leave it out")

    def at_least(self, least: int, found: int, path: str) -> None:
        if found < least:
            self.add(path, f"{found} is too few; say {least} or more")

    def seconds(self, text: str, path: str, *, may_be_none: bool = False) -> float:
        """The seconds of a duration; 0 if it is wrong. `may_be_none`: 0s is allowed."""
        try:
            seconds = parse_duration(text, path).total_seconds()
        except DurationError as error:
            self.found.append(str(error))
            return 0.0
        if seconds == 0 and not may_be_none:
            self.add(path, "must be longer than 0s")
        return seconds


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)
