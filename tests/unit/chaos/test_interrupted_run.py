"""A run that ends at any moment leaves nothing behind, or something that `abort` removes from any machine."""

import asyncio

import pytest

from recovery.chaos.abort import ABORTED_BY_COMMAND, abort
from recovery.chaos.chaos_run import RunOutcome
from recovery.core.model.drill import NODE_MARK_ANNOTATION, DrillVerdict
from recovery.core.model.reason import Reason
from recovery.ports import NODES, RECOVERY_DRILLS, ApiRequest, ForbiddenError, PatchKind, UnknownOutcomeError
from recovery.sim.api.client import ModelClient
from recovery.sim.virtual_time import run_in_virtual_time, virtual_time
from tests.counted_writes import Writes
from tests.unit.chaos.world import FILE, ON_NODES, POD_KILL, ChaosWorld, SendsFirst

EVERYTHING = ON_NODES + "- {kind: PodChaos, action: process-kill, mode: one, at: 3s}\n"
"""Each action that leaves its pod, so that the cluster can be compared with itself."""


class _ProcessDiedError(Exception):
    """The process of the client has died: nothing of it runs any more."""


def dies() -> None:
    raise _ProcessDiedError


def writes_of_a_run() -> int:
    async def count() -> int:
        world = ChaosWorld()
        writes = Writes(world.client(), 0, dies, applied=False)
        async with world.running():
            await world.run(EVERYTHING, writes)
        return writes.count

    return run_in_virtual_time(count())


@pytest.fixture(scope="module")
def writes() -> int:
    count = writes_of_a_run()
    assert count >= 10, "create, names, marks, condition, undo, end"
    return count


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_after_a_death_at_any_write_abort_puts_everything_back(writes: int, applied: bool) -> None:
    async def dies_at(number: int) -> None:
        world = ChaosWorld()
        before = world.nodes()
        async with world.running():
            client = Writes(world.client(), number, dies, applied=applied)
            with pytest.raises(_ProcessDiedError):
                await world.run(EVERYTHING, client)
            await world.clock.sleep(5)
            api = ModelClient(world.server, "john")
            done = await abort(api, world.clock, "research", None)
            assert done.left_over == ()
            assert world.nodes() == before, f"write {number}"
            assert all(drill.spec.end is not None for drill in world.drills())
            revision = world.server.revision
            await world.clock.sleep(5)
            settled = world.server.revision
            again = await abort(api, world.clock, "research", None)
            assert (again.ended, again.freed) == ((), ())
            assert world.server.revision == settled >= revision

    for number in range(1, writes + 1):
        run_in_virtual_time(dies_at(number))


@pytest.mark.parametrize("applied", [False, True], ids=["before", "after"])
def test_an_interruption_at_any_write_leaves_nothing_behind(writes: int, applied: bool) -> None:
    async def interrupted_at(number: int) -> RunOutcome:
        world = ChaosWorld()
        before = world.nodes()
        async with world.running():
            tasks: list[asyncio.Task[RunOutcome]] = []
            client = Writes(world.client(), number, lambda: [task.cancel() for task in tasks], applied=applied)
            run = await world.prepared(EVERYTHING, client)
            tasks.append(asyncio.create_task(run.run()))
            outcome = await tasks[0]
        assert world.nodes() == before, f"write {number}"
        assert all(drill.spec.end is not None for drill in world.drills())
        assert outcome.left_over == ()
        return outcome

    ends = [run_in_virtual_time(interrupted_at(number)) for number in range(1, writes + 1)]
    assert all(end.interrupted for end in ends)
    assert all(end.verdict is DrillVerdict.ABORTED for end in ends if end.reason is Reason.DRILL_INTERRUPTED)
    late = [number for number, end in enumerate(ends, start=1) if end.reason is not Reason.DRILL_INTERRUPTED]
    assert late in ([], [writes]), "only the last write, which ends the drill, is later than the result"


@virtual_time
async def test_an_interruption_while_the_run_watches_ends_it_at_once() -> None:
    world = ChaosWorld()
    before = world.nodes()
    async with world.running():
        run = await world.prepared(ON_NODES)
        task = asyncio.create_task(run.run())
        await world.clock.sleep(7)
        task.cancel()
        outcome = await task
        assert world.clock.monotonic_seconds() < 9
    assert (outcome.interrupted, outcome.reason) == (True, Reason.DRILL_INTERRUPTED)
    assert world.nodes() == before


