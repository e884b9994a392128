"""The garbage collector: it deletes or orphans the dependants of deleted owners.

Source: `pkg/controller/garbagecollector` of Kubernetes 1.36. The sync of an object costs one request, plus one for each
owner that is not known to be gone, plus one for the delete. So a Job with many pods is deleted slowly unless another
client deletes the pods. Its client may send 40 requests a second, twice as many as other controllers, with the same
burst of 30 (`newGarbageCollectorController` in `cmd/kube-controller-manager/app/core.go`).
"""

from typing import NamedTuple

from recovery.ports import EVENTS, Clock, Entropy, PatchKind, Propagation, Resource
from recovery.sim.api.deletion import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from recovery.sim.api.kinds.kind import Body
from recovery.sim.api.server import ApiServer
from recovery.sim.api.status_error import StatusError
from recovery.sim.api.store import ObjectChange
from recovery.sim.controllers.controller import ModelController
from recovery.sim.controllers.request_limiter import Limiter


class Item(NamedTuple):
    """An object that may have to be deleted, or that waits until its dependants are deleted."""

    resource: Resource
    namespace: str | None
    name: str
    uid: str


class GarbageCollector(ModelController[Item]):
    """It subscribes on creation and syncs while `run` is running. It reads only metadata, of all kinds but Events."""

    name = "garbage-collector"

    def __init__(
        self,
        server: ApiServer,
        clock: Clock,
        entropy: Entropy,
        *,
        limiter: Limiter,
        delay_seconds: tuple[float, float] = (0.01, 0.04),
        workers: int = 20,
    ) -> None:
        """The delay is longer than in other controllers: before a delete it reads the object and its owners again."""
        super().__init__(server, clock, entropy, limiter=limiter, delay_seconds=delay_seconds, workers=workers)
        self._absent: set[str] = set()
        """UIDs of owners that are known to be gone. No request is needed for them."""
        server.subscribe(self._changed)

    # Changes.

    def _changed(self, change: ObjectChange) -> None:
        if change.resource == EVENTS:
            return
        if change.type == "DELETED":
            self._gone(change.body)
        elif change.before is None:
            if any(self._owner(change.body, reference) is None for reference in _owners(change.body)):
                self.enqueue(self._item(change.body))
        else:
            self._changed_metadata(change.before, change.body)

    def _gone(self, body: Body) -> None:
        """Enqueue the dependants of a deleted object, and the owners that wait for it."""
        uid = body["metadata"]["uid"]
        dependants = list(self.server.dependants(uid))
        if dependants:
            self._absent.add(uid)
        for dependant in dependants:
            self.enqueue(self._item(dependant))
        for reference in _owners(body):
            self._enqueue_waiting(body, reference)

    def _enqueue_waiting(self, dependant: Body, reference: Body) -> None:
        owner = self._owner(dependant, reference)
        if owner is not None and _waits_for_dependants(owner):
            self.enqueue(self._item(owner))

    def _changed_metadata(self, before: Body, body: Body) -> None:
        metadata, former = body["metadata"], before["metadata"]
        if metadata.get("ownerReferences") != former.get("ownerReferences"):
            for reference in _owners(before):
                self._enqueue_waiting(before, reference)
        for finalizer in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER):
            if _waits(body, finalizer) and not _waits(before, finalizer):
                self.enqueue(self._item(body))
                if finalizer == FOREGROUND_FINALIZER:
                    for dependant in self.server.dependants(metadata["uid"]):
                        self.enqueue(self._item(dependant))

    # The sync.

    async def sync(self, key: Item) -> None:
        body = self._latest(key)
        if body is None or _is_leaving(body):
            return
        await self.limiter.take()
        latest = self._latest(key)
        if latest is None:
            return
        if _waits(latest, ORPHAN_FINALIZER):
            await self._orphan_dependants(key)
        elif _waits_for_dependants(latest):
            await self._await_dependants(key, latest)
        elif _owners(latest):
            await self._collect(key, latest)

    async def _orphan_dependants(self, key: Item) -> None:
        for dependant in self.server.dependants(key.uid):
            await self._disown(self._item(dependant), {key.uid})
        await self._remove_finalizer(key, ORPHAN_FINALIZER)

    async def _await_dependants(self, key: Item, body: Body) -> None:
        """Finish the deletion if no dependant blocks it. A dependant that is being deleted blocks until it is gone."""
        blocking = [each for each in self.server.dependants(key.uid) if _blocks(each, key.uid)]
        if not blocking:
            await self._remove_finalizer(key, FOREGROUND_FINALIZER)
            return
        for dependant in blocking:
            if "deletionTimestamp" not in dependant["metadata"]:
                self.enqueue(self._item(dependant))

    async def _collect(self, key: Item, body: Body) -> None:
        """Delete the object, unless it has an owner that is not being deleted."""
        gone: dict[str, None] = {}
        going: dict[str, None] = {}
        stays = False
        for reference in _owners(body):
            if reference["uid"] in self._absent:
                gone[reference["uid"]] = None
                continue
            await self.limiter.take()
            owner = self._owner(body, reference)
            if owner is None:
                self._absent.add(reference["uid"])
                gone[reference["uid"]] = None
            elif _waits_for_dependants(owner):
                going[reference["uid"]] = None
            else:
                stays = True
        if stays:
            if gone or going:
                await self._disown(key, {*gone, *going})
            return
        propagation = Propagation.BACKGROUND
        dependants = list(self.server.dependants(key.uid))
        if going and dependants:
            propagation = Propagation.FOREGROUND
            if any(map(_waits_for_dependants, dependants)):
                await self._unblock_owners(key)  # otherwise two objects that own each other would wait forever
        elif FOREGROUND_FINALIZER in body["metadata"].get("finalizers", ()):
            propagation = Propagation.FOREGROUND
        await self._delete(key, body, propagation)

    # Requests.

    async def _delete(self, key: Item, body: Body, propagation: Propagation) -> None:
        """Delete the version that was examined. If it changed but its owners did not, delete the newer version."""
        await self.limiter.take()
        try:
            self._delete_now(key, propagation, body["metadata"]["resourceVersion"])
        except StatusError as error:
            if error.code != 409:
                raise
            latest = self._latest(key)
            if latest is None:
                return
            if _owners(latest) != _owners(body):
                raise
            await self.limiter.take()
            self._delete_now(key, propagation, None)

    def _delete_now(self, key: Item, propagation: Propagation, resource_version: str | None) -> None:
        with self.server.acting(self.name):
            self.server.delete(
                key.resource,
                key.name,
                namespace=key.namespace,
                uid=key.uid,
                resource_version=resource_version,
                propagation=propagation,
            )

    async def _remove_finalizer(self, key: Item, finalizer: str) -> None:
        await self.limiter.take()  # for another read of the object
        await self.limiter.take()
        body = self._latest(key)
        if body is not None and finalizer in body["metadata"].get("finalizers", ()):
            left = [each for each in body["metadata"]["finalizers"] if each != finalizer]
            self._patch(key, {"finalizers": left})

    async def _disown(self, key: Item, owners: set[str]) -> None:
        await self.limiter.take()
        body = self._latest(key)
        if body is not None:
            left = [reference for reference in _owners(body) if reference["uid"] not in owners]
            self._patch(key, {"ownerReferences": left})

    async def _unblock_owners(self, key: Item) -> None:
        await self.limiter.take()
        body = self._latest(key)
        if body is not None:
            unblocked = [{**reference, "blockOwnerDeletion": False} for reference in _owners(body)]
            self._patch(key, {"ownerReferences": unblocked})

    def _patch(self, key: Item, metadata: Body) -> None:
        with self.server.acting(self.name):
            self.server.patch(
                key.resource, key.name, {"metadata": metadata}, kind=PatchKind.MERGE, namespace=key.namespace
            )

    # Reads.

    def _latest(self, key: Item) -> Body | None:
        """The object. None: it is gone, or another object has its name by now."""
        body = self.server.find(key.resource, key.name, key.namespace)
        return body if body is not None and body["metadata"]["uid"] == key.uid else None

    def _item(self, body: Body) -> Item:
        metadata = body["metadata"]
        return Item(self.server.resource_of(body), metadata.get("namespace"), metadata["name"], metadata["uid"])

    def _owner(self, dependant: Body, reference: Body) -> Body | None:
        """The owner, or None if it is gone."""
        resource = self.server.resource_of(reference)
        namespace = dependant["metadata"].get("namespace") if resource.namespaced else None
        return self._latest(Item(resource, namespace, reference["name"], reference["uid"]))


def _owners(body: Body) -> list[Body]:
    owners: list[Body] = body["metadata"].get("ownerReferences") or []
    return owners


def _waits(body: Body, finalizer: str) -> bool:
    metadata = body["metadata"]
    return "deletionTimestamp" in metadata and finalizer in metadata.get("finalizers", ())


def _waits_for_dependants(body: Body) -> bool:
    return _waits(body, FOREGROUND_FINALIZER)


def _is_leaving(body: Body) -> bool:
    """The object is being deleted and does not wait for the garbage collector. Its sync costs no request."""
    if "deletionTimestamp" not in body["metadata"]:
        return False
    return not (_waits_for_dependants(body) or _waits(body, ORPHAN_FINALIZER))


def _blocks(dependant: Body, uid: str) -> bool:
    return any(reference["uid"] == uid and reference.get("blockOwnerDeletion") for reference in _owners(dependant))
