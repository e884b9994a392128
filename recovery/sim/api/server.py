"""The API server: verbs on objects. Each write makes one revision.

The rules are those of kube-apiserver 1.36 in its generic registry, `BeforeCreate`, `BeforeUpdate` and patch handler.
The rules of a single kind are in its `ServedKind`.
"""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from recovery.ports import LEASES, NODES, PODS, Clock, Entropy, PatchKind, Propagation, Resource
from recovery.sim.api.deletion import deleted
from recovery.sim.api.error_answers import (
    already_exists,
    bad_request,
    conflict,
    internal_error,
    invalid,
    may_not_create,
    not_found,
    not_served,
    precondition_failed,
    unsupported_patch,
)
from recovery.sim.api.kinds.kind import Body, ServedKind
from recovery.sim.api.listing import ANY_REVISION, built_in, listed, revision_of
from recovery.sim.api.managed_fields import managed_fields
from recovery.sim.api.metadata import copied, drop_empty, generated_name, settled, timestamp, uid_of
from recovery.sim.api.patches import patched
from recovery.sim.api.pod_subresources import bound, marked_for_eviction
from recovery.sim.api.selectors import selector
from recovery.sim.api.status_error import FieldCause
from recovery.sim.api.store import Key, ObjectChange, Record, ResourceTable, Store
from recovery.sim.api.watching import watch

_GENERATED_NAME_ATTEMPTS = 8
"""How many names the server tries for one `generateName` (`createWithGenerateNameRetry`)."""

_actor: ContextVar[str] = ContextVar("actor", default="")


