"""Writes the condition `Accepted` of every policy and of the RecoveryConfig, even if created while no webhook served.

All objects are judged again whenever one of them changes, because a verdict depends on the others too. There are few of
them, and only a condition that differs is written. The write tests the resourceVersion that was judged, so that two
replicas write it once, and it changes no other entry of `status.conditions`.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from recovery import api_verbs
from recovery.admission.objects import JUDGED, JudgedObject, StatusCondition, decoder
from recovery.admission.verdict import AdmissionVerdict, judge
from recovery.core.model.config import CONFIG_NAME
from recovery.kube.informer import Informer
from recovery.kube.projections.metadata import ObjectEntry
from recovery.ports import (
    RECOVERY_CONFIGS,
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    Entropy,
    NotFoundError,
    PatchKind,
    Resource,
    TestFailedError,
    WatchEnd,
)

CONDITION_TYPE = "Accepted"
ACCEPTED = "Accepted"
REFUSED = "Refused"
MESSAGE_LENGTH_MAX = 32768
"""Of a condition's message, as in metav1.Condition."""
RETRY_SECONDS = 30.0
"""Before a failed write is tried again."""

_log = structlog.get_logger("recovery.admission")


class Register:
    """Keeps the judged objects current, and writes their conditions."""

    def __init__(self, client: ApiClient, *, clock: Clock, entropy: Entropy) -> None:
        self._client = client
        self._clock = clock
        self._changed = asyncio.Event()
        self._written: dict[str, StatusCondition] = {}
        self._complaint = ""
        self.informers: dict[Resource, Informer[JudgedObject]] = {
            resource: Informer(
                client,
                resource,
                decoder(resource),
                put=self._put,
                drop=self._drop,
                clock=clock,
                entropy=entropy,
                observer=self,
            )
            for resource in JUDGED
        }

    def synced(self) -> bool:
        """Every kind has been listed. Before that, absence means nothing."""
        return all(informer.synced for informer in self.informers.values())

    def judge(self, judged: JudgedObject) -> AdmissionVerdict:
        """Judge the object together with all others. Before everything has been listed, judge it on its own."""
        if not self.synced():
            return AdmissionVerdict(errors=judge(judged, (), None).errors)
        others = (other for other in self._objects(judged.resource) if other.namespace == judged.namespace)
        config = self.informers[RECOVERY_CONFIGS].objects.get(("", CONFIG_NAME))
        return judge(judged, others, config.value if config is not None else None)

    async def keep_conditions(self) -> None:
        """Write conditions until cancelled. The informers must run concurrently."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self.synced():
                continue
            outcomes = [await self._settle(judged) for resource in JUDGED for judged in self._objects(resource)]
            if not all(outcomes):
                await self._clock.sleep(RETRY_SECONDS)
                self._changed.set()

    async def _settle(self, judged: JudgedObject) -> bool:
        """Write the condition of this object if it is due. False: it has to be tried again."""
        condition = due_condition(judged, self.judge(judged), self._clock.now())
        written = self._written.get(judged.uid)
        if condition is None or judged.deleting:
            return True
        if written is not None and condition.says_what(written) and _present(judged, condition.observed_generation):
            # A replica of another version has since written it in other words. Each writes it once, or they would
            # overwrite each other forever.
            return True
        try:
            await api_verbs.patch(
                self._client,
                judged.resource,
                judged.name,
                _patch(judged, condition),
                kind=PatchKind.JSON,
                namespace=judged.namespace or None,
                subresource="status",
            )
        except (ConflictError, NotFoundError, TestFailedError):
            return True  # it has changed, and the watch will report it
        except ApiError as error:
            if str(error) != self._complaint:
                _log.warning("a condition could not be written; trying again", object=judged.title, error=str(error))
            self._complaint = str(error)
            return False
        self._written[judged.uid] = condition
        _log.info(
            "judged", object=judged.title, generation=judged.generation, reason=condition.reason, why=condition.message
        )
        return True

    def _objects(self, resource: Resource) -> Sequence[JudgedObject]:
        return [entry.value for entry in self.informers[resource].objects.values()]

    def _put(self, _entry: ObjectEntry[JudgedObject]) -> None:
        self._changed.set()

    def _drop(self, entry: ObjectEntry[JudgedObject]) -> None:
        self._written.pop(entry.uid, None)
        self._changed.set()

    # --- reported by the informers ---------------------------------------------------------------------------------

    def listed(self, _resource: str, _objects: int) -> None:
        """Judge again. If the last kind is empty, no object reports that everything has been listed."""
        self._changed.set()

    def watch_event(self, resource: str) -> None: ...

    def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None:
        _log.warning("a watch for admission was interrupted", resource=resource, reason=str(reason), error=message)

    def undecodable(self, resource: str, name: str, message: str) -> None:
        _log.error("an object cannot be judged", resource=resource, object=name, error=message)


def due_condition(judged: JudgedObject, verdict: AdmissionVerdict, now: datetime) -> StatusCondition | None:
    """The condition as it should be. None: it is already."""
    status, reason = ("False", REFUSED) if verdict.errors else ("True", ACCEPTED)
    current = _current(judged)
    due = StatusCondition(
        type=CONDITION_TYPE,
        status=status,
        reason=reason,
        message=in_one_line(verdict.errors or verdict.warnings)[:MESSAGE_LENGTH_MAX],
        last_transition_time=now.replace(microsecond=0),
        observed_generation=judged.generation,
    )
    if current is None:
        return due
    if due.says_what(current):
        return None
    if current.status == due.status and current.last_transition_time is not None:
        return msgspec.structs.replace(due, last_transition_time=current.last_transition_time)
    return due


def in_one_line(sentences: Iterable[str]) -> str:
    """As Kubernetes joins several errors of one object, for messages of one line."""
    return "; ".join(sentences)


def _current(judged: JudgedObject) -> StatusCondition | None:
    conditions = (judged.status.conditions if judged.status is not None else None) or ()
    return next((condition for condition in conditions if condition.type == CONDITION_TYPE), None)


def _present(judged: JudgedObject, generation: int) -> bool:
    current = _current(judged)
    return current is not None and current.observed_generation == generation


def _patch(judged: JudgedObject, condition: StatusCondition) -> list[dict[str, Any]]:
    """A JSON patch of the status that holds only for the object as it was judged."""
    same = {"op": "test", "path": "/metadata/resourceVersion", "value": judged.resource_version}
    conditions = judged.status.conditions if judged.status is not None else None
    if judged.status is None:
        return [same, {"op": "add", "path": "/status", "value": {"conditions": [condition]}}]
    if conditions is None:
        return [same, {"op": "add", "path": "/status/conditions", "value": [condition]}]
    types = [present.type for present in conditions]
    if CONDITION_TYPE not in types:
        return [same, {"op": "add", "path": "/status/conditions/-", "value": condition}]
    place = types.index(CONDITION_TYPE)
    return [same, {"op": "replace", "path": f"/status/conditions/{place}", "value": condition}]
