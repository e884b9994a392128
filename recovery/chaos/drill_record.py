"""The RecoveryDrill of one run: created with the first pods, added to before each act, ended once."""

from datetime import datetime

from recovery import api_verbs
from recovery.chaos.tools import RunStoppedError, whole
from recovery.core.model.drill import DrillEnd, DrillFacts, DrillSpec, NamedPod
from recovery.core.model.facts import GroupKey
from recovery.core.model.reason import Reason
from recovery.decoding import decoded
from recovery.kube.projections.drills import decode_drill
from recovery.ports import (
    RECOVERY_DRILLS,
    AlreadyExistsError,
    ApiClient,
    Clock,
    Entropy,
    NotFoundError,
    PatchKind,
    ReadAgainError,
    TryLaterError,
    UnknownOutcomeError,
)

ACKNOWLEDGED_WITHIN_SECONDS = 30.0
ENDED_WITHIN_SECONDS = 60.0
_ACKNOWLEDGED_EVERY_SECONDS = 0.2
_TRIES_MAX = 6
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
"""As in generated names of Kubernetes: no vowels, so no words."""
_SUFFIX_LENGTH = 5
_MESSAGE_MAX = 1024


def drill_name(experiment: str, entropy: Entropy) -> str:
    """The experiment's name, with a suffix that makes it unique."""
    last = len(_SUFFIX_LETTERS) - 1
    drawn = (_SUFFIX_LETTERS[min(last, int(entropy.uniform(0, last + 1)))] for _ in range(_SUFFIX_LENGTH))
    return f"{experiment}-{''.join(drawn)}"


class DrillRecord:
    def __init__(self, api: ApiClient, clock: Clock, key: GroupKey, name: str) -> None:
        """`key`: the group that is drilled. The RecoveryDrill is in its namespace."""
        self._api = api
        self._clock = clock
        self._namespace = key.namespace
        self.name = name
        self.facts: DrillFacts | None = None
        """As last read. None: it does not exist yet, or has been deleted."""
        self.uid = ""
        """Empty: it did not exist when it was last read or written. It stays after the object has been deleted."""

    @property
    def named(self) -> int:
        """How many pods the spec has."""
        return len(self.facts.spec.pods) if self.facts is not None else 0

    def known(self) -> DrillFacts:
        """As last read. Raises RunStoppedError if it has been deleted."""
        if self.facts is None:
            raise RunStoppedError(Reason.DRILL_INTERRUPTED, f"RecoveryDrill {self._namespace}/{self.name} was deleted")
        return self.facts

    async def create(self, spec: DrillSpec) -> None:
        """Raises ApiError."""
        body = {
            "apiVersion": RECOVERY_DRILLS.api_version,
            "kind": RECOVERY_DRILLS.kind,
            "metadata": {"name": self.name, "namespace": self._namespace},
            "spec": spec,
        }
        try:
            self._saw(await whole(api_verbs.create(self._api, RECOVERY_DRILLS, body, namespace=self._namespace)))
        except (UnknownOutcomeError, AlreadyExistsError):
            # The name is random, so an object of that name with the same pods is the one that was just created.
            await self.read()
            if self.facts is None or self.facts.spec.pods != spec.pods:
                raise

    async def add(self, pods: tuple[NamedPod, ...]) -> None:
        """Add pods to the spec, each once, even if the outcome of a try is unknown. Raises ApiError."""
        for left in reversed(range(_TRIES_MAX)):
            facts = self.known()
            missing = [pod for pod in pods if pod not in facts.spec.pods]
            if not missing:
                return
            body = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": facts.resource_version},
                *({"op": "add", "path": "/spec/pods/-", "value": pod} for pod in missing),
            ]
            try:
                self._saw(await whole(self._patch(body, PatchKind.JSON)))
                return
            except ReadAgainError:
                if not left:
                    raise
                await self.read()

    async def acknowledged(self) -> None:
        """Wait until the controller has said that every pod of the spec counts. Raises RunStoppedError for a refusal,
        for an end that another client has written, and after `ACKNOWLEDGED_WITHIN_SECONDS`."""
        until = self._clock.monotonic_seconds() + ACKNOWLEDGED_WITHIN_SECONDS
        while True:
            facts = self.known()
            self.check()
            if facts.status.named >= len(facts.spec.pods):
                return
            if self._clock.monotonic_seconds() >= until:
                raise RunStoppedError(
                    Reason.DRILL_PRECONDITION,
                    f"the controller has not acknowledged the named pods within {ACKNOWLEDGED_WITHIN_SECONDS:g} s; is "
                    "its version older than this command, or is RecoveryDrill not installed?",
                )
            await self._clock.sleep(_ACKNOWLEDGED_EVERY_SECONDS)
            try:
                await self.read()
            except TryLaterError:
                continue

    def check(self) -> None:
        """Raises RunStoppedError if the controller has refused the drill, or another client has ended it."""
        facts = self.known()
        if facts.status.refusal is not None:
            raise RunStoppedError(facts.status.refusal.reason, facts.status.refusal.message)
        if facts.spec.end is not None:
            raise RunStoppedError(facts.spec.end.reason, facts.spec.end.message)

    async def end(self, reason: Reason, message: str, at: datetime) -> DrillEnd | None:
        """Write why the run is over, unless that is written already. Returns what stands there. None: the drill does
        not exist. Raises ApiError if that fails for `ENDED_WITHIN_SECONDS`."""
        until = self._clock.monotonic_seconds() + ENDED_WITHIN_SECONDS
        end = DrillEnd(at=at, reason=reason, message=message[:_MESSAGE_MAX])
        while True:
            try:
                await self.read()
                if self.facts is None or self.facts.spec.end is not None:
                    return None if self.facts is None else self.facts.spec.end
                self._saw(await whole(self._patch({"spec": {"end": end}}, PatchKind.MERGE)))
                return end
            except (TryLaterError, ReadAgainError):
                if self._clock.monotonic_seconds() >= until:
                    raise
                await self._clock.sleep(1.0)

    async def read(self) -> None:
        """Raises ApiError."""
        try:
            self._saw(await api_verbs.get(self._api, RECOVERY_DRILLS, self.name, namespace=self._namespace))
        except NotFoundError:
            self.facts = None

    def _saw(self, body: bytes) -> None:
        found = decoded(RECOVERY_DRILLS, decode_drill, body).value
        # Another drill of the name is not this one. The marks on nodes have the UID of this one.
        self.facts = found if self.uid in ("", found.uid) else None
        self.uid = self.uid or found.uid

    async def _patch(self, body: object, kind: PatchKind) -> bytes:
        return await api_verbs.patch(self._api, RECOVERY_DRILLS, self.name, body, kind=kind, namespace=self._namespace)