class ApiServer:
    """Every verb is complete when it returns: nothing here waits. A `StatusError` is the real server's error answer.

    Returned and reported bodies are the stored ones: never change them. A body or patch passed to the server belongs to
    the server from then on.
    """

    def __init__(self, kinds: Iterable[ServedKind], *, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._store = Store(kinds)
        self._mutators: dict[Resource, Callable[[Body], Body]] = {}
        self._no_dry_runs: set[Resource] = set()

    @property
    def revision(self) -> int:
        """The newest resourceVersion."""
        return self._store.revision

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        """Attribute the writes in this context to `actor`: a component (`job-controller`) or a controller process.

        The attribution holds for the current task, also across its waits, and for tasks that it starts meanwhile. So a
        task that another's change wakes must set its own actor before it writes.
        """
        token = _actor.set(actor)
        try:
            yield
        finally:
            _actor.reset(token)

    # Reads by the models, which cost no request.

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Body | None:
        """The object, or None if it does not exist."""
        record = self._table(resource).records.get((namespace or "", name))
        return None if record is None else record.body

    def objects(self, resource: Resource, namespace: str | None = None) -> Iterable[Body]:
        """The objects in order of creation. The caller may write while it iterates."""
        records = self._table(resource).records
        if namespace is None:
            return [record.body for record in records.values()]
        return [record.body for key, record in records.items() if key[0] == namespace]

    def dependants(self, uid: str) -> Iterable[Body]:
        """The objects of all kinds that have an owner reference to `uid`, in order of creation."""
        return self._store.dependants(uid)

    def resource_of(self, body: Body) -> Resource:
        """The resource for the body's apiVersion and kind."""
        resource = self._store.resource_of(body.get("apiVersion", ""), body.get("kind", ""))
        if resource is None:
            raise not_served()
        return resource

    def subscribe(self, callback: Callable[[ObjectChange], None], *resources: Resource) -> None:
        """Call `callback` with each change, synchronously and in order. No resources: all kinds. It must not write."""
        self._store.subscribe(callback, resources)

    def mutate_new(self, resource: Resource, mutated: Callable[[Body], Body]) -> None:
        """Pass each new object of that kind through `mutated`, as through a mutating admission policy. `mutated` gets
        the object that was sent, with the namespace set, and must not change any part of it in place."""
        assert resource not in self._mutators, "one for each kind"
        self._mutators[resource] = mutated

    def forbid_dry_runs(self, resource: Resource) -> None:
        """Answer 403 to each dry run of a create of that kind, as if the client had no permission to create it."""
        self._no_dry_runs.add(resource)

    # The verbs.

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Body:
        return self._record(self._table(resource), (namespace or "", name)).body

    def list(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        limit: int | None = None,
        continue_token: str = "",
    ) -> Body:
        """A List. A continue token reads at the revision of its first page. If that is compacted the answer is 410."""
        return listed(
            self._store,
            self._table(resource),
            selector(resource, namespace, label_selector, field_selector),
            resource_version=resource_version,
            limit=limit,
            continue_token=continue_token,
        )

    def watch(
        self,
        resource: Resource,
        *,
        namespace: str | None = None,
        label_selector: str = "",
        field_selector: str = "",
        resource_version: str | None = None,
        send_initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncGenerator[bytes, None]:
        """The lines of a watch. An object that begins or ceases to match the selectors is ADDED or DELETED."""
        wanted = resource_version or ""
        objects_first = wanted in ("", ANY_REVISION) or send_initial_events
        return watch(
            self._store,
            self._table(resource),
            selector(resource, namespace, label_selector, field_selector),
            after=None if objects_first else revision_of(wanted),
            marks_initial_end=send_initial_events or not wanted,
            timeout_seconds=timeout_seconds,
        )

    def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Body:
        """POST. The body then belongs to the server. `pods/binding` and `pods/eviction` are creates with a name.

        `dry_run`: returns the object as it would be stored, without a new resourceVersion. Not for subresources.
        """
        table = self._table(resource)
        if dry_run and resource in self._no_dry_runs:
            raise may_not_create(resource, namespace, _actor.get())
        if subresource:
            assert not dry_run, "no dry run of a subresource is modelled"
            return self._create_below(table, (namespace or "", name or ""), subresource, body)
        metadata = body["metadata"] = dict(body.get("metadata") or {})
        self._place(table, metadata, namespace)
        if metadata.get("resourceVersion"):
            raise internal_error("resourceVersion should not be set on objects to be created")
        key = (metadata.get("namespace", ""), self._name(table, metadata))
        for field in ("deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields"):
            metadata.pop(field, None)
        metadata["uid"] = uid_of(self._store.made + 1)
        metadata["creationTimestamp"] = timestamp(self._clock.now())
        if table.kind.counts_generation:
            metadata["generation"] = 1
        drop_empty(metadata)
        body["apiVersion"], body["kind"] = resource.api_version, resource.kind
        if resource in self._mutators:
            body = self._mutators[resource](body)
        if table.kind.has_status and resource != NODES:  # a kubelet registers its node with a status
            body.pop("status", None)
        if table.fills_in:
            body = copied(body)  # the client may still share parts of it with other objects
            table.kind.default(body, None)
        self._check(table, body, None)
        if key in table.records:
            deleting = "deletionTimestamp" in table.records[key].body["metadata"]
            raise already_exists(resource, key[1], deleting=deleting)
        if dry_run:
            return body
        if table.kind.tracks_managers:
            self._note_manager(body, None, "")
        self._store.add(table, body, _actor.get())
        return body

    def replace(self, resource: Resource, body: Body, *, namespace: str | None = None, subresource: str = "") -> Body:
        """PUT. If the metadata have a resourceVersion that is not the current one, the answer is 409."""
        table = self._table(resource)
        body = {**body, "metadata": dict(body.get("metadata") or {})}
        metadata = body["metadata"]
        self._place(table, metadata, namespace)
        name = metadata.get("name", "")
        record = self._record(table, (metadata.get("namespace", ""), name))
        uid = record.body["metadata"]["uid"]
        if metadata.get("uid") not in (None, "", uid):
            why = f"Precondition failed: UID in precondition: {metadata['uid']}, UID in object meta: {uid}"
            raise conflict(resource, name, why)
        return self._update(table, record, body, subresource)

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
        dry_run: bool = False,
    ) -> Body:
        """PATCH. `dry_run`: returns the object as it would be stored, without a new resourceVersion."""
        table = self._table(resource)
        record = self._record(table, (namespace or "", name))
        if kind is PatchKind.STRATEGIC and not built_in(resource):
            raise unsupported_patch(kind)
        return self._update(table, record, patched(record.body, patch, kind), subresource, dry_run=dry_run)

    def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str | None = None,
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
        grace_seconds: int | None = None,
    ) -> Body:
        """DELETE. Returns the object if it still exists, the last state of a removed pod, else a Success Status."""
        table = self._table(resource)
        key = (namespace or "", name)
        self._check_preconditions(resource, self._record(table, key).body, uid, resource_version)
        return self._delete(table, key, propagation=propagation, grace_seconds=grace_seconds)

    # Only for tests and faults.

    def compact(self, revision: int | None = None) -> None:
        """Forget the history before that revision (None: before now). Requests for it are answered with 410."""
        self._store.compact(self._store.revision if revision is None else revision)

    # Internals.

    def _table(self, resource: Resource) -> ResourceTable:
        table = self._store.tables.get(resource)
        if table is None:
            raise not_served()
        return table

    @staticmethod
    def _record(table: ResourceTable, key: Key) -> Record:
        record = table.records.get(key)
        if record is None:
            raise not_found(table.resource, key[1])
        return record

    @staticmethod
    def _place(table: ResourceTable, metadata: Body, namespace: str | None) -> None:
        """Set the object's namespace: its own, which must match the request's, or else the request's."""
        if not table.resource.namespaced:
            metadata.pop("namespace", None)
            return
        given = metadata.get("namespace") or namespace
        if not given:
            raise bad_request("an empty namespace may not be set during creation")
        metadata["namespace"] = given
        if given != (namespace or given):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")

    def _name(self, table: ResourceTable, metadata: Body) -> str:
        """The object's name, generated if only `generateName` is set. Raises 422 if it has neither."""
        prefix = metadata.get("generateName")
        if not metadata.get("name") and prefix:
            for _ in range(_GENERATED_NAME_ATTEMPTS):
                metadata["name"] = generated_name(prefix, self._entropy)
                if (metadata.get("namespace", ""), metadata["name"]) not in table.records:
                    break
        name = metadata.get("name", "")
        assert isinstance(name, str)
        if not name:
            cause = FieldCause(
                "metadata.name", "Required value: name or generateName is required", "FieldValueRequired"
            )
            raise invalid(table.resource, "", [cause])
        return name

    @staticmethod
    def _check_preconditions(resource: Resource, body: Body, uid: str | None, resource_version: str | None) -> None:
        """Check the preconditions of a delete."""
        metadata = body["metadata"]
        if uid not in (None, metadata["uid"]):
            why = f"the UID in the precondition ({uid}) does not match the UID in record ({metadata['uid']})"
            after = "The object might have been deleted and then recreated"
            raise precondition_failed(resource, metadata["name"], f"{why}. {after}")
        found = metadata["resourceVersion"]
        if resource_version not in (None, found):
            why = f"the ResourceVersion in the precondition ({resource_version}) does not match the ResourceVersion"
            after = "The object might have been modified"
            raise precondition_failed(resource, metadata["name"], f"{why} in record ({found}). {after}")

    def _delete(
        self, table: ResourceTable, key: Key, *, propagation: Propagation | None, grace_seconds: int | None
    ) -> Body:
        body = table.records[key].body
        outcome = deleted(
            table.resource, body, propagation=propagation, grace_seconds=grace_seconds, now=self._clock.now()
        )
        if outcome.metadata is not None and outcome.metadata != body["metadata"]:
            body = {**body, "metadata": outcome.metadata}
            self._store.change(table, body, _actor.get())
        if not outcome.removed:
            return body
        gone = self._store.remove(table, key, _actor.get())
        return gone if table.resource == PODS else _success(table.resource, gone["metadata"])

    def _update(
        self, table: ResourceTable, record: Record, body: Body, subresource: str, *, dry_run: bool = False
    ) -> Body:
        """Update the stored object to `body`, as far as that is allowed. `body` may share parts with it."""
        before = record.body
        if body is before:
            return before
        of_status = subresource == "status"
        if subresource and not (of_status and table.kind.has_status):
            raise not_served()
        self._check_identity(table.resource, body.get("metadata"), before["metadata"], of_status=of_status)
        after = _with_status(table, before, body) if of_status else _with_content(table, before, body)
        if after == before:
            return before
        old = before["metadata"]
        self._check_finalizers(table.resource, after["metadata"], old)
        self._check(table, after, before)
        metadata = after["metadata"] = dict(after["metadata"])
        if table.kind.counts_generation and _content_differs(after, before, table.kind):
            metadata["generation"] = old.get("generation", 0) + 1
        if table.kind.tracks_managers:
            self._note_manager(after, before, subresource)
        if dry_run:
            return after
        ended = "deletionTimestamp" in old and not old.get("deletionGracePeriodSeconds")
        if ended and not metadata.get("finalizers"):
            self._store.remove(table, (old.get("namespace", ""), old["name"]), _actor.get())
        else:
            self._store.change(table, after, _actor.get())
        return after

    @staticmethod
    def _check_identity(resource: Resource, metadata: object, old: Body, *, of_status: bool) -> None:
        """Check the write's name, namespace, UID and resourceVersion, if given, against the stored object's."""
        if metadata is old:
            return
        if not isinstance(metadata, dict):
            raise bad_request("metadata: an object is expected")
        name = old["name"]
        if metadata.get("name", name) != name:
            raise bad_request(
                f"the name of the object ({metadata['name']}) does not match the name on the URL ({name})"
            )
        if metadata.get("namespace", old.get("namespace")) != old.get("namespace"):
            raise bad_request("the namespace of the provided object does not match the namespace sent on the request")
        version = metadata.get("resourceVersion")
        if not version:
            if resource == LEASES or not built_in(resource):  # `AllowUnconditionalUpdate`
                cause = FieldCause("metadata.resourceVersion", "Invalid value: 0: must be specified for an update")
                raise invalid(resource, name, [cause])
        elif version != old["resourceVersion"]:
            if not str(version).isdecimal():
                raise internal_error(f'strconv.ParseUint: parsing "{version}": invalid syntax')
            raise conflict(resource, name)
        uid = metadata.get("uid") or old["uid"]
        if uid != old["uid"] and (built_in(resource) or not of_status):
            cause = FieldCause("metadata.uid", f'Invalid value: "{uid}": field is immutable')
            raise invalid(resource, name, [cause])

    @staticmethod
    def _check_finalizers(resource: Resource, metadata: Body, old: Body) -> None:
        """An object that is being deleted may only lose finalizers."""
        finalizers = metadata.get("finalizers")
        if "deletionTimestamp" not in old or finalizers is old.get("finalizers"):
            return
        added = sorted(set(finalizers or ()) - set(old.get("finalizers", ())))
        if added:
            names = ", ".join(f'"{name}"' for name in added)
            why = "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers"
            cause = FieldCause("metadata.finalizers", f"{why} []string{{{names}}}", "FieldValueForbidden")
            raise invalid(resource, old["name"], [cause])

    @staticmethod
    def _check(table: ResourceTable, body: Body, before: Body | None) -> None:
        causes = list(table.kind.validate(body, before))
        if causes:
            raise invalid(table.resource, body["metadata"]["name"], causes)

    def _note_manager(self, body: Body, before: Body | None, subresource: str) -> None:
        body["metadata"]["managedFields"] = managed_fields(
            body, before, manager=_actor.get(), subresource=subresource, at=timestamp(self._clock.now())
        )

    def _create_below(self, table: ResourceTable, key: Key, subresource: str, body: Body) -> Body:
        """A create on a subresource of an object."""
        if table.resource != PODS or subresource not in {"binding", "eviction"}:
            raise not_served()
        pod = self._record(table, key).body
        now = timestamp(self._clock.now())
        if subresource == "binding":
            self._store.change(table, bound(pod, body, now), _actor.get())
            return _success(PODS, pod["metadata"])
        options = body.get("deleteOptions") or {}
        preconditions = options.get("preconditions") or {}
        self._check_preconditions(PODS, pod, preconditions.get("uid"), preconditions.get("resourceVersion"))
        marked = marked_for_eviction(pod, now)
        if marked["status"] != pod.get("status"):
            self._store.change(table, marked, _actor.get())
        self._delete(table, key, propagation=None, grace_seconds=options.get("gracePeriodSeconds"))
        return _success(PODS, pod["metadata"])


