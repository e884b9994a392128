"""The settings at birth of a namespace, read from the API server at the moment when a Job is created in it.

No cache: a restart comes right after its settings were entered. And no waiting: what is not had in time does not hold
the Job up, which is then created as its template says. The controller sees that, by a dry run or by the Job.

Jobs that are created at once share a list, so that a JobSet of many Jobs costs few.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import structlog

from recovery import api_verbs
from recovery.admission.read_limit import ReadLimit
from recovery.core.model.annotations import BIRTH_SETTINGS_LABEL, BIRTH_SETTINGS_LABELLED
from recovery.ports import RECOVERY_GROUPS, ApiClient, ApiError, Clock

READ_SECONDS_MAX = 1.5
"""Well below the webhook's timeoutSeconds (manifests/admission/birth-settings): an answer that comes late is none."""
LISTS_PER_SECOND_MAX = 100.0
"""And as many at once. One namespace has one list at a time, so this takes Jobs in many of them, or a forger."""

_log = structlog.get_logger("recovery.admission")

_Settings = Sequence[dict[str, Any]]
"""`status.birthSettings` of each group that has some."""


class _Status(msgspec.Struct, frozen=True, rename="camel"):
    birth_settings: dict[str, Any] | None = None


class _Group(msgspec.Struct, frozen=True):
    status: _Status = _Status()


class _Groups(msgspec.Struct, frozen=True):
    items: tuple[_Group, ...] = ()


_decode = msgspec.json.Decoder(_Groups).decode


class _NamespaceLists:
    """The lists of one namespace, one after the other."""

    def __init__(self) -> None:
        self.turn = asyncio.Lock()
        self.askers = 0
        self.begun = 0
        self.found_by = 0
        """The newest list that succeeded, by its number."""
        self.settings: _Settings = ()
        """What that list found."""


class SettingsAtBirth:
    """Those of the cluster."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        complaint = "too many Jobs at once: some are created without their settings at birth"
        self._limit = ReadLimit(clock, LISTS_PER_SECOND_MAX, complaint)
        self._namespaces: dict[str, _NamespaceLists] = {}
        """Those in which Jobs are being created now."""

    async def of_namespace(self, namespace: str) -> _Settings:
        """As they are now, or were after this call. Empty: there are none, or they cannot be read."""
        lists = self._namespaces.setdefault(namespace, _NamespaceLists())
        lists.askers += 1
        try:
            async with asyncio.timeout(READ_SECONDS_MAX):
                return await self._newest(namespace, lists)
        except (ApiError, TimeoutError) as error:
            _log.warning(
                "the settings at birth could not be read: a Job is created as its template says",
                namespace=namespace,
                error=str(error) or "no answer in time",
            )
            return ()
        finally:
            lists.askers -= 1
            if not lists.askers:
                del self._namespaces[namespace]

    async def _newest(self, namespace: str, lists: _NamespaceLists) -> _Settings:
        """A list that has begun before may have missed what its Job is created for."""
        before = lists.begun
        async with lists.turn:
            if lists.found_by > before:
                return lists.settings
            if not self._limit.allows():
                return ()
            lists.begun += 1
            label = f"{BIRTH_SETTINGS_LABEL}={BIRTH_SETTINGS_LABELLED}"
            raw = await api_verbs.list_page(self._client, RECOVERY_GROUPS, namespace=namespace, label_selector=label)
            found = (group.status.birth_settings for group in _decode(raw).items)
            lists.settings = [settings for settings in found if settings is not None]
            lists.found_by = lists.begun
            return lists.settings
