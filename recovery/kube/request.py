"""One request to the API server as data: what is sent, and how errors name it."""

from collections.abc import Mapping
from urllib.parse import quote, urlencode

import msgspec

from recovery.ports import Resource

_METHODS = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}


class ApiRequest(msgspec.Struct, frozen=True):
    """A REST verb on a resource. `str()` reads like kubectl: `patch recoverygroups/status team-a/llm`."""

    verb: str
    resource: Resource
    namespace: str | None = None
    name: str | None = None
    subresource: str = ""
    query: Mapping[str, str | int] = {}
    body: bytes | None = None
    content_type: str = "application/json"
    tests: bool = False
    """The body is a JSON patch with a `test` operation."""

    def __str__(self) -> str:
        where = "/".join(part for part in (self.namespace, self.name) if part)
        return f"{self.verb} {self.target} {where}".rstrip()

    @property
    def target(self) -> str:
        """The plural, with the subresource if there is one."""
        return f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.plural

    @property
    def method(self) -> str:
        return _METHODS[self.verb]

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    def url(self, server: str) -> str:
        """Already encoded. Names come from users too (annotations, command lines), so nothing in them is trusted."""
        path = self.resource.path(_quoted(self.namespace), _quoted(self.name), self.subresource)
        return f"{server}{path}?{urlencode(self.query)}" if self.query else f"{server}{path}"


def _quoted(segment: str | None) -> str | None:
    return None if segment is None else quote(segment, safe="")
