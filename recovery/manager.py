"""Assembles one controller process: caches, leadership, reconciles, metrics.

The command runs it against a real API server, the simulation against a modelled one.
"""

import asyncio

from recovery.background import endless, first_of
from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.leadership import Leadership
from recovery.controller.runner import Controller
from recovery.kube.group_store import KubeGroupStore
from recovery.ports import ApiClient, Clock, Entropy
from recovery.telemetry.observer import Telemetry


class Manager:
    """One controller process over one API client."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        entropy: Entropy,
        telemetry: Telemetry,
        leadership: Leadership,
        train_jobs: bool = True,
        drills: bool = True,
        reads_logs: bool = False,
    ) -> None:
        """`train_jobs` False: Trainer is not installed, so no TrainJob is watched.

        `drills` False: RecoveryDrills cannot be watched, so no failure is a drill.

        `reads_logs`: the controller may and does read the logs of suspects.
        """
        self.store = KubeGroupStore(
            client, clock=clock, entropy=entropy, observer=telemetry, train_jobs=train_jobs, drills=drills
        )
        self.agents = AgentExchange()
        """Where an endpoint for agents hands in reports."""
        self._controller = Controller(
            api=client,
            store=self.store,
            clock=clock,
            entropy=entropy,
            observer=telemetry,
            leadership=leadership,
            reads_logs=reads_logs,
            agents=self.agents,
        )
        telemetry.follow(self.store)
        telemetry.follow_queue(lambda: self._controller.queue_depth)

    @property
    def leads(self) -> bool:
        """Whether this process does the duty of the leader now. Any thread may ask."""
        return self._controller.leads

    async def run(self, stop: asyncio.Event) -> None:
        """Run until `stop` is set and the reconciles in progress are over.

        Raises RefusedError if a first list is refused, and BackgroundTaskError if a background task ends.
        """
        await first_of(
            asyncio.create_task(self._controller.run(stop), name="controller"),
            asyncio.create_task(endless("watches", self.store.run)),
        )
