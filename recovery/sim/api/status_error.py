"""A failure that the API server answers with."""

from dataclasses import dataclass


@dataclass(frozen=True)
class FieldCause:
    """Why a field was not accepted. `reason` is one of FieldValueInvalid, FieldValueRequired, FieldValueForbidden, …"""

    field: str
    message: str
    reason: str = "FieldValueInvalid"


class StatusError(Exception):
    """A Failure `metav1.Status`. `code` and `reason` are those of the real server (409 Conflict, …)."""

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
        """`kind` and `name`: the object in the details, as the real server names it (`kind` is mostly a plural)."""
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.kind = kind
        self.name = name
        self.causes = causes
        self.retry_after_seconds = retry_after_seconds
