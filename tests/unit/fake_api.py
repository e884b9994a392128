"""The API server of unit tests: it records requests, fails where a test says so, and answers everything else.

`FakeApi` has no answers of its own: a subclass gives them. `ObjectsApi` keeps plain objects. Tests that need the rules
of the real API server use the modelled one, `recovery.sim.api`.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import msgspec

from recovery.kube.informer import INITIAL_EVENTS_END
from recovery.ports import ApiRequest, ForbiddenError, NoSuchResourceError, NotFoundError, PatchKind, Resource
from recovery.sim.api.client import error_from
from recovery.sim.api.patches import patched
from recovery.sim.api.status_error import StatusError

Object = dict[str, Any]


class Sent(msgspec.Struct, frozen=True):
    """One request as the server reads it, with its body decoded. The body of a delete is its options."""

    verb: str
    resource: Resource
    name: str
    """For a create the name in the body; empty for a list."""
    namespace: str | None
    body: Any = None
    subresource: str = ""
    kind: PatchKind | None = None
    uid: str | None = None
    resource_version: str | None = None
    propagation: str | None = None
    grace_seconds: int | None = None

    def __str__(self) -> str:
        return f"{self.verb} {self.resource.kind}"

    @property
    def writes(self) -> bool:
        return self.verb not in {"get", "list"}


def sent(request: ApiRequest) -> Sent:
    body: Any = None if request.body is None else json.loads(request.body)
    if request.verb == "delete":
        wanted = body["preconditions"]
        return Sent(
            request.verb,
            request.resource,
            request.name or "",
            request.namespace,
            uid=wanted.get("uid"),
            resource_version=wanted.get("resourceVersion"),
            propagation=body.get("propagationPolicy"),
            grace_seconds=body.get("gracePeriodSeconds"),
        )
    name = request.name or (body.get("metadata", {}).get("name", "") if request.verb == "create" else "")
    kind = PatchKind(request.content_type) if request.verb == "patch" else None
    return Sent(request.verb, request.resource, name, request.namespace, body, request.subresource, kind)


class Script(msgspec.Struct):
    """What happens to the next `times` requests: they fail, applied or not, or something else happens first."""

    verb: str
    resource: Resource
    error: Exception | None
    applied: bool
    meanwhile: Callable[[], object] | None
    name: str | None
    """None: any name."""
    times: int


class FakeApi:
    """`ports.ApiClient` that records every request and answers as scripted. Subclasses answer unscripted requests."""

    def __init__(self) -> None:
        self.requests: list[Sent] = []
        """In the order in which they were sent."""
        self._scripts: list[Script] = []

    # Called by tests.

    def next(
        self,
        verb: str,
        resource: Resource,
        error: Exception | None = None,
        *,
        applied: bool = False,
        meanwhile: Callable[[], object] | None = None,
        name: str | None = None,
        times: int = 1,
    ) -> None:
        """The next such requests fail with `error`; `meanwhile` happens before one of them is handled."""
        self._scripts.append(Script(verb, resource, error, applied, meanwhile, name, times))

    def sent(self, verb: str, resource: Resource) -> list[Sent]:
        return [request for request in self.requests if request.verb == verb and request.resource == resource]

    def plurals(self, verb: str) -> list[str]:
        """The resources of all requests with that verb, in order."""
        return [request.resource.plural for request in self.requests if request.verb == verb]

    @property
    def writes(self) -> list[Sent]:
        return [request for request in self.requests if request.writes]

    # The port.

    async def send(self, request: ApiRequest) -> bytes:
        noted = sent(request)
        self.requests.append(noted)
        script = self._script_for(noted)
        if script is None:
            return await self.answer(request)
        script.times -= 1
        if not script.times:
            self._scripts.remove(script)
        if script.meanwhile is not None:
            script.meanwhile()
        if script.error is None:
            return await self.answer(request)
        if script.applied:
            await self.answer(request)
        raise script.error

    def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        raise AssertionError(f"nobody expects it: {request}")

    # Implemented by subclasses.

    async def answer(self, request: ApiRequest) -> bytes:
        raise AssertionError(f"nobody expects it: {request}")

    def _script_for(self, request: Sent) -> Script | None:
        fitting = (
            script
            for script in self._scripts
            if script.verb == request.verb
            and script.resource == request.resource
            and script.name in {None, request.name}
        )
        return next(fitting, None)


class ObjectsApi(FakeApi):
    """Gets, lists, watches and patches the objects that a test puts there. A patch changes its object in place."""

    def __init__(self) -> None:
        super().__init__()
        self.objects: dict[str, list[Object]] = {}
        """By plural."""
        self.absent: set[str] = set()
        """Plurals of resources that are not installed."""
        self.denied: set[tuple[str, str]] = set()
        """Verb and plural, with `/subresource` if there is one."""
        self.page_size: int | None = None
        """The most objects in one page of a list. None: all."""
        self.applied: list[Sent] = []
        """The patches that changed an object, in this order."""
        self._version = 100
        self._watchers: list[tuple[str, asyncio.Queue[bytes]]] = []

    # Called by tests.

    def put(self, resource: Resource, *objects: Object) -> None:
        """Create the objects, or replace those of the same name. An object without a name gets one."""
        for found in objects:
            found["metadata"].setdefault("name", f"generated-{self._version}")
            known = self.find(resource.plural, *_key(found))
            if known is not None:
                self.objects[resource.plural].remove(known)
            self.objects.setdefault(resource.plural, []).append(found)
            self._changed(resource.plural, "ADDED" if known is None else "MODIFIED", found)

    def remove(self, plural: str, namespace: str, name: str) -> None:
        found = self.find(plural, namespace, name)
        assert found is not None, f"there is no {plural} {namespace}/{name}"
        self.objects[plural].remove(found)
        self._changed(plural, "DELETED", found)

    def find(self, plural: str, namespace: str, name: str) -> Object | None:
        """The object. None: there is none."""
        return next((found for found in self.objects.get(plural, []) if _key(found) == (namespace, name)), None)

    # The server.

    async def answer(self, request: ApiRequest) -> bytes:
        await asyncio.sleep(0)  # so that two writers can meet here
        if request.resource.plural in self.absent:
            raise NoSuchResourceError(f"{request}: 404 page not found", status=404)
        if (request.verb, request.target) in self.denied:
            raise ForbiddenError(f"{request.verb} {request.target}: forbidden", status=403)
        match request.verb:
            case "list":
                return self._page(request)
            case "get":
                return json.dumps(self._named(request)).encode()
            case "patch":
                return self._patched(request)
        return await super().answer(request)

    async def watch(self, request: ApiRequest) -> AsyncGenerator[bytes, None]:
        """Begin with the objects that exist."""
        plural, queue = request.resource.plural, asyncio.Queue[bytes]()
        for found in list(self.objects.get(plural, [])):
            yield _line("ADDED", found)
        end = {"metadata": {"resourceVersion": str(self._version), "annotations": {INITIAL_EVENTS_END: "true"}}}
        self._watchers.append((plural, queue))
        yield _line("BOOKMARK", end)
        while True:
            yield await queue.get()

    def _named(self, request: ApiRequest) -> Object:
        found = self.find(request.resource.plural, request.namespace or "", request.name or "")
        if found is None:
            raise NotFoundError(f"{request}: not found", status=404)
        return found

    def _page(self, request: ApiRequest) -> bytes:
        items = self.objects.get(request.resource.plural, [])
        if request.namespace is not None:
            items = [item for item in items if item["metadata"].get("namespace") == request.namespace]
        label, values = _selected(request.parameter("labelSelector"))
        if label:
            items = [item for item in items if item["metadata"].get("labels", {}).get(label) in values]
        field, _, value = request.parameter("fieldSelector").partition("=")
        if field == "metadata.name":
            items = [item for item in items if item["metadata"]["name"] == value]
        start = int(request.parameter("continue") or 0)
        end = start + (self.page_size or len(items))
        metadata = {"resourceVersion": str(self._version), "continue": str(end) if end < len(items) else ""}
        page = {"kind": f"{request.resource.kind}List", "metadata": metadata, "items": items[start:end]}
        return json.dumps(page).encode()

    def _patched(self, request: ApiRequest) -> bytes:
        patch, found = sent(request), self._named(request)
        assert patch.kind is not None
        try:
            changed = patched(found, patch.body, patch.kind)
        except StatusError as failure:
            raise error_from(request, failure) from failure
        assert changed["metadata"].get("uid") == found["metadata"].get("uid"), (
            "the patch names the object that it means"
        )
        untouched = found.keys() - {"status"} if request.subresource else ()
        assert all(changed[key] == found[key] for key in untouched), "a status is all that is written there"
        found.clear()
        found.update(changed)
        self.applied.append(patch)
        self._changed(request.resource.plural, "MODIFIED", found)
        return json.dumps(found).encode()

    def _changed(self, plural: str, kind: str, found: Object) -> None:
        self._version += 1
        found["metadata"] = {**found["metadata"], "resourceVersion": str(self._version)}
        found["metadata"].setdefault("uid", f"uid-{self._version}")
        for watched, queue in self._watchers:
            if watched == plural:
                queue.put_nowait(_line(kind, found))


def _key(found: Object) -> tuple[str, str]:
    """Namespace and name."""
    return found["metadata"].get("namespace", ""), found["metadata"]["name"]


def _line(kind: str, found: Object) -> bytes:
    return json.dumps({"type": kind, "object": found}).encode()


def _selected(label_selector: str) -> tuple[str, frozenset[str]]:
    """The parts of `label=value` or `label in (one,other)`. A label alone selects every object of the test."""
    label, _, listed = label_selector.partition(" in ")
    if listed:
        return label, frozenset(listed.strip("()").split(","))
    label, _, value = label_selector.partition("=")
    return (label, frozenset({value})) if value else ("", frozenset())
