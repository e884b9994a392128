"""How many more pods of a group have room: facts in, room out."""

from datetime import datetime

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.model.annotations import SPARE_LABEL
from recovery.core.model.container_template import ContainerTemplate
from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, JobFacts, NodeFacts, PodFacts, Room, Snapshot, Taint
from recovery.kube.capacity import Capacity
from recovery.kube.gpus_in_use import GpusInUse, NodeUse
from recovery.kube.node_index import NodeIndex
from recovery.kube.pending_groups import NodeClaim
from recovery.kube.room import places, room_in, wish_of
from tests.unit.kube.testing import START

KEY = GroupKey("ml", "own")
OTHER = GroupKey("ml", "other")
EIGHT = Demand(gpus=8)


def node(name: str, *, gpus: int = 8, spare: bool = False, **changes: object) -> NodeFacts:
    labels = {SPARE_LABEL: ""} if spare else {}
    return msgspec.structs.replace(NodeFacts(name, ready=True, gpus=gpus, labels=labels), **changes)


def job(uid: str = "j", deleting_since: datetime | None = None) -> JobFacts:
    return JobFacts(uid, uid, "1", "jobset", "node", START, deleting_since=deleting_since)


def pod(
    name: str, node: str = "", *, demand: Demand = EIGHT, job_uid: str = "j", gpus: int | None = None, phase: str = ""
) -> PodFacts:
    gpus = demand.gpus if gpus is None else gpus
    phase = phase or ("Running" if node else "Pending")
    return PodFacts(name, name, job_uid, job_uid, 0, START, node=node, phase=phase, gpus=gpus, demand=demand)


class Fleet:
    """Nodes, the accelerators in use there, and the claims of waiting groups."""

    def __init__(self, *nodes: NodeFacts, in_use: dict[str, int] | None = None) -> None:
        self.nodes = {each.name: each for each in nodes}
        self.capacity = Capacity(self.nodes)
        self.capacity.index_some(len(nodes))
        for name, gpus in (in_use or {}).items():
            self.capacity.use(name, gpus)
        self.claims: list[NodeClaim] = []

    def claim(self, count: int, *names: str, gpus: int = 8) -> None:
        """Let a group wait for that many of these nodes."""
        key = GroupKey("ml", f"waits-{len(self.claims)}")
        self.claims.append(NodeClaim(key, count, self.capacity.nodes_called(names), gpus))

    def room(
        self, *pods: PodFacts, jobs: tuple[JobFacts, ...] = (job(),), free_gpus: dict[str, int] | None = None
    ) -> Room | None:
        wish = wish_of(Snapshot(KEY, None, None, jobs, pods))
        found = places(wish, self.capacity, free_gpus) if wish is not None else None
        return room_in(found, wish, self.capacity, self.claims) if wish is not None and found is not None else None


class TestAccelerators:
    def test_nodes_with_enough_of_them_free(self) -> None:
        fleet = Fleet(node("a"), node("b"), node("c", gpus=16), node("d"), in_use={"a": 8, "d": 1})
        assert fleet.room(pod("p", "a")) == Room(3, ("b", "c")), "two on the larger one, none where one is taken"

    def test_part_of_a_node(self) -> None:
        fleet = Fleet(node("a"), node("b"), in_use={"a": 3})
        assert fleet.room(pod("p", "a", demand=Demand(gpus=2))) == Room(2 + 4, ("a", "b"))

    def test_pods_that_wait_are_not_counted_twice(self) -> None:
        """They will use this room: it is room beside the pods that already have a node."""
        assert Fleet(node("a")).room(pod("p"), pod("q")) == Room(1, ("a",))

    def test_a_node_that_has_lost_devices_has_no_room(self) -> None:
        assert Fleet(node("a", gpus=7), in_use={"a": 8}).room(pod("p")) == Room(0)

    @pytest.mark.parametrize(
        "state",
        [
            {"ready": False},
            {"unschedulable": True},
            {"deleting_since": START},
            {"taints": (Taint("team", "b"),)},
            {"taints": (Taint("recovery.trainjob.dev/quarantined"),)},
            {"gpus": 4},
        ],
    )
    def test_a_node_that_takes_no_pod_of_the_group_now_is_none(self, state: dict[str, object]) -> None:
        assert Fleet(node("a", **state), node("b")).room(pod("p")) == Room(1, ("b",))  # type: ignore[arg-type]

    def test_a_launcher_that_fits_anywhere_makes_no_room_for_workers(self) -> None:
        fleet = Fleet(node("cpu", gpus=0), node("a"))
        assert fleet.room(pod("launcher", demand=Demand()), pod("p")) == Room(1, ("a",))

    def test_spares_are_named(self) -> None:
        assert Fleet(node("a"), node("b", spare=True)).room(pod("p")) == Room(2, ("a", "b"), spares=("b",))


