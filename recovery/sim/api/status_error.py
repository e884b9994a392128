"""A failure as the API server answers it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldCause:
    """Why a field was not accepted. `reason` is one of FieldValueInvalid, FieldValueRequired, FieldValueForbidden, …"""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A `metav1.Status` of Failure. `code` and `reason` as the real server gives them (409 Conflict, …)."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: str = "",
        name: str = "",
        causes: tuple[FieldCause, ...] = (),
        retry_after_seconds: int | None = None,
    ) -> None:
        """`kind` and `name`: details of the object that it is about, as the server fills them (plural for most)."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.kind = kind
        self.name = name
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
