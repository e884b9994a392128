"""A group, a controller that reconciles it, and everything around them."""

from recovery.controller.agent_exchange import AgentExchange
from recovery.controller.reconciler import Reconciler
from recovery.controller.suspect_logs import SuspectLogs
from recovery.core.model.ledger import Ledger, Outcome
from recovery.core.model.writer_lease import WriterLease
from recovery.core.policy.spec import Mode
from recovery.executors.fleet_ledger import FleetWriter
from recovery.ports import (
    JOBS,
    PODS,
    ConflictError,
    UnknownOutcomeError,
)
from tests.unit.controller.fakes import KEY, Ears, FakeStore, LedgersApi, SetClock
from tests.unit.core.groups import training
from tests.unit.core.world import World

NO_ANSWER = UnknownOutcomeError("the connection was lost")
STALE = ConflictError("the object has been modified", status=409)
TRIGGERED = [
    "create RecoveryGroup",
    "patch RecoveryGroup",
    "delete Job",
    "patch Job",
    "delete Pod",
    "delete Pod",
    "delete Pod",
    "create Event",
]
"""All writes after the loss of a member of four, in this order."""


class Scene:
    """A group of four, a controller in Enforce that reconciles it, and everything around them."""

    def __init__(
        self,
        world: World | None = None,
        *,
        mode: Mode = Mode.ENFORCE,
        api: LedgersApi | None = None,
        logs: bool = False,
        lease: WriterLease | None = None,
    ) -> None:
        """`logs`: the controller may read the logs of suspects. `api` None: an API without logs.

        `lease`: the Lease that elects the controller. None: there is no election.
        """
        self.lease = lease
        self.seen: list[Ledger] = []
        """The ledgers that were decided on."""
        self.api = api if api is not None else LedgersApi()
        self.reads_logs = logs
        self.clock = SetClock(1)
        self.store = FakeStore(self.api, world if world is not None else lost(), mode=mode)
        self.ears = Ears()
        self.agents = AgentExchange()
        self.reconciler = self.new_process()

    def new_process(self) -> Reconciler:
        fleet = FleetWriter(self.api, self.store, self.clock)
        self.logs = SuspectLogs(self.api) if self.reads_logs else None
        return Reconciler(
            api=self.api,
            store=self.store,
            clock=self.clock,
            observer=self.ears,
            fleet=fleet,
            logs=self.logs,
            writer=lambda: self.lease,
            saw=lambda found: self.seen.append(found.ledger),
            agents=self.agents,
        )

    async def reconcile(self, seconds: float | None = None) -> float | None:
        """One reconcile; returns the seconds until the next one is due."""
        if seconds is not None:
            self.clock.seconds = seconds
        again = await self.reconciler.reconcile(KEY)
        return None if again is None else (again - self.clock.now()).total_seconds()

    @property
    def actions(self) -> list[str]:
        """The requests that concern the workload."""
        return [str(request) for request in self.api.writes if request.resource in {JOBS, PODS}]

    def one_recovery(self) -> bool:
        """Whether there was exactly one charge, one epoch and one trigger."""
        ledger = self.api.ledger
        attempts = ledger.incident.attempts if ledger.incident is not None else ()
        return (ledger.epoch, ledger.totals.restarts, ledger.totals.charged, len(attempts)) == (1, 1, 1, 1) and (
            len(ledger.budget.charges) == 1
        )


def lost() -> World:
    """Rank 2 has no pod."""
    return training(4).pod_gone(2, 0)


async def closed() -> Scene:
    """A scene whose incident has closed but is not yet recorded."""
    scene = Scene()
    await scene.reconcile()
    scene.store.becomes(lost().job_deleted(1).recreated(5).all_ready(20))
    again = await scene.reconcile(21)
    assert again == 0, "it is still to be recorded"
    incident = scene.api.ledger.incident
    assert incident is not None
    assert incident.closing is not None
    assert incident.closing.outcome is Outcome.RECOVERED
    scene.api.requests.clear()
    return scene
