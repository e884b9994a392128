"""Records in the status of every policy since when it enforces (`core.policy.enforcement`).

The review is level-triggered and reads only the cache. A write tests the resourceVersion that it was decided on, and
any other writer would write the same. So a crash or a second leader does no harm.
"""

import structlog

from recovery.core.policy.resolved import PolicyFacts
from recovery.executors.policy_status import write_enforcement
from recovery.ports import (
    ApiClient,
    ApiError,
    Clock,
    ConflictError,
    ForbiddenError,
    GroupStore,
    NotFoundError,
    NotLeadingError,
)

_log = structlog.get_logger("recovery.controller")

REVIEW_SECONDS = 5.0
"""Between two reviews. Until the first write, an edit of the policy still moves the recorded moment."""
REFUSED_SECONDS = 300.0
"""Before a forbidden write is tried again. A Role may grant it for some policies only."""


class PolicyReconciler:
    """Reviews the policies while this process leads."""

    def __init__(self, *, api: ApiClient, store: GroupStore, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._forbidden_until: dict[str, float] = {}
        """By UID: when the write is tried again, by our monotonic clock."""
        self._troubled = False
        """A write has failed, and a warning was logged."""

    async def run(self) -> None:
        """Review until cancelled, or until this process may no longer lead."""
        while True:
            try:
                await self.reconcile()
                self._troubled = self._troubled and bool(self._forbidden_until)
            except NotLeadingError:
                return
            except ForbiddenError as error:
                self._say(error, REFUSED_SECONDS)
            except ApiError as error:
                self._say(error, REVIEW_SECONDS)
            except Exception as error:  # noqa: BLE001 - a failure here must not end the recoveries of groups
                _log.error("a review of the policies failed: this is a bug", error=str(error), exc_info=error)
            await self._clock.sleep(REVIEW_SECONDS)

    async def reconcile(self) -> None:
        """Write what is due. Every policy is tried. Raises the first ApiError that is not due to a changed policy."""
        failed: ApiError | None = None
        policies = tuple(self._store.every_policy())
        for policy in policies:
            if not self._is_due(policy):
                continue
            try:
                await self._write(policy)
            except NotLeadingError:
                raise
            except (ConflictError, NotFoundError):
                continue  # it has changed, and the cache will show it
            except ApiError as error:
                if isinstance(error, ForbiddenError):
                    self._forbidden_until[policy.uid] = self._clock.monotonic_seconds() + REFUSED_SECONDS
                failed = failed or error
        unwritten = {policy.uid for policy in policies if policy.recorded != policy.enforcement}
        self._forbidden_until = {uid: until for uid, until in self._forbidden_until.items() if uid in unwritten}
        if failed is not None:
            raise failed

    def _is_due(self, policy: PolicyFacts) -> bool:
        if policy.deleting or policy.enforcement == policy.recorded:
            return False
        return self._clock.monotonic_seconds() >= self._forbidden_until.get(policy.uid, float("-inf"))

    async def _write(self, policy: PolicyFacts) -> None:
        due = policy.enforcement
        await write_enforcement(self._api, policy)
        self._forbidden_until.pop(policy.uid, None)
        if due.enforced_since != policy.recorded.enforced_since:
            since = None if due.enforced_since is None else due.enforced_since.isoformat()
            _log.info("the mode of a policy is on record", policy=policy.title, enforced_since=since)

    def _say(self, error: ApiError, retry_in_seconds: float) -> None:
        log = _log.info if self._troubled else _log.warning
        log(
            "since when policies enforce is not on record: an edit of one makes earlier losses a baseline",
            error=str(error),
            retry_in_seconds=retry_in_seconds,
        )
        self._troubled = True
