"""Python runs this file at its start, because the agent's folder stands first in PYTHONPATH.

In the interpreter of torchrun it executes the agent in torchrun's place. In a rank it installs the hooks that record an
exception and show progress, and removes every other trace of the agent. In any other interpreter it does nothing. The
image's own sitecustomize follows in all of them. This file parses on Python 2.7 too, and an error in it never stops an
interpreter.
"""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
_MARKER = "_TRAINJOB_RECOVERY_RANK"
_PAGE = "_TRAINJOB_RECOVERY_PAGE"
_LAUNCHER = "_TRAINJOB_RECOVERY_LAUNCHER"
_TORCHRUN = "torch.distributed.run"
_AGENT = (
    "import sys; sys.path[:] = [path for path in sys.path if path]; import runpy; "
    "runpy.run_module('_trainjob_recovery', run_name='__main__', alter_sys=True)"
)
"""The working directory leaves the path first, which torchrun's has not: a file there may have the name of a module."""


def _flags_and_rest(arguments):
    # type: (list[str]) -> tuple[list[str], list[str]]
    """Split the words after the interpreter: its own flags, and what it runs."""
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and len(arguments[at]) > 1:
        word = arguments[at]
        if word == "--check-hash-based-pycs":
            at += 2
        elif word.startswith("--"):
            at += 1
        else:
            # Short flags may share a word. The first that takes a value takes the rest of it, or the next word.
            place = min([word.find(letter) for letter in "cmWX" if letter in word[1:]] or [0])
            if place and word[place] in "cm":
                break
            at += 2 if place == len(word) - 1 and place else 1
    return arguments[:at], arguments[at:]


def _is_torchrun(path):
    # type: (str) -> bool
    if os.path.basename(path) != "torchrun":
        return False
    with open(path, "rb") as script:
        return _TORCHRUN.encode() in script.read(4096)


def _take_over():
    # type: () -> None
    """Execute the agent if this is the interpreter of torchrun."""
    flags, rest = _flags_and_rest(sys.orig_argv[1:])
    if rest[:2] == ["-m", _TORCHRUN]:
        arguments = rest[2:]
    elif rest[:1] == ["-m" + _TORCHRUN]:
        arguments = rest[1:]
    elif rest and _is_torchrun(rest[0]):
        arguments = rest[1:]
        os.environ[_LAUNCHER] = rest[0]
    else:
        return
    os.execv(sys.executable, [sys.executable] + flags + ["-c", _AGENT] + arguments)


def _become_rank():
    # type: () -> None
    """Leave the environment that stock torchrun gives, and load the hooks of a rank."""
    del os.environ[_MARKER]
    page = os.environ.pop(_PAGE, None)
    if page and not _is_page(page):
        page = ""
    for name in [name for name in os.environ if name.startswith("RECOVERY_AGENT_")]:
        del os.environ[name]
    others = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != _HERE]
    if others:
        os.environ["PYTHONPATH"] = os.pathsep.join(others)
    else:
        os.environ.pop("PYTHONPATH", None)
    try:
        if sys.version_info >= (3, 10):
            _load_hooks(page)
    finally:
        if page:
            os.close(int(page))


def _is_page(number):
    # type: (str) -> bool
    """A wrapper between the agent and this interpreter may have used the number for a file of its own."""
    try:
        return os.readlink("/proc/self/fd/" + number).startswith("/memfd:recovery-progress")
    except OSError:
        return False


def _load_hooks(page):
    # type: (str | None) -> None
    """`page`: the number of an open file, or nothing. None: this is the zygote, which has no progress of its own."""
    from _trainjob_recovery import rank_hooks

    _hooks.append(rank_hooks.install)
    if page is not None:
        from _trainjob_recovery import rank_progress

        _hooks.append(rank_progress.of_rank(page).install)
    for name in [name for name in sys.modules if name.split(".")[0] == "_trainjob_recovery"]:
        del sys.modules[name]


def _act():
    # type: () -> None
    if _MARKER in os.environ:
        _become_rank()
    elif sys.version_info >= (3, 10) and os.environ.get("RECOVERY_AGENT_JOB_UID") and not sys.flags.ignore_environment:
        _take_over()


def _make_way():
    # type: () -> list[str]
    """Let the import system find the image's own sitecustomize under this module's name."""
    kept = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    removed = [path for path in sys.path if path not in kept]
    sys.path[:] = kept
    for path in removed:
        sys.path_importer_cache.pop(path, None)
    sys.modules.pop("sitecustomize", None)
    return removed


_hooks = []  # type: ignore[var-annotated]
_is_rank = _MARKER in os.environ
# Python 2.7 empties a module that nothing refers to.
_this = sys.modules.get(__name__)
try:
    _act()
except Exception:  # noqa: BLE001, S110 - the user's program matters more than the agent
    pass
_removed = _make_way()
try:
    # The import system puts this module's successor in its place. Where there is none, site ignores this ImportError,
    # and the interpreter is as if this file had never been there.
    import sitecustomize  # noqa: F401
finally:
    if not _is_rank:
        sys.path[0:0] = _removed
    # After the image's own, which may replace the hook of the interpreter without calling it.
    for _install in _hooks:
        _install()
