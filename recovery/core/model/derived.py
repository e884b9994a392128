"""Facts that follow from a snapshot alone are found once for each snapshot.

One reconcile asks many times what was lost and who met whom, and each answer reads all pods. A snapshot never changes,
so neither does the answer. A snapshot that is made from another one (`msgspec.structs.replace`) knows no answers yet.
"""

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from recovery.core.model.facts import Snapshot

P = ParamSpec("P")
T = TypeVar("T")


def derived(find: Callable[Concatenate[Snapshot, P], T]) -> Callable[Concatenate[Snapshot, P], T]:
    """The function `find`, which keeps its answers with the snapshot. All callers share an answer, so it must not be
    mutable. Other arguments of the function must be hashable, and are given by position."""

    @wraps(find)
    def known(snapshot: Snapshot, /, *args: P.args, **kwargs: P.kwargs) -> T:
        assert not kwargs, "an argument that the question lacks would get the answer of another one"
        answers: dict[Hashable, T] = vars(snapshot)  # type: ignore[assignment]
        question = (find, *args)
        if question not in answers:
            answers[question] = find(snapshot, *args, **kwargs)
        return answers[question]

    return known