class TestWish:
    def test_another_pod_has_to_fit_whichever_of_them_it_is_like(self) -> None:
        """Exclusive placement binds the followers to the rack of their leader, so other racks do not help."""
        fleet = Fleet(node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}))
        follower = Demand(selector=(("rack", "1"),), gpus=8)
        assert fleet.room(pod("leader"), pod("p", demand=follower)) == Room(1, ("a",))

    def test_the_incarnation_before_has_asked_for_something_else(self) -> None:
        fleet = Fleet(node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}))
        before = pod("old", demand=Demand(selector=(("rack", "1"),), gpus=8), job_uid="old")
        after = pod("new", demand=Demand(selector=(("rack", "2"),), gpus=8))
        jobs = (job(), job("old", deleting_since=START))
        assert fleet.room(before, after, jobs=jobs) == Room(1, ("b",))
        assert fleet.room(before, jobs=jobs) == Room(1, ("a",)), "where nothing else tells"

    def test_without_pods_the_templates_of_the_jobs_show_it(self) -> None:
        """A suspended group has no pods."""
        fleet = Fleet(node("a", labels={"rack": "1"}), node("b", labels={"rack": "2"}))
        suspended = msgspec.structs.replace(job(), demand=Demand(selector=(("rack", "2"),), gpus=8))
        assert fleet.room(jobs=(suspended,)) == Room(1, ("b",))

    def test_without_pods_and_jobs_it_is_not_known(self) -> None:
        assert Fleet(node("a")).room(jobs=()) is None

    def test_nodes_do_not_tell_of_devices_that_a_template_claims(self) -> None:
        claims = msgspec.structs.replace(job(), containers=(ContainerTemplate("node", accelerators=8),))
        assert Fleet(node("a")).room(jobs=(claims,)) is None

    def test_nodes_do_not_tell_of_devices_that_come_by_claims(self) -> None:
        assert Fleet(node("a")).room(pod("p", "b", demand=Demand(), gpus=8)) is None

    def test_while_nodes_are_not_all_taken_account_of_it_is_not_known(self, monkeypatch: pytest.MonkeyPatch) -> None:
        fleet = Fleet(node("a"))
        monkeypatch.setattr(Capacity, "current", lambda capacity: False)
        assert fleet.room(pod("p")) is None

    def test_nor_for_pods_that_ask_for_too_much(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("recovery.kube.capacity.COST_MAX", 0)
        assert Fleet(node("a")).room(pod("p")) is None


class TestWithoutAccelerators:
    def test_nodes_without_a_pod_of_the_group_as_many_as_are_seen_to_share_one(self) -> None:
        fleet = Fleet(*(node(name, gpus=0) for name in "abcd"))
        cpu = Demand()
        pods = (pod("p", "a", demand=cpu), pod("q", "a", demand=cpu), pod("r", "b", demand=cpu))
        assert fleet.room(*pods) == Room(4, ("c", "d"))

    def test_pods_that_are_gone_or_have_ended_are_on_no_node(self) -> None:
        fleet, cpu = Fleet(node("a", gpus=0)), Demand()
        gone = msgspec.structs.replace(pod("p", "a", demand=cpu), gone_at=START)
        assert fleet.room(gone, pod("q", "a", demand=cpu, phase="Failed")) == Room(1, ("a",))

    def test_those_on_their_way_out_still_are(self) -> None:
        fleet, cpu = Fleet(node("a", gpus=0), node("b", gpus=0)), Demand()
        old = msgspec.structs.replace(pod("old", "a", demand=cpu, job_uid="old"), deleting_since=START)
        found = fleet.room(old, pod("new", demand=cpu), jobs=(job(), job("old", deleting_since=START)))
        assert found == Room(1, ("b",))


class TestReserved:
    def test_what_others_wait_for_is_left_to_them(self) -> None:
        fleet = Fleet(node("a"), node("b"), node("c"))
        fleet.claim(2, "a", "b", "c")
        assert fleet.room(pod("p")) == Room(1, ("c",), reserved=2)

    def test_they_take_the_nodes_with_most_room_and_leave_spares_where_they_can(self) -> None:
        fleet = Fleet(node("a", spare=True), node("b"), node("c", gpus=32))
        fleet.claim(2, "a", "b", "c")
        assert fleet.room(pod("p")) == Room(1, ("a",), ("a",), reserved=2)

    def test_nodes_that_they_cannot_use_are_not(self) -> None:
        fleet = Fleet(node("a"), node("b"))
        fleet.claim(2, "b", "elsewhere")
        assert fleet.room(pod("p")) == Room(1, ("a",), reserved=1)

    def test_who_has_the_fewest_to_choose_from_takes_first(self) -> None:
        fleet = Fleet(node("a"), node("b"), node("c"))
        fleet.claim(1, "a", "b", "c")
        fleet.claim(1, "a")
        assert fleet.room(pod("p")) == Room(1, ("c",), reserved=2)

    def test_those_who_ask_for_no_accelerators_leave_them(self) -> None:
        fleet = Fleet(node("a"), node("b", gpus=0))
        fleet.claim(2, "a", "b", gpus=0)
        assert fleet.room(pod("p")) == Room(1, ("a",))
        assert fleet.room(pod("p", demand=Demand())) == Room(0, reserved=2), "but the nodes are theirs"


class TestLookedAt:
    def test_only_those_count_and_as_they_are(self) -> None:
        fleet = Fleet(node("a"), node("b"), node("c", gpus=16), node("d", ready=False), in_use={"a": 8})
        seen = {"a": 8, "b": 7, "c": 8, "d": 8, "gone": 8}
        assert fleet.room(pod("p"), free_gpus=seen) == Room(2, ("a", "c"))


USED = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 16))
NODES = st.lists(
    st.builds(node, st.sampled_from("abcdefgh"), gpus=st.sampled_from([0, 4, 8, 16]), spare=st.booleans()),
    unique_by=lambda each: each.name,
)
CLAIMS = st.lists(st.tuples(st.integers(1, 5), st.sets(st.sampled_from("abcdefgh"))), max_size=3)


