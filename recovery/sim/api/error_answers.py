"""The server's error answers, in the words of the real API server (apimachinery `errors`)."""

from collections.abc import Sequence

from recovery.ports import Resource
from recovery.sim.api.status_error import FieldCause, StatusError

MODIFIED_MEANWHILE = "the object has been modified; please apply your changes to the latest version and try again"


def qualified(resource: Resource) -> str:
    """The plural with its group, such as `jobs.batch`, or `pods` in the core group."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def not_found(resource: Resource, name: str) -> StatusError:
    message = f'{qualified(resource)} "{name}" not found'
    return StatusError(404, "NotFound", message, kind=resource.plural, name=name)


def not_served() -> StatusError:
    """The answer for an unknown resource or subresource. It names no object."""
    return StatusError(404, "NotFound", "the server could not find the requested resource")


def already_exists(resource: Resource, name: str, *, deleting: bool) -> StatusError:
    message = f'{qualified(resource)} "{name}" already exists'
    if deleting:
        message = f"object is being deleted: {message}"
    return StatusError(409, "AlreadyExists", message, kind=resource.plural, name=name)


def conflict(resource: Resource, name: str, why: str = MODIFIED_MEANWHILE) -> StatusError:
    message = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return StatusError(409, "Conflict", message, kind=resource.plural, name=name)


def precondition_failed(resource: Resource, name: str, why: str) -> StatusError:
    """A failed precondition of a delete. Here the real server names the kind, not the plural."""
    qualified_kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    message = f'Operation cannot be fulfilled on {qualified_kind} "{name}": {why}'
    return StatusError(409, "Conflict", message, kind=resource.kind, name=name)


def invalid(resource: Resource, name: str, causes: Sequence[FieldCause]) -> StatusError:
    """The object that a write would store is invalid. The details name the kind, not the plural."""
    qualified_kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    found = ", ".join(f"{cause.field}: {cause.message}" for cause in causes)
    if len(causes) > 1:
        found = f"[{found}]"
    message = f'{qualified_kind} "{name}" is invalid: {found}'
    return StatusError(422, "Invalid", message, kind=resource.kind, name=name, causes=tuple(causes))


def may_not_create(resource: Resource, namespace: str | None, user: str) -> StatusError:
    """No role of the user allows the create."""
    what = f'cannot create resource "{resource.plural}" in API group "{resource.group}" in the namespace "{namespace}"'
    message = f'{qualified(resource)} is forbidden: User "{user}" {what}'
    return StatusError(403, "Forbidden", message, kind=resource.plural)


def patch_failed() -> StatusError:
    """A JSON patch that does not apply. As in the real server, the message names neither operation nor path."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request")


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def unsupported_patch(content_type: str) -> StatusError:
    message = f"the body of the request was in an unknown format - {content_type} is not accepted"
    return StatusError(415, "UnsupportedMediaType", message)


def internal_error(message: str) -> StatusError:
    """An error in the request that the real server reports as an internal error."""
    return StatusError(500, "", message)


def expired(message: str) -> StatusError:
    """The request needs history that the server no longer has."""
    return StatusError(410, "Expired", message)


def ahead_of_time(revision: int, newest: int) -> StatusError:
    """A read at a resourceVersion that does not exist yet."""
    return StatusError(
        504,
        "Timeout",
        f"Timeout: Too large resource version: {revision}, current: {newest}",
        causes=(FieldCause("", "Too large resource version", "ResourceVersionTooLarge"),),
        retry_after_seconds=1,
    )
