"""The API server: verbs on objects, one revision after the other."""

from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

from recovery.ports import Clock, Entropy, PatchKind, Propagation, Resource
from recovery.sim.api.kinds.kind import Body, Kind


@dataclass(frozen=True, slots=True)
class Change:
    """One revision."""

    type: Literal["ADDED", "MODIFIED", "DELETED"]
    resource: Resource
    body: Body
    """The object after it; of a deletion the last state, with the deletion's own resourceVersion."""
    before: Body | None
    """The object before it; None: it is new."""
    revision: int
    actor: str
    """Who asked for it: the name given to `acting`."""


class ApiServer:
    """Every verb is done when it returns: nothing here waits. Raises `StatusError` as the real server answers.

    Bodies that it returns or tells of are stored ones: never change them.
    """

    def __init__(self, kinds: Iterable[Kind], *, clock: Clock, entropy: Entropy) -> None: ...

    @property
    def revision(self) -> int:
        """The newest resourceVersion given out."""
        raise NotImplementedError

    @contextmanager
    def acting(self, actor: str) -> Iterator[None]:
        """Writes within are `actor`'s: a component's name, such as `job-controller`, or of a controller process."""
        raise NotImplementedError

    # What models read, at no cost.

    def find(self, resource: Resource, name: str, namespace: str | None = None) -> Body | None:
        """None: there is none."""
        raise NotImplementedError

    def objects(self, resource: Resource, namespace: str | None = None) -> Iterable[Body]:
        """In the order in which they were made; safe to write while going through them."""
        raise NotImplementedError

    def dependants(self, uid: str) -> Iterable[Body]:
        """The objects that name `uid` among their owners, of all kinds, in the order in which they were made."""
        raise NotImplementedError

    def resource_of(self, body: Body) -> Resource:
        """By apiVersion and kind."""
        raise NotImplementedError

    def subscribe(self, told: Callable[[Change], None], *resources: Resource) -> None:
        """Call `told` with each change, at once and in order; no resources: of all kinds. It must not write."""
        raise NotImplementedError

    # The verbs.

    def get(self, resource: Resource, name: str, *, namespace: str | None = None) -> Body:
        raise NotImplementedError

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
        """A List. A page's continue token reads on at the page's own revision, until that is compacted: 410."""
        raise NotImplementedError

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
        """Lines as the wire has them. An object that begins or ceases to match the selectors is ADDED or DELETED."""
        raise NotImplementedError

    def create(
        self,
        resource: Resource,
        body: Body,
        *,
        namespace: str | None = None,
        name: str | None = None,
        subresource: str = "",
    ) -> Body:
        """The body becomes the server's. `pods/binding` and `pods/eviction` are creates with a name."""
        raise NotImplementedError

    def replace(self, resource: Resource, body: Body, *, namespace: str | None = None, subresource: str = "") -> Body:
        """PUT. With a resourceVersion in the metadata it is swapped against that one: 409."""
        raise NotImplementedError

    def patch(
        self,
        resource: Resource,
        name: str,
        patch: object,
        *,
        kind: PatchKind,
        namespace: str | None = None,
        subresource: str = "",
    ) -> Body:
        raise NotImplementedError

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
        raise NotImplementedError

    # What only a test or a fault does.

    def compact(self) -> None:
        """Forget the history: a watch or a page from before now is answered with 410."""
        raise NotImplementedError