def _with_content(table: ResourceTable, before: Body, body: Body) -> Body:
    """The object with defaults after a write of everything but its status."""
    after = {**body, "apiVersion": before["apiVersion"], "kind": before["kind"]}
    if table.kind.has_status:
        if "status" in before:
            after["status"] = before["status"]
        else:
            after.pop("status", None)
    if body["metadata"] is not before["metadata"]:
        after["metadata"] = settled(body["metadata"], before["metadata"])
    if table.fills_in and _content_differs(after, before, table.kind):
        # The changed fields may still share parts with the stored object.
        changed = [name for name, part in after.items() if part is not before.get(name)]
        after |= {name: copied(after[name]) for name in (*changed, "metadata")}
        table.kind.default(after, before)
    return after


def _with_status(table: ResourceTable, before: Body, body: Body) -> Body:
    """The object after a write of its status. Built-in kinds also accept metadata there, except ownerReferences."""
    after, metadata = dict(before), before["metadata"]
    if built_in(table.resource) and body["metadata"] is not metadata:
        owners = metadata.get("ownerReferences")
        after["metadata"] = settled({**body["metadata"], "ownerReferences": owners}, metadata)
    if "status" in body:
        after["status"] = body["status"]
    else:
        after.pop("status", None)
    if table.kind.completes_status:
        table.kind.default(after, before)
    return after


def _content_differs(after: Body, before: Body, kind: ServedKind) -> bool:
    """Whether anything other than metadata and status differs."""
    apart = {"metadata", "status"} if kind.has_status else {"metadata"}
    if after.keys() - apart != before.keys() - apart:
        return True
    return any(name not in apart and part is not before[name] and part != before[name] for name, part in after.items())


def _success(resource: Resource, metadata: Body) -> Body:
    """The Status for a removed object, or for a write to a subresource without an object of its own."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": {"name": metadata["name"], "kind": resource.plural, "uid": metadata["uid"]},
    }
