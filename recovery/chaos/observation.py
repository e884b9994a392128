"""What the engine sees while a repeat runs: the incidents of the job, those of others, and what stops a run."""

from collections.abc import Sequence

import msgspec

from recovery import api_verbs
from recovery.core.model.config import CONFIG_NAME, ConfigFacts
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident, Ledger, Phase
from recovery.core.model.ledger_object import LedgerObject
from recovery.core.policy.spec import Mode
from recovery.decoding import decoded
from recovery.kube.cluster_reader import read_all
from recovery.kube.incident_records import read_incident
from recovery.kube.projections.recovery import decode_config, decode_recovery_group
from recovery.ports import RECOVERY_CONFIGS, RECOVERY_GROUPS, ApiClient, ForbiddenError, NotFoundError


class Observation(msgspec.Struct, frozen=True):
    """The ledgers and the RecoveryConfig at one moment."""

    groups: tuple[LedgerObject, ...]
    config: ConfigFacts | None

    def ledger_of(self, workload_uid: str) -> Ledger:
        """The ledger of the workload. Empty: there is none, or it cannot be read."""
        found = next((each for each in self.groups if each.workload_uid == workload_uid), None)
        return found.ledger if found is not None and found.readable else Ledger()

    def elsewhere(self, workload_uid: str) -> dict[str, str]:
        """The incidents of other jobs that the controller recovers now: by id, the job."""
        return {
            open_.id: f"{group.namespace}/{group.group}"
            for group in self.groups
            if group.workload_uid != workload_uid and group.readable and group.ledger.phase is not Phase.HEALTHY
            if (open_ := open_incident(group.ledger)) is not None and open_.mode == Mode.ENFORCE
        }


def open_incident(ledger: Ledger) -> Incident | None:
    """None: no incident is open."""
    found = ledger.incident
    return found if found is not None and found.closing is None else None


class Observer:
    """Reads all namespaces, or that of the job where the person may not read the others."""

    def __init__(self, api: ApiClient, key: GroupKey) -> None:
        self._api = api
        self._key = key
        self._scope: str | None = None

    async def look(self) -> Observation:
        """Raises ApiError."""
        try:
            listed = await read_all(self._api, RECOVERY_GROUPS, self._scope, decode_recovery_group)
        except ForbiddenError:
            if self._scope is not None:
                raise
            self._scope = self._key.namespace
            return await self.look()
        return Observation(tuple(entry.value for entry in listed.entries), await self._config())

    async def _config(self) -> ConfigFacts | None:
        try:
            body = await api_verbs.get(self._api, RECOVERY_CONFIGS, CONFIG_NAME)
        except (NotFoundError, ForbiddenError):
            return None
        return decoded(RECOVERY_CONFIGS, decode_config, body).value


class IncidentsOfRepeat:
    """The incidents of the job that began while a repeat ran, those of the drill and others."""

    def __init__(self, api: ApiClient, key: GroupKey, workload_uid: str, before: Ledger) -> None:
        """`before`: the ledger when the repeat began."""
        self._api = api
        self._key = key
        self._workload_uid = workload_uid
        self._before = {each.id for each in before.history}
        if before.incident is not None:
            self._before.add(before.incident.id)
        self._found: dict[str, Incident] = {}

    async def see(self, seen: Observation) -> Sequence[Incident]:
        """All of them, oldest first. A closed one leaves the ledger; then its record is read, once. Raises ApiError."""
        ledger = seen.ledger_of(self._workload_uid)
        present = ledger.incident
        if present is not None and present.id not in self._before:
            self._found[present.id] = present
        for closed in ledger.history:
            known = self._found.get(closed.id)
            if closed.id in self._before or (known is not None and known.closing is not None):
                continue
            recorded = await read_incident(self._api, self._key, closed.id)
            if recorded is not None:
                self._found[closed.id] = recorded
        return sorted(self._found.values(), key=lambda each: each.number)
