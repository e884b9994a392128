"""The birth settings of a namespace, read from the API server when a Job is created in it.

There is no cache, because a restart follows right after its settings were entered. There is no waiting either: if the
settings do not arrive in time, the Job is created as its template says. The controller notices that by a dry run or
from the Job.

Jobs that are created at the same time share a list, so that a JobSet with many Jobs costs few lists.
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
"""Well below the webhook's timeoutSeconds (manifests/admission/birth-settings): a late answer is ignored."""
LISTS_PER_SECOND_MAX = 100.0
"""Also the largest burst. A namespace has one list at a time, so only Jobs in many namespaces, or forged reviews, need
more."""

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
    """The birth settings of the cluster."""

    def __init__(self, client: ApiClient, clock: Clock) -> None:
        self._client = client
        complaint = "too many Jobs at once: some are created without their settings at birth"
        self._limit = ReadLimit(clock, LISTS_PER_SECOND_MAX, complaint)
        self._namespaces: dict[str, _NamespaceLists] = {}
        """The namespaces in which Jobs are being created now."""

    async def of_namespace(self, namespace: str) -> _Settings:
        """The settings as they are at this call or later. Empty: there are none, or they cannot be read."""
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
        """Settings from a list that began after this call. An earlier one may lack those of this Job."""
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
