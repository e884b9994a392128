"""Accelerators in use: the count kept from events equals the count over all pods."""

from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.model.demand import Demand
from recovery.core.model.facts import GroupKey, NodeFacts, PodFacts
from recovery.kube.capacity import Capacity
from recovery.kube.gpus_in_use import OTHERS_KNOWN_FOR, GpusInUse, NodeUse
from recovery.kube.projections.pods import PodRecord
from tests.unit.kube.testing import START

KEY = GroupKey("ml", "a")


def record(name: str, node: str = "", *, gpus: int = 8, phase: str = "Running", claimed: int = 0) -> PodRecord:
    """`claimed`: accelerators from DRA claims."""
    demand = Demand(gpus=gpus)
    facts = PodFacts(name, name, "j", "j", 0, START, node=node, phase=phase, gpus=gpus or claimed, demand=demand)
    return PodRecord(KEY, "node", facts)


class Pods:
    """Pods as the informers report them, and the index."""

    def __init__(self) -> None:
        self.pods: dict[str, PodRecord] = {}
        self.in_use = GpusInUse()
        self.told: list[tuple[str, int, int]] = []
        self.in_use.follow(lambda *args: self.told.append(args))

    def put(self, name: str, after: PodRecord | None) -> None:
        before = self.pods.pop(name, None)
        if after is not None:
            self.pods[name] = after
        self.in_use.pod_changed(before, after)

    def plainly(self) -> dict[str, int]:
        found: Counter[str] = Counter()
        for each in self.pods.values():
            if each.facts.node and each.facts.phase not in {"Succeeded", "Failed"}:
                found[each.facts.node] += each.facts.demand.gpus
        return {node: gpus for node, gpus in found.items() if gpus}


RECORDS = st.builds(
    record,
    st.just("p"),
    st.sampled_from(["", "v", "w"]),
    gpus=st.sampled_from([0, 4, 8]),
    phase=st.sampled_from(["Pending", "Running", "Succeeded", "Failed"]),
)
NODES = st.builds(
    NodeFacts, st.sampled_from("vwx"), ready=st.booleans(), gpus=st.sampled_from([0, 8, 16]), labels=st.just({})
)
CHANGES = st.one_of(
    st.tuples(st.just("pod"), st.sampled_from("pqr"), st.none() | RECORDS),
    st.tuples(st.just("node"), NODES, st.booleans()),
    st.just(("asked",)),
)


