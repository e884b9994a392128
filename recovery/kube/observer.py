"""Protocols by which `kube` reports on its work, for metrics and logs.

With Protocols, telemetry need not import `kube`, and `kube` counts nothing itself. Observers are called from the hot
path: they must not block and must not raise.
"""

from typing import Protocol

from recovery.ports import WatchEnd


class RequestObserver(Protocol):
    """Notified of every exchange with the API server. Each try of a retried request counts as one."""

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None:
        """`resource` is the plural, with `/subresource` if there is one. `code` is the HTTP status, or `timeout` or
        `connection` where no answer came. For a watch, `seconds` ends with the response's headers.
        """
        ...


class InformerObserver(Protocol):
    """Notified of the life of every watch. `resource` is the plural."""

    def watch_event(self, resource: str) -> None:
        """A line arrived: the stream is alive."""
        ...

    def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None:
        """A stream ended before its time limit, or could not be opened; `message` is one sentence.

        A lasting refusal (the CRD is gone, the role was taken away) is reported once, not at every try.
        """
        ...

    def listed(self, resource: str, objects: int) -> None:
        """A complete list replaced the known objects."""
        ...

    def undecodable(self, resource: str, name: str, message: str) -> None:
        """An object (`namespace/name`) cannot be read: reported once, and again when the problem changes."""
        ...


class NoObserver:
    """Both Protocols, for tools that measure nothing."""

    def request_finished(self, verb: str, resource: str, code: str, seconds: float) -> None: ...

    def watch_event(self, resource: str) -> None: ...

    def watch_restarted(self, resource: str, reason: WatchEnd, message: str) -> None: ...

    def listed(self, resource: str, objects: int) -> None: ...

    def undecodable(self, resource: str, name: str, message: str) -> None: ...
