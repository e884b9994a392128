"""What it costs to know which groups wait. The answer must equal a count over all groups."""

import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.diagnosis.membership import member_count
from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, NodeFacts, PodFacts, WaitingGroup
from recovery.kube import capacity as capacity_module
from recovery.kube import fleet_facts as fleet_facts_module
from recovery.kube import pending_groups
from recovery.kube.capacity import COST_MAX, Capacity, pods_per_node, scarce
from recovery.kube.pending_groups import PodsToPlace, WaitingGroups
from recovery.kube.projections.pods import PodRecord
from recovery.kube.projections.workloads import decode_job, decode_job_set, decode_train_job
from recovery.kube.snapshots import Parts
from recovery.ports import NODES, PODS
from tests.unit.kube.plain_capacity import plain_room
from tests.unit.kube.store_world import JOB_UID, LLM, World, job, load, pod
from tests.unit.kube.test_fleet_facts import node as node_body
from tests.unit.kube.test_pending_groups import leaving, tell_llm, unplaced, waiting
from tests.unit.kube.testing import START

GROUPS = tuple(GroupKey("ml", name) for name in "abc")
NO_ONE = GroupKey("ml", "nobody")
TRAIN_JOB = decode_train_job(json.dumps(load("trainjob")).encode()).value
JOB_SET = decode_job_set(json.dumps(load("jobset")).encode()).value
DEMANDS = (Demand(gpus=8), Demand(), Demand(selector=(("gpu", "h100"),), gpus=4), Demand(selector=(("name", "b"),)))


