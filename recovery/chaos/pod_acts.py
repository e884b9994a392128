"""Makes pods fail: deletes and evicts them, and kills processes in them.

Each act names the UID of its pod, so a repeat or a late one cannot affect the pod that takes its place.
"""

from collections.abc import Awaitable, Callable

from recovery import api_verbs
from recovery.chaos.job_state import JobMember
from recovery.chaos.strikes import Strike
from recovery.chaos.tools import ChaosTools, RunStoppedError, whole
from recovery.core.model.drill import DrillAction
from recovery.core.model.reason import Reason
from recovery.ports import PODS, ConflictError, NotFoundError, TryLaterError, UnknownOutcomeError
from recovery.scenario.experiment_chaos import ExperimentChaos

TRIED_FOR_SECONDS = 60.0
"""How long an act is tried again that the API server refuses for now, such as an eviction by a PodDisruptionBudget."""
_TRIED_EVERY_SECONDS = 2.0


class PodActs:
    def __init__(self, tools: ChaosTools, namespace: str, note: Callable[[str], None]) -> None:
        """`note`: called with what is worth reporting, in words."""
        self._tools = tools
        self._namespace = namespace
        self._note = note

    async def carry_out(self, strike: Strike) -> None:
        """Raises RunStoppedError if a pod cannot be made to fail in time, and ApiError."""
        for member in strike.members:
            match strike.chaos.action:
                case DrillAction.POD_KILL:
                    await self._kill(strike.chaos, member)
                case DrillAction.POD_EVICT:
                    await self._evict(strike.chaos, member)
                case DrillAction.PROCESS_KILL:
                    killer = self._tools.killer
                    said = await whole(killer.kill(self._namespace, member.pod, member.container))
                    self._note(f"pod {member.pod}: {said}")

    async def _kill(self, chaos: ExperimentChaos, member: JobMember) -> None:
        await self._removed(
            chaos,
            member,
            lambda: api_verbs.delete(
                self._tools.api,
                PODS,
                member.pod,
                namespace=self._namespace,
                uid=member.uid,
                grace_seconds=chaos.grace_seconds,
            ),
        )

    async def _evict(self, chaos: ExperimentChaos, member: JobMember) -> None:
        await self._removed(
            chaos,
            member,
            lambda: api_verbs.evict(self._tools.api, member.pod, namespace=self._namespace, uid=member.uid),
        )

    async def _removed(
        self, chaos: ExperimentChaos, member: JobMember, request: Callable[[], Awaitable[bytes]]
    ) -> None:
        clock, unsure, said = self._tools.clock, False, ""
        until = clock.monotonic_seconds() + TRIED_FOR_SECONDS

        async def sent() -> bytes:
            return await request()

        while True:
            try:
                await whole(sent())
                return
            except (NotFoundError, ConflictError) as error:
                if unsure:
                    return  # an earlier try was carried out after all
                if chaos.during is not None:
                    self._note(f"pod {member.pod} has gone down with its group before it was struck")
                    return
                raise RunStoppedError(
                    Reason.DRILL_ACT_FAILED,
                    f"pod {member.pod} was replaced or deleted by others before the drill acted",
                ) from error
            except (TryLaterError, UnknownOutcomeError) as error:
                unsure = unsure or isinstance(error, UnknownOutcomeError)
                if str(error) != said:
                    self._note(f"refused for now, tried again: {error}")
                said = str(error)
                if clock.monotonic_seconds() >= until:
                    why = f"pod {member.pod}: refused for {TRIED_FOR_SECONDS:g} s: {error}"
                    raise RunStoppedError(Reason.DRILL_ACT_FAILED, why) from error
                await clock.sleep(_TRIED_EVERY_SECONDS)
