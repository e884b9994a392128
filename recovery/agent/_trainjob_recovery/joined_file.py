"""The file that says, for the readiness probe of the container, that all ranks in it have joined the others."""

from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "RECOVERY_JOINED_FILE"


class JoinedFile:
    def __init__(self, path: str | None, say: Callable[[str], None]) -> None:
        """`path` is None: there is no such file."""
        self._path = None if path is None else Path(path)
        self._say = say

    def show(self) -> None:
        """All ranks have joined."""
        self._do("written", Path.touch)

    def remove(self) -> None:
        """No rank has joined: the ranks are stopped, or start."""
        self._do("removed", lambda path: path.unlink(missing_ok=True))

    def _do(self, name: str, act: Callable[[Path], None]) -> None:
        if self._path is None:
            return
        try:
            act(self._path)
        except OSError as error:
            self._say(f"{self._path} cannot be {name}: {error}")


def joined_path(environ: Mapping[str, str], say: Callable[[str], None]) -> str | None:
    """Where the container wants the file. None: it wants none."""
    path = environ.get(VARIABLE)
    if not path:
        return None
    if not path.startswith("/"):
        say(f"{VARIABLE} is not an absolute path, so no file is written")
        return None
    return path