class Groups:
    """Groups of one Job each, their pods and the nodes. It gives both the index's answer and the plain answer."""

    def __init__(self) -> None:
        self.jobs = {key: decode_job(json.dumps(job(members=2, uid=f"job-{key.name}")).encode()) for key in GROUPS}
        self.pods: dict[GroupKey, dict[str, PodRecord]] = {key: {} for key in GROUPS}
        self.nodes: dict[str, NodeFacts] = {}
        self.to_place = PodsToPlace()
        self.capacity = Capacity(self.nodes)
        self.members_to_be: dict[GroupKey, int] = {}
        self.waiting = WaitingGroups(
            self.to_place, self.capacity, self.parts, lambda key: self.members_to_be.get(key, 0)
        )

    def parts(self, key: GroupKey) -> Parts:
        return Parts(TRAIN_JOB, JOB_SET, (self.jobs[key].value.facts,), tuple(self.pods[key].values()))

    def put_pod(
        self,
        key: GroupKey,
        name: str,
        demand: Demand | None,
        *,
        node: str = "",
        job_uid: str = "",
        leaves: bool = False,
    ) -> None:
        """`demand` None: the pod is gone. `leaves`: it is being deleted."""
        before = self.pods[key].pop(name, None)
        after = None
        if demand is not None:
            uid = job_uid or f"job-{key.name}"
            deleting_since = START if leaves else None
            facts = PodFacts(name, name, uid, "job", 0, START, node=node, demand=demand, deleting_since=deleting_since)
            after = self.pods[key][name] = PodRecord(key, "node", facts)
        self.to_place.changed(key, before, after)
        self.waiting.changed(key)

    def put_node(self, name: str, node: NodeFacts | None) -> None:
        before = self.nodes.pop(name, None)
        if node is not None:
            self.nodes[name] = msgspec.structs.replace(node, name=name)
        self.capacity.changed(before, self.nodes.get(name))

    def plainly(self) -> list[WaitingGroup]:
        """Count every group, and compare every demand with every node."""
        found = []
        for key in GROUPS:
            records = [each for each in self.pods[key].values() if each.facts.job_uid == f"job-{key.name}"]
            asked = scarce(tuple(dict.fromkeys(each.facts.demand for each in records if not each.facts.node)))
            room = plain_room(asked, self.nodes.values())
            members = member_count(self.jobs[key].value.facts) if asked else 0
            needed = -(-members // pods_per_node(room, (each.facts for each in self.pods[key].values())))
            if 0 < needed <= room.in_all:
                held = frozenset(each.facts.node for each in self.pods[key].values() if each.facts.holds_gpus)
                found.append(WaitingGroup(key, needed, room.feasible, held))
        return found

    def claimed_plainly(self) -> list[tuple[GroupKey, int]]:
        """The need of each waiting group, less the nodes that its members occupy and could use again."""
        found = []
        for group in self.plainly():
            pods = (each.facts for each in self.pods[group.key].values())
            held = {pod.node for pod in pods if pod.holds_gpus} & {*group.feasible}
            found.append((group.key, group.needed - len(held)))
        return [each for each in found if each[1] > 0]

    def claimed(self) -> list[tuple[GroupKey, int]]:
        """The claims, after `found`."""
        claims = {claim.key: claim for claim in self.waiting.claims(NO_ONE)}
        for group in self.found():
            if group.key in claims:
                assert self.capacity.names(claims[group.key].feasible) == group.feasible
        return sorted((claim.key, claim.nodes) for claim in claims.values())

    def found(self) -> list[WaitingGroup]:
        besides = self.waiting.besides(NO_ONE)
        while besides is None:
            besides = self.waiting.besides(NO_ONE)
        return sorted(besides, key=lambda group: group.key)


NODE_STATES = (
    NodeFacts("", ready=True, gpus=8),
    NodeFacts("", ready=True, gpus=16, labels={"gpu": "h100"}),
    NodeFacts("", ready=False, gpus=8, labels={"gpu": "h100"}),
    NodeFacts("", ready=True, labels={"name": "b"}),
    None,
)
CHANGES = st.one_of(
    st.tuples(st.just("node"), st.sampled_from("vwxyz"), st.sampled_from(NODE_STATES)),
    st.tuples(
        st.just("pod"),
        st.sampled_from(GROUPS),
        st.sampled_from("pqr"),
        st.none() | st.sampled_from(DEMANDS),
        st.sampled_from(["", "", "v"]),
        st.sampled_from(["", "", "unknown"]),
    ),
    st.just(("asked",)),
)


@given(st.lists(CHANGES, max_size=25))
@settings(max_examples=300)
def test_after_any_changes_it_is_what_counting_all_of_them_gives(changes: list[tuple[Any, ...]]) -> None:
    groups = Groups()
    for what, *change in changes:
        match what:
            case "node":
                groups.put_node(*change)
            case "pod":
                key, name, demand, node, job_uid = change
                groups.put_pod(key, name, demand, node=node, job_uid=job_uid)
            case _:
                assert groups.found() == groups.plainly()
                assert groups.claimed() == groups.claimed_plainly()
    assert groups.found() == groups.plainly()
    assert groups.claimed() == groups.claimed_plainly()


class TestClaims:
    def test_the_nodes_that_its_members_are_on_are_not_claimed(self) -> None:
        groups = Groups()
        for name in "vw":
            groups.put_node(name, NODE_STATES[0])
        groups.put_pod(GROUPS[0], "p", DEMANDS[0], node="v")
        groups.put_pod(GROUPS[0], "q", DEMANDS[0])
        assert [group.needed for group in groups.found()] == [2]
        assert groups.claimed() == [(GROUPS[0], 1)]

    def test_but_one_that_takes_no_pods_any_more_is_claimed_elsewhere(self) -> None:
        groups = Groups()
        for name in "vwx":
            groups.put_node(name, NODE_STATES[0])
        groups.put_pod(GROUPS[0], "p", DEMANDS[0], node="v")
        groups.put_pod(GROUPS[0], "q", DEMANDS[0])
        groups.put_node("v", msgspec.structs.replace(NODE_STATES[0] or NodeFacts("", ready=True), ready=False))
        groups.found()
        assert groups.claimed() == [(GROUPS[0], 2)]

    def test_a_node_that_is_known_only_later_is_one_that_they_are_on_as_well(self) -> None:
        groups = Groups()
        groups.put_node("w", NODE_STATES[0])
        groups.put_node("x", NODE_STATES[0])
        groups.put_pod(GROUPS[0], "p", DEMANDS[0], node="v")
        groups.put_pod(GROUPS[0], "q", DEMANDS[0])
        groups.found()
        assert groups.claimed() == [(GROUPS[0], 2)]
        groups.put_node("v", NODE_STATES[0])
        groups.found()
        assert groups.claimed() == [(GROUPS[0], 1)]

    def test_a_group_that_grows_claims_its_nodes_while_its_smaller_job_is_torn_down(self) -> None:
        groups = Groups()
        for name in "vwxyz":
            groups.put_node(name, NODE_STATES[0])
        groups.members_to_be[GROUPS[0]] = 4
        groups.put_pod(GROUPS[0], "p", DEMANDS[0], node="v")
        groups.put_pod(GROUPS[0], "q", DEMANDS[0], node="w")
        assert groups.found() == [], "it has not begun to go"
        groups.put_pod(GROUPS[0], "p", DEMANDS[0], node="v", leaves=True)
        groups.found()
        assert groups.claimed() == [(GROUPS[0], 2)]

    def test_no_one_claims_against_itself(self) -> None:
        groups = Groups()
        for name in "vw":
            groups.put_node(name, NODE_STATES[0])
        groups.put_pod(GROUPS[0], "p", DEMANDS[0])
        groups.found()
        assert groups.waiting.claims(GROUPS[0]) == ()


class TestCost:
    @pytest.fixture
    def evaluated(self, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
        """Counts the groups that were counted, and the demands that were compared with the index."""
        counted: Counter[str] = Counter()
        count, matching = WaitingGroups._count, capacity_module._matching_demand

        def count_group(groups: WaitingGroups, key: GroupKey) -> int:
            counted["groups"] += 1
            return count(groups, key)

        def count_demand(demand: Demand, index: Any) -> int:
            counted["demands"] += 1
            return matching(demand, index)

        monkeypatch.setattr(WaitingGroups, "_count", count_group)
        monkeypatch.setattr(capacity_module, "_matching_demand", count_demand)
        return counted

    def test_only_what_has_changed_is_counted_again(self, evaluated: Counter[str]) -> None:
        groups = Groups()
        groups.put_node("v", NODE_STATES[0])
        for key in GROUPS:
            groups.put_pod(key, "p", DEMANDS[1])
        groups.found()
        assert evaluated == {"groups": 3, "demands": 1}, "what all ask for is examined once"
        groups.found()
        assert evaluated["groups"] == 3
        groups.put_pod(GROUPS[1], "q", DEMANDS[1])
        groups.found()
        assert evaluated == {"groups": 4, "demands": 1}
        groups.put_node("v", msgspec.structs.replace(NODE_STATES[0] or NodeFacts("", ready=True), ready=False))
        groups.found()
        assert evaluated == {"groups": 4, "demands": 1}, "the node is of the kind that it was, and so are the groups"

    def test_pods_of_jobs_that_no_one_knows_are_not_examined(self, evaluated: Counter[str]) -> None:
        """A user who labels 1,000 pods as members of a group costs only a place in the index."""
        groups = Groups()
        groups.put_node("v", NODE_STATES[0])
        for number in range(1000):
            groups.put_pod(GROUPS[0], f"p{number}", Demand(selector=(("name", str(number)),)), job_uid="unknown")
        assert groups.found() == []
        assert evaluated == {"groups": 1}

    def test_a_group_that_asks_for_too_much_is_not_examined_and_keeps_no_node_from_quarantine(
        self, evaluated: Counter[str]
    ) -> None:
        groups = Groups()
        for name in "vw":
            groups.put_node(name, NODE_STATES[0])
        for number in range(COST_MAX // 2):
            groups.put_pod(GROUPS[0], f"p{number}", Demand(selector=(("name", str(number)), ("x", ""))))
        groups.put_pod(GROUPS[1], "p", DEMANDS[0])
        assert groups.found() == [WaitingGroup(GROUPS[1], 2, ("v", "w"))]
        assert evaluated == {"groups": 2, "demands": 1}

    def test_no_one_waits_until_many_are_counted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pending_groups, "COST_AT_ONCE_MAX", 5)
        groups = Groups()
        groups.put_node("v", NODE_STATES[0])
        for key in GROUPS:
            groups.put_pod(key, "p", DEMANDS[1])
        assert groups.waiting.besides(NO_ONE) is None
        assert groups.found() == groups.plainly(), "what has been counted need not be counted again"

    def test_groups_that_wait_no_more_leave_nothing(self) -> None:
        groups = Groups()
        for key in GROUPS:
            groups.put_pod(key, "p", DEMANDS[1])
        groups.found()
        for key in GROUPS:
            groups.put_pod(key, "p", None)
        waiting = groups.waiting
        assert (waiting._counted, waiting._changed, waiting._moved, groups.to_place._counts) == ({}, {}, {}, {})


class TestInTheBackground:
    async def test_a_group_is_told_as_soon_as_it_is_known(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        """The reconcile that asks does not wait for the answer."""
        monkeypatch.setattr(capacity_module, "NODES_AT_ONCE_MAX", 2)
        await tell_llm(world, unplaced(0), leaving(1))
        snapshot = msgspec.structs.replace(world.llm, key=GroupKey("default", "mine"))
        world.notified.clear()
        found = world.store._fleet.facts(snapshot)
        assert (found.feasible, found.waiting) == (None, None)
        assert found.nodes == 5, "what is at hand is told"
        assert not world.notified
        await world.settle()
        assert world.notified == {"default/mine": 1}
        found = world.store._fleet.facts(snapshot)
        assert found.feasible == ("n0", "n1", "n2", "n3", "n4")
        assert [each.key for each in found.waiting or ()] == [LLM]

    async def test_many_changes_are_taken_account_of_in_slices_before_anybody_asks(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (capacity_module, fleet_facts_module):
            monkeypatch.setattr(module, "NODES_AT_ONCE_MAX", 2)
        slices: list[int] = []
        index_some = Capacity.index_some

        def counting(capacity: Capacity, most: int) -> None:
            slices.append(min(most, capacity.behind))
            index_some(capacity, most)

        monkeypatch.setattr(Capacity, "index_some", counting)
        await world.tell(NODES, *(node_body(f"n{number}") for number in range(5)))
        assert slices == [2, 2, 1]

    async def test_pods_of_a_job_of_another_group_make_no_one_wait(self, world: World) -> None:
        await tell_llm(world, pod(0), pod(1))
        await world.tell(PODS, unplaced(2, jobset_name="llm") | {"spec": {}})
        assert [each.key for each in await waiting(world)] == [LLM]
        stray = unplaced(2)
        stray["metadata"]["ownerReferences"][0]["uid"] = f"not-{JOB_UID}"
        await world.tell(PODS, stray)
        assert await waiting(world) == ()