@given(NODES, USED, CLAIMS, st.sampled_from([1, 4, 8]))
@settings(max_examples=300)
def test_as_plainly_counted(
    nodes: list[NodeFacts], used: dict[str, int], claims: list[tuple[int, set[str]]], gpus: int
) -> None:
    """The free room, less what claims take out of it: never more nodes than are claimed, and never room that an unmet
    claim could have had."""
    fleet = Fleet(*nodes, in_use=used)
    for count, names in claims:
        fleet.claim(count, *names)
    free = {each.name: (each.gpus - used.get(each.name, 0)) // gpus for each in nodes}
    every = {name: pods for name, pods in free.items() if pods > 0}
    found = fleet.room(pod("p", demand=Demand(gpus=gpus)))
    assert found is not None
    assert found.pods == sum(every[name] for name in found.nodes)
    assert len(found.nodes) + found.reserved == len(every)
    assert list(found.nodes) == sorted(found.nodes)
    spares = {each.name for each in nodes if SPARE_LABEL in each.labels}
    assert found.spares == tuple(name for name in found.nodes if name in spares)
    for count, names in claims:
        assert not names & {*found.nodes} or found.reserved >= min(count, len(names & {*every}))


def test_the_index_finds_room_without_looking_at_single_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """5,000 nodes cost as much as five kinds of nodes: one operation for each number of free accelerators."""
    numbers = range(5000)
    fleet = Fleet(*(node(f"n{number}") for number in numbers), in_use={f"n{number}": number % 5 for number in numbers})
    fleet.room(pod("p"))
    steps: list[int] = []
    by_free_gpus = NodeIndex.by_free_gpus

    def counting(index: NodeIndex) -> list[tuple[int, int]]:
        found = list(by_free_gpus(index))
        steps.append(len(found))
        return found

    monkeypatch.setattr(NodeIndex, "by_free_gpus", counting)
    monkeypatch.setattr("recovery.kube.capacity._matching_demand", None)
    found = fleet.room(pod("p"))
    assert found is not None
    assert (found.pods, steps) == (1000, [5])


def test_what_others_held_counts_until_it_is_forgotten() -> None:
    fleet, in_use = Fleet(node("a"), node("b")), GpusInUse()
    in_use.follow(lambda name, _, gpus: fleet.capacity.use(name, gpus))
    in_use.looked_at({"a": NodeUse(8, 8)}, START)
    assert fleet.room(pod("p")) == Room(1, ("b",))