@virtual_time
async def test_a_write_of_an_unknown_outcome_is_made_once() -> None:
    world = ChaosWorld()
    lost: list[ApiRequest] = []

    def loses(request: ApiRequest) -> bool:
        return request.writes and request.target not in {str(each.target) for each in lost}

    api = ModelClient(world.server, "jane")

    class LosesAnswers(SendsFirst):
        async def send(self, request: ApiRequest) -> bytes:
            answer = await api.send(request)
            if loses(request):
                lost.append(request)
                raise UnknownOutcomeError(f"{request}: the connection broke")
            return answer

    before = world.nodes()
    async with world.running():
        outcome = await world.run(EVERYTHING, LosesAnswers(api, lambda _: None))
    assert outcome.reason is Reason.DRILL_DONE, outcome.message
    assert {each.target for each in lost} >= {"recoverydrills", "nodes", "nodes/status"}
    assert world.nodes() == before
    assert [pod.number for pod in world.drill().spec.pods] == list(range(1, len(world.drill().spec.pods) + 1))


@virtual_time
async def test_a_node_that_cannot_be_put_back_is_named() -> None:
    world = ChaosWorld()

    def before(request: ApiRequest) -> None:
        if request.writes and request.resource == NODES and not request.parameter("fieldManager"):
            raise ForbiddenError('User "jane" cannot patch resource "nodes" in API group ""', status=403)

    text = FILE + (
        "hypothesis: {incidents: 0}\nslo: {recovery: 20s}\n"
        "chaos:\n- {kind: PhysicalMachineChaos, action: cordon, mode: one}\n"
    )
    async with world.running():
        outcome = await world.run(text, SendsFirst(ModelClient(world.server, "jane"), before))
    [left] = {each.node: each for each in outcome.left_over}.values()
    assert "cannot patch resource" in left.why
    assert world.drill().spec.end is not None


@virtual_time
async def test_an_abort_elsewhere_ends_a_run_that_goes_on() -> None:
    world = ChaosWorld()
    before = world.nodes()
    done = []

    async with world.running():
        run = await world.prepared(ON_NODES)
        task = asyncio.create_task(run.run())
        await world.clock.sleep(7)
        done.append(await abort(ModelClient(world.server, "john"), world.clock, "research", "lose-a-rank-x7k2p"))
        outcome = await task
    assert done[0].ended == ("research/lose-a-rank-x7k2p",)
    assert len(done[0].freed) >= 1
    assert (outcome.reason, outcome.message) == (Reason.DRILL_INTERRUPTED, ABORTED_BY_COMMAND)
    assert world.nodes() == before


async def marked_without_a_drill(world: ChaosWorld) -> None:
    """A client has died, and its RecoveryDrill has been deleted."""
    with pytest.raises(_ProcessDiedError):
        await world.run(ON_NODES, Writes(world.client(), 3, dies, applied=False))
    world.server.delete(RECOVERY_DRILLS, "lose-a-rank-x7k2p", namespace="research")


@pytest.mark.parametrize(("namespace", "name"), [("research", "lose-a-rank-x7k2p"), ("research", None), (None, None)])
def test_a_mark_whose_drill_is_gone_is_taken_back(namespace: str | None, name: str | None) -> None:
    async def aborts() -> None:
        world = ChaosWorld()
        before = world.nodes()
        async with world.running():
            await marked_without_a_drill(world)
            assert world.nodes() != before
            done = await abort(ModelClient(world.server, "john"), world.clock, namespace, name)
        assert (done.known, world.nodes()) == (True, before)

    run_in_virtual_time(aborts())


@pytest.mark.parametrize(("namespace", "name"), [("research", "another-x7k2p"), ("team-b", None)])
def test_an_abort_leaves_the_marks_of_other_runs(namespace: str, name: str | None) -> None:
    async def aborts() -> None:
        world = ChaosWorld()
        async with world.running():
            await marked_without_a_drill(world)
            marked = world.nodes()
            done = await abort(ModelClient(world.server, "john"), world.clock, namespace, name)
        assert (done.known, world.nodes()) == (False, marked)

    run_in_virtual_time(aborts())


@virtual_time
async def test_a_mark_that_cannot_be_read_is_named_and_not_guessed_at() -> None:
    world = ChaosWorld()
    patch = {"metadata": {"annotations": {NODE_MARK_ANNOTATION: "?"}}}
    world.server.patch(NODES, "gpu-1", patch, kind=PatchKind.MERGE)
    done = await abort(ModelClient(world.server, "john"), world.clock, None, None)
    [left] = done.left_over
    assert (left.node, done.freed) == ("gpu-1", ())
    assert "kubectl annotate node gpu-1" in left.why


def test_a_kill_before_any_name_counts_needs_no_abort() -> None:
    """The first write creates the drill. A client that dies before has changed nothing."""

    async def dies_first() -> None:
        world = ChaosWorld()
        pods = world.pods()
        with pytest.raises(_ProcessDiedError):
            await world.run(POD_KILL, Writes(world.client(), 1, dies, applied=False))
        assert (world.drills(), world.pods()) == ([], pods)

    run_in_virtual_time(dies_first())
