"""What the text of a reason is made of."""

from collections.abc import Callable


class Details(dict[str, str | int]):
    """The rendered details of one explanation. A missing one shows as its name, so that a decision never fails because
    of its wording. A test checks that none is missing."""

    def __missing__(self, name: str) -> str:
        return f"<{name}>"


Text = str | Callable[[Details], str]


def and_more(count: int | str) -> str:
    """` and 3 more`; empty for none."""
    return f" and {count} more" if count else ""
