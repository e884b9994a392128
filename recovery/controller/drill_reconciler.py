"""Answers RecoveryDrills: which of their pods count as named, and how they ended. Deletes old ones, and takes back
what a drill has left on nodes.

The review is level-triggered. Each write tests the resourceVersion that it was decided on, so a crash or a second
leader does no harm. The answer to a write goes into the cache at once: the loss of a pod may be seen before the watch
shows that the pod counts as named.
"""

import asyncio
from functools import partial

import structlog

from recovery.core.drill.acceptance import accepted, waits
from recovery.core.drill.node_marks import parsed_mark
from recovery.core.drill.retention import surplus
from recovery.core.drill.verdict import final_status
from recovery.core.model.config import ConfigSpec, DrillsSpec
from recovery.core.model.drill import NODE_MARK_ANNOTATION, DrillFacts, DrillStatus
from recovery.core.model.facts import GroupKey
from recovery.core.model.ledger import Incident
from recovery.core.model.reason import Reason
from recovery.core.policy.validation import config_problems
from recovery.executors.drill_marks import take_back
from recovery.executors.drill_status import delete_drill, write_drill_status
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

REVIEW_SECONDS = 1.0
"""Between two reviews while a drill runs. Its client waits for the answer before it does anything to a pod."""
IDLE_SECONDS = 2.0
"""Between two reviews while none runs."""
COALESCE_SECONDS = 0.05
"""Changes within this time are one review."""
TAKE_BACK_SECONDS = 30.0
"""Between two looks at all nodes."""
SWEEP_SECONDS = 600.0
"""Between two searches for drills to delete."""
REFUSED_SECONDS = 60.0
"""Before a forbidden write is tried again."""
_DELETES_MAX = 50
"""In one sweep."""


