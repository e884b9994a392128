"""The place of a field in the input: the number of its document, and its path in that document."""

import msgspec

Path = tuple[str | int, ...]
"""The steps from the root of the document: `("spec", "trainer", "env", 0, "name")`."""


class Place(msgspec.Struct, frozen=True, order=True):
    """A field of a document."""

    document: int
    """Number of the document among those that are judged together, from 0."""
    path: Path = ()
    """Empty: the document itself."""

    def __truediv__(self, step: str | int) -> "Place":
        """The place of that field, or item, below this one."""
        return Place(self.document, (*self.path, step))


def written(path: Path) -> str:
    """The path as Kubernetes writes it: `spec.trainer.env[0].name`. Empty for the document itself."""
    text = ""
    for step in path:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else step
    return text