@given(st.lists(CHANGES, max_size=25))
@settings(max_examples=300)
def test_after_any_changes_it_is_what_counting_all_of_them_gives(changes: list[tuple[Any, ...]]) -> None:
    """Pods may be known before their nodes and outlive them. Nodes are indexed on demand."""
    nodes: dict[str, NodeFacts] = {}
    pods, capacity = Pods(), Capacity(nodes)
    pods.in_use.follow(lambda node, _, gpus: capacity.use(node, gpus))

    def as_counted() -> bool:
        assert capacity.current()
        every = capacity.nodes_called(nodes)
        found = {name: places for places, having in capacity.free_for(every, 4) for name in capacity.names(having)}
        free = {name: (each.gpus - pods.plainly().get(name, 0)) // 4 for name, each in nodes.items()}
        return pods.in_use.by_node() == pods.plainly() and found == {n: more for n, more in free.items() if more > 0}

    for what, *change in changes:
        match what:
            case "pod":
                pods.put(*change)
            case "node":
                node, gone = change
                before = nodes.pop(node.name, None)
                if not gone:
                    nodes[node.name] = node
                capacity.changed(before, None if gone else node)
            case _:
                assert as_counted()
    assert as_counted()


class TestWhoCounts:
    @pytest.mark.parametrize(
        ("pod", "in_use"),
        [
            (record("p"), {}),
            (record("p", "v", phase="Pending"), {"v": 8}),
            (record("p", "v"), {"v": 8}),
            (record("p", "v", phase="Succeeded"), {}),
            (record("p", "v", phase="Failed"), {}),
            (record("p", "v", gpus=0), {}),
            (record("p", "v", gpus=0, claimed=8), {}),
        ],
    )
    def test_a_pod_from_its_binding_until_it_has_ended(self, pod: PodRecord, in_use: dict[str, int]) -> None:
        """Devices of DRA claims are not part of a node's allocatable resources."""
        pods = Pods()
        pods.put("p", pod)
        assert pods.in_use.by_node() == in_use
        pods.put("p", None)
        assert (pods.in_use._by_groups, pods.in_use.by_node()) == ({}, {}), "nothing is left behind"

    def test_pods_that_share_a_node_add_up(self) -> None:
        pods = Pods()
        pods.put("p", record("p", "v", gpus=4))
        pods.put("q", record("q", "v", gpus=2))
        assert pods.in_use.by_node() == {"v": 6}
        pods.put("p", None)
        assert pods.in_use.by_node() == {"v": 2}

    def test_who_follows_later_is_told_what_is_in_use(self) -> None:
        pods = Pods()
        pods.put("p", record("p", "v"))
        told: list[tuple[str, int, int]] = []
        pods.in_use.follow(lambda *args: told.append(args))
        assert told == [("v", 0, 8)]


class TestOthers:
    def test_what_they_held_is_remembered_for_a_while(self) -> None:
        pods = Pods()
        pods.put("p", record("p", "v", gpus=4))
        pods.in_use.looked_at({"v": NodeUse(gpus=6, by_others=2), "w": NodeUse(gpus=0, by_others=0)}, START)
        assert pods.in_use.by_node() == {"v": 6}
        pods.put("p", None)
        pods.in_use.forget(START + OTHERS_KNOWN_FOR - timedelta(seconds=1))
        assert pods.in_use.by_node() == {"v": 2}
        pods.in_use.forget(START + OTHERS_KNOWN_FOR)
        assert pods.in_use.by_node() == {}
        assert pods.told == [("v", 0, 4), ("v", 4, 6), ("v", 6, 2), ("v", 2, 0)]

    def test_the_latest_look_counts_and_those_that_are_newer_stay(self) -> None:
        pods, later = Pods(), START + timedelta(seconds=60)
        pods.in_use.looked_at({"v": NodeUse(8, 8), "w": NodeUse(8, 8)}, START)
        pods.in_use.looked_at({"v": NodeUse(2, 2)}, later)
        pods.in_use.forget(START + OTHERS_KNOWN_FOR)
        assert pods.in_use.by_node() == {"v": 2}
        pods.in_use.looked_at({"v": NodeUse(0, 0)}, later)
        assert pods.in_use._by_others == {}, "nothing is left behind"


class TestCost:
    def test_news_that_change_nothing_are_told_to_no_one(self) -> None:
        """Most events of a pod are status reports of its kubelet."""
        pods = Pods()
        pods.put("p", record("p", "v", phase="Pending"))
        for _ in range(1000):
            pods.put("p", record("p", "v"))
        assert pods.told == [("v", 0, 8)]

    def test_an_event_changes_one_node_however_many_there_are(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Counts what an event touches in the index: the node's bit in the set that the node leaves, and in the one
        that it joins."""
        nodes = {f"n{number}": NodeFacts(f"n{number}", ready=True, gpus=8) for number in range(2000)}
        capacity, pods = Capacity(nodes), Pods()
        pods.in_use.follow(lambda node, _, gpus: capacity.use(node, gpus))
        capacity.index_some(len(nodes))
        for number in range(1000):
            pods.put(f"p{number}", record(f"p{number}", f"n{number}"))
        touched: list[str] = []
        monkeypatch.setattr(Capacity, "use", lambda capacity, node, gpus: touched.append(node))
        monkeypatch.setattr("recovery.kube.node_index.NodeIndex.put", None)
        pods.put("p7", record("p7", "n7", phase="Failed"))
        pods.put("p7", None)
        assert touched == ["n7"]
        assert len(capacity._index._with_free) == 2, "one set for each number of free accelerators"

    def test_nodes_that_come_and_go_leave_nothing(self) -> None:
        nodes: dict[str, NodeFacts] = {}
        capacity, pods = Capacity(nodes), Pods()
        pods.in_use.follow(lambda node, _, gpus: capacity.use(node, gpus))
        for number in range(500):
            name = f"n{number}"
            pods.put(name, record(name, name, gpus=number + 1))
            nodes[name] = NodeFacts(name, ready=True, gpus=number)
            capacity.changed(None, nodes[name])
            assert capacity.current()
            capacity.changed(nodes.pop(name), None)
            assert capacity.current()
            pods.put(name, None)
        assert (capacity._index._in_use, capacity._index._with_free) == ({}, {})
