"""One controller process, put together: caches, leadership, reconciles, metrics.

The command runs it on a real API server, the simulation on a modelled one; both run this.
"""

import asyncio

from recovery.background import endless, first_of
from recovery.controller.leadership import Leadership
from recovery.controller.runner import Controller
from recovery.kube.group_store import KubeGroupStore
from recovery.ports import ApiClient, Clock, Entropy
from recovery.telemetry.observer import Telemetry


class Manager:
    """The controller over one client."""

    def __init__(
        self,
        client: ApiClient,
        *,
        clock: Clock,
        entropy: Entropy,
        telemetry: Telemetry,
        leadership: Leadership,
        train_jobs: bool = True,
        reads_logs: bool = False,
    ) -> None:
        """`train_jobs` False: Trainer is not installed, so no TrainJob is watched.

        `reads_logs`: the controller may read the logs of suspects, and does so.
        """
        self.store = KubeGroupStore(client, clock=clock, entropy=entropy, observer=telemetry, train_jobs=train_jobs)
        self._controller = Controller(
            api=client,
            store=self.store,
            clock=clock,
            entropy=entropy,
            observer=telemetry,
            leadership=leadership,
            reads_logs=reads_logs,
        )
        telemetry.follow(self.store)
        telemetry.follow_queue(lambda: self._controller.queue_depth)

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop` is set and its reconciles are over.

        Raises RefusedError if a first list is refused, and BackgroundTaskError if a task ends that must not.
        """
        await first_of(
            asyncio.create_task(self._controller.run(stop), name="controller"),
            asyncio.create_task(endless("watches", self.store.run)),
        )
