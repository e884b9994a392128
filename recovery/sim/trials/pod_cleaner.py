"""A client that deletes failed pods as soon as it sees them, as clean-up jobs and autoscalers of other projects do."""

from recovery.ports import PODS
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.actors import CLEANER, Actors


class PodCleaner:
    """Deletes each pod `seconds` after it has failed."""

    def __init__(self, actors: Actors, seconds: float) -> None:
        self._actors = actors
        self._seconds = seconds
        actors.server.subscribe(self._changed, PODS)

    def _changed(self, change: ObjectChange) -> None:
        phase, was = (((each or {}).get("status") or {}).get("phase") for each in (change.body, change.before))
        if change.type != "DELETED" and phase == "Failed" and was != "Failed":
            self._actors.after(self._seconds, lambda: self._actors.remove(CLEANER, PODS, change.body))
