"""Bugs planted in the code that shrinks and grows groups, which the elastic trials have to find."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import pytest

from recovery.core.decision import birth, resizing
from recovery.core.incident import sizes
from recovery.core.model.facts import Room
from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.plan.context import ReconcileContext
from recovery.launch import birth as birth_of_jobs
from recovery.sim.api.kinds.kind import Body


def grows_without_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """There always seems to be room for all nodes."""
    asked = resizing._with_growth

    def anyway(
        context: ReconcileContext, ledger: Ledger, state: ElasticState, elastic: PinnedElastic
    ) -> resizing.AtRest:
        fleet = context.snapshot.fleet
        if fleet is not None:
            fleet = msgspec.structs.replace(fleet, room=Room(100, ("node-0",)))
        snapshot = msgspec.structs.replace(context.snapshot, fleet=fleet)
        return asked(msgspec.structs.replace(context, snapshot=snapshot), ledger, state, elastic)

    monkeypatch.setattr(resizing, "_with_growth", anyway)


def shrinks_below_the_least(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any number of placed pods is enough."""
    largest = sizes.largest

    def any_number(elastic: PinnedElastic, at_most: int, wanted_nodes: int) -> int | None:
        return largest(msgspec.structs.replace(elastic, min_nodes=1), at_most, wanted_nodes)

    def is_allowed(elastic: PinnedElastic, nodes: int, wanted_nodes: int) -> bool:
        return 1 <= nodes <= wanted_nodes

    monkeypatch.setattr(sizes, "largest", any_number)
    monkeypatch.setattr(sizes, "allowed", is_allowed)


def only_parallelism_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The admission policy does not change `completions`."""
    patched = birth_of_jobs._changed

    def half(job: Body, settings: Body) -> Body:
        made = patched(job, settings)
        return {**made, "spec": {**made["spec"], "completions": job["spec"]["completions"]}}

    monkeypatch.setattr(birth_of_jobs, "_changed", half)


def size_is_lost_on_recreate(monkeypatch: pytest.MonkeyPatch) -> None:
    """A restart that sets no size drops the settings of the one before."""

    def forgetful(context: ReconcileContext, ledger: Ledger) -> Ledger:
        after = kept(context, ledger)
        return after if ledger.incident is None else msgspec.structs.replace(after, birth_settings=None)

    kept = birth.kept
    monkeypatch.setattr(birth, "kept", forgetful)


@dataclass(frozen=True)
class ElasticCanary:
    """One planted bug, and the invariant of `checkers` that has to find it at that seed."""

    plant: Callable[[pytest.MonkeyPatch], None]
    invariant: str
    seed: int


CANARIES = (
    ElasticCanary(grows_without_room, "growths_have_their_room", 0),
    ElasticCanary(shrinks_below_the_least, "every_size_is_allowed", 5),
    ElasticCanary(only_parallelism_changes, "all_pods_at_once", 0),
    ElasticCanary(size_is_lost_on_recreate, "every_job_has_the_size_of_the_ledger", 2),
)
