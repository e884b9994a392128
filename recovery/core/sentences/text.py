"""What the text of a reason is made of."""

from collections.abc import Callable


class Details(dict[str, str | int]):
    """The details of one explanation, rendered. One that is missing shows as its name: a decision never fails by the
    wording of its reason. A test holds that none is missing."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


Text = str | Callable[[Details], str]


def and_more(count: int | str) -> str:
    """` and 3 more`; empty for none."""
    return f" and {count} more" if count else ""