class DrillReconciler:
    """Reviews the drills while this process leads."""

    def __init__(self, *, api: ApiClient, store: GroupStore, clock: Clock) -> None:
        self._api = api
        self._store = store
        self._clock = clock
        self._swept_at_seconds = float("-inf")
        self._running: frozenset[GroupKey] = frozenset()
        """Groups with a drill that has no verdict, as of the last review."""
        self._woken = asyncio.Event()
        self._looked_at_seconds = float("-inf")
        self._left: set[tuple[str, str]] = set()
        """Marks that were tried: the node, and the UID of the drill."""
        self._logged: type[Exception] | None = None
        """The kind of failure that was logged last. None: the last review had none."""

    async def run(self) -> None:
        """Review until cancelled, or until this process may no longer lead."""
        while True:
            wait_seconds = IDLE_SECONDS
            try:
                await self.reconcile()
                self._logged = None
                if any(each.status.verdict is None for each in self._store.drills()):
                    wait_seconds = REVIEW_SECONDS
            except NotLeadingError:
                return
            except Exception as error:  # noqa: BLE001 - a failure here must not end the recoveries of groups
                wait_seconds = REFUSED_SECONDS if isinstance(error, ForbiddenError) else IDLE_SECONDS
                self._say(error)
            await self._wait(wait_seconds)

    def changed(self, key: GroupKey) -> None:
        """Something of the group has changed. The drills of a group that has a running one are reviewed at once: the
        phase in which its client wants to act may be over in a second."""
        if key in self._running:
            self._woken.set()

    async def _wait(self, seconds: float) -> None:
        """Wait so long, or until the group of a running drill changes."""
        self._running = frozenset(_group(each) for each in self._store.drills() if each.status.verdict is None)
        self._woken.clear()
        await self._clock.sleep(min(seconds, COALESCE_SECONDS))
        if not self._running:
            await self._clock.sleep(seconds - min(seconds, COALESCE_SECONDS))
            return
        sleep = asyncio.ensure_future(self._clock.sleep(seconds - min(seconds, COALESCE_SECONDS)))
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({sleep, woken}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            sleep.cancel()
            woken.cancel()

    async def reconcile(self) -> None:
        """Write what is due. Every drill is tried. Raises the first error that is not due to a changed drill."""
        failed: Exception | None = None
        for drill in tuple(self._store.drills()):
            if drill.deleting or drill.status.verdict is not None:
                continue
            try:
                await self._review(drill)
            except NotLeadingError:
                raise
            except (ConflictError, NotFoundError):
                continue  # it has changed, and the cache will show it
            except Exception as error:  # noqa: BLE001 - one drill must not keep the others from their answers
                failed = failed or error
        failed = await self._take_back() or failed
        await self._sweep()
        if failed is not None:
            raise failed

    async def _review(self, drill: DrillFacts) -> None:
        now = self._clock.now()
        over = drill.spec.end is not None or now >= drill.over_at
        if not over and not waits(drill):
            return  # the most frequent case: with thousands of drills, nothing else may be computed for them
        status = await (self._ended(drill) if over else self._answered(drill))
        if status == drill.status:
            return
        self._store.saw_drill(await write_drill_status(self._api, drill, status))
        _log_change(drill, status)

    async def _answered(self, drill: DrillFacts) -> DrillStatus:
        """The status that says which pods count."""
        key, now = _group(drill), self._clock.now()
        mine = (drill.namespace, drill.spec.workload_ref.uid)
        beside = [
            each
            for each in self._store.drills()
            if each.uid != drill.uid and (each.namespace, each.spec.workload_ref.uid) == mine
        ]
        open_ = self._open_incident(drill)
        recovering = open_ is not None and open_.drill is not None and open_.drill.uid == drill.uid
        answer = partial(accepted, drill, beside, limits=self._limits(), now=now, recovering=recovering)
        named, refusal = answer(snapshot=self._store.snapshot(key))
        if refusal is not None and refusal.reason is Reason.DRILL_NAMES_NO_MEMBER:
            # The client may have seen the pod before the cache has.
            named, refusal = answer(snapshot=await self._store.read_live(key))
        return DrillStatus(named=named, refusal=refusal, message=refusal.message if refusal is not None else "")

    async def _ended(self, drill: DrillFacts) -> DrillStatus:
        """The status with the verdict. It stays as it is while an incident of the drill is still to be recorded."""
        open_ = self._open_incident(drill)
        if open_ is not None and open_.drill is not None and open_.closing is not None:
            return drill.status
        recorded = await self._store.read_incidents_live(drill.namespace, drill.spec.workload_ref.uid)
        # The open incident may have been recorded since it was read.
        incidents = {each.id: each for each in (*((open_,) if open_ is not None else ()), *recorded)}
        ordered = sorted(incidents.values(), key=lambda each: each.number)
        since = [each for each in ordered if each.detected_at >= drill.created_at]
        return final_status(drill, since, self._clock.now())

    async def _take_back(self) -> ApiError | None:
        """The time of a drill is over, and its marks are still on nodes: its client is gone. Each mark is tried until
        the server answers: what the controller may not do, a person has to do. Returns an error that may pass."""
        now, now_seconds = self._clock.now(), self._clock.monotonic_seconds()
        if now_seconds - self._looked_at_seconds < TAKE_BACK_SECONDS:
            return None
        self._looked_at_seconds = now_seconds
        failed: ApiError | None = None
        drills = {(each.namespace, each.name, each.uid) for each in self._store.drills()}
        for name, node in tuple(self._store.nodes().items()):
            mark = parsed_mark(node.annotations.get(NODE_MARK_ANNOTATION))
            if mark is None or now < mark.expires_at or (name, mark.uid) in self._left:
                continue
            self._left.add((name, mark.uid))
            title = f"{mark.namespace}/{mark.drill}"
            try:
                # A kubelet may write any annotation of its own node. The drill shows that the mark is one.
                if (mark.namespace, mark.drill, mark.uid) not in drills:
                    why = "there is no such RecoveryDrill"
                elif await take_back(self._api, name, mark):
                    _log.info("what a drill has left on a node is taken back", drill=title, node=name)
                    continue
                else:
                    why = "it includes a condition of the node, or the node changes too often"
            except ForbiddenError as error:
                why = str(error)
            except NotLeadingError:
                raise
            except ApiError as error:
                self._left.discard((name, mark.uid))
                failed = error
                continue
            _log.warning(
                "run recovery chaos abort: a drill has left changes on a node", drill=title, node=name, why=why
            )
        return failed

    def _open_incident(self, drill: DrillFacts) -> Incident | None:
        """Of the drill's workload: the open incident, or the last one until it is recorded. None: there is none."""
        known = self._store.ledger_object(_group(drill), drill.spec.workload_ref.uid)
        return known.ledger.incident if known is not None and known.readable else None

    def _limits(self) -> DrillsSpec:
        config = self._store.config()
        if config is not None and config.unreadable:
            return DrillsSpec(per_job_and_day=0)  # it is not known what it allows
        return config.spec.drills if config is not None else DrillsSpec()

    async def _sweep(self) -> None:
        """Delete drills that the RecoveryConfig no longer keeps."""
        now_seconds = self._clock.monotonic_seconds()
        config = self._store.config()
        spec = config.spec if config is not None else ConfigSpec()
        unusable = config is not None and bool(config.unreadable or any(config_problems(spec)))
        if unusable or now_seconds - self._swept_at_seconds < SWEEP_SECONDS:
            return
        self._swept_at_seconds = now_seconds
        due = surplus(self._store.drills(), spec.drills, self._clock.now())
        deleted = sum([await delete_drill(self._api, each) for each in due[:_DELETES_MAX]])
        if deleted:
            _log.info("records of drills are deleted: RecoveryConfig spec.drills", count=deleted)

    def _say(self, error: Exception) -> None:
        """Log one line for a new failure, with a traceback only for a bug."""
        again = self._logged is type(error)
        self._logged = type(error)
        match error:
            case ForbiddenError():
                log = _log.info if again else _log.warning
                log("drills are not answered: a permission is missing", error=str(error))
            case ApiError():
                _log.info("drills are reviewed later", error=str(error))
            case _:
                _log.error("a review of drills failed: this is a bug", error=str(error), exc_info=error)


def _group(drill: DrillFacts) -> GroupKey:
    return GroupKey(drill.namespace, drill.spec.workload_ref.name)


def _log_change(drill: DrillFacts, status: DrillStatus) -> None:
    title = f"{drill.namespace}/{drill.name}"
    if status.verdict is not None:
        _log.info("a drill is over", drill=title, verdict=str(status.verdict), why=status.message)
    elif status.refusal is not None:
        _log.warning("a drill is refused", drill=title, why=status.message)
    else:
        _log.info("a failure of these pods will count as a drill", drill=title, pods=status.named)
