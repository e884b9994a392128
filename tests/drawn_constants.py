"""Keeps hypothesis from drawing the constants of the modules that a process has loaded.

Besides its own list of nasty values, hypothesis draws the literals of every loaded module outside `tests` and
site-packages. So a test would draw other cases in each process that has loaded other modules of `recovery`, in spite
of `derandomize`: alone, after other tests, or in a worker of xdist. Hypothesis has no setting for it.
"""

from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

_NONE = Constants()


def draw_none_of_loaded_modules() -> None:
    """Replace the function by which hypothesis collects them. `tests/unit/test_draws.py` fails if an upgrade moves it.

    Call it before the first draw: hypothesis caches the constants that a draw may give.
    """
    providers._get_local_constants = _no_constants


def _no_constants() -> Constants:
    return _NONE
