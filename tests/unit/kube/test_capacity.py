"""Which nodes would take which pods, and how long an answer stays valid."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.model.demand import Demand, LabelRequirement, Toleration
from recovery.core.model.facts import Condition, NodeFacts, PodFacts, Taint
from recovery.kube import capacity as capacity_module
from recovery.kube.capacity import COST_MAX, DEMANDS_KEPT_MAX, NODES_AT_ONCE_MAX, Capacity, PodRoom, pods_per_node
from recovery.kube.node_index import NodeIndex
from tests.unit.kube.plain_capacity import plain_room
from tests.unit.kube.testing import START

ANY = Demand()
EVERYTHING = Demand(tolerations=(Toleration(operator="Exists"),))


def node(
    name: str = "a", *, gpus: int = 8, taint: str = "", effect: str = "NoSchedule", **changes: object
) -> NodeFacts:
    taints = (Taint(taint, effect=effect),) if taint else ()
    return msgspec.structs.replace(NodeFacts(name, ready=True, gpus=gpus, taints=taints), **changes)


LABELS: tuple[dict[str, str], ...] = (
    {},
    {"gpu": "h100"},
    {"gpu": "h100", "memory": "80"},
    {"gpu": "a100", "memory": "forty"},
    {"memory": "-5"},
)
TAINTS = (
    Taint("team", "a"),
    Taint("team", "b", effect="NoExecute"),
    Taint("team", "b", effect="PreferNoSchedule"),
    Taint("node.kubernetes.io/not-ready", effect="NoExecute"),
    Taint("recovery.trainjob.dev/quarantined", "i-1"),
)
TOLERATIONS = (
    Toleration(operator="Exists"),
    Toleration("team", operator="Exists", effect="NoExecute"),
    Toleration("team", value="a"),
    Toleration("team", operator="Gt", value="a"),
    Toleration("node.kubernetes.io/not-ready", operator="Exists"),
)
REQUIREMENTS = st.builds(
    LabelRequirement,
    st.sampled_from(["gpu", "memory", "other"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Near"]),
    st.lists(st.sampled_from(["h100", "a100", "80", "40", "-5"]), max_size=2).map(tuple),
)
DEMANDS = st.builds(
    Demand,
    selector=st.sampled_from([(), (("gpu", "h100"),), (("gpu", "h100"), ("memory", "80")), (("other", ""),)]),
    affinity=st.none() | st.lists(st.lists(REQUIREMENTS, max_size=2).map(tuple), max_size=2).map(tuple),
    tolerations=st.lists(st.sampled_from(TOLERATIONS), max_size=2).map(tuple),
    gpus=st.sampled_from([0, 4, 8, 16]),
)
NODES = st.builds(
    NodeFacts,
    st.sampled_from("abcdefgh"),
    ready=st.booleans(),
    unschedulable=st.sampled_from([False, False, True]),
    deleting_since=st.sampled_from([None, None, START]),
    gpus=st.sampled_from([0, 4, 8, 16]),
    labels=st.sampled_from(LABELS),
    taints=st.lists(st.sampled_from(TAINTS), max_size=2).map(tuple),
)


def capacity(*nodes: NodeFacts) -> Capacity:
    return Capacity({each.name: each for each in nodes})


def room(asked: Capacity, *demands: Demand) -> PodRoom:
    found = asked.room(demands)
    assert found is not None
    return found


def requires(*terms: tuple[LabelRequirement, ...]) -> Demand:
    return Demand(affinity=terms)


def label(operator: str, *values: str, key: str = "gpu") -> LabelRequirement:
    return LabelRequirement(key, operator, values)


class TestAffinity:
    """`k8s.io/component-helpers/scheduling/corev1/nodeaffinity`, `k8s.io/apimachinery/pkg/labels`."""

    @pytest.mark.parametrize(
        ("requirement", "h100", "without"),
        [
            (label("In", "a100", "h100"), True, False),
            (label("In", "a100"), False, False),
            (label("NotIn", "a100"), True, True),
            (label("NotIn", "a100", "h100"), False, True),
            (label("Exists"), True, False),
            (label("DoesNotExist"), False, True),
            (label("Near", "h100"), False, False),
            (label("Gt", "40", key="memory"), True, False),
            (label("Gt", "80", key="memory"), False, False),
            (label("Lt", "81", key="memory"), True, False),
            (label("Lt", "80", key="memory"), False, False),
            (label("Gt", "40", "50", key="memory"), False, False),
            (label("Gt", "forty", key="memory"), False, False),
            (label("Lt", "9", key="gpu"), False, False),
        ],
    )
    def test_what_each_operator_asks_of_a_label(self, requirement: LabelRequirement, h100: bool, without: bool) -> None:
        nodes = capacity(node("h100", labels={"gpu": "h100", "memory": "80"}), node("without"))
        wanted = [name for name, fits in (("h100", h100), ("without", without)) if fits]
        assert list(room(nodes, requires((requirement,))).feasible) == wanted

    @pytest.mark.parametrize(
        ("demand", "feasible"),
        [
            (requires((label("In", "h100"), label("Exists", key="fast"))), "b"),
            (requires((label("In", "h100"),), (label("In", "a100"),)), "abc"),
            (requires((), (label("In", "a100"),)), "c"),
            (requires(()), ""),
            (requires(), ""),
            (Demand(selector=(("gpu", "h100"),), affinity=((label("Exists", key="fast"),),)), "b"),
        ],
    )
    def test_all_of_one_term_and_the_selector_as_well(self, demand: Demand, feasible: str) -> None:
        """An empty term matches nothing, and neither does an empty list of terms."""
        fast = node("b", labels={"gpu": "h100", "fast": ""})
        nodes = capacity(node("a", labels={"gpu": "h100"}), fast, node("c", labels={"gpu": "a100"}))
        assert "".join(room(nodes, demand).feasible) == feasible


class TestStates:
    @pytest.mark.parametrize(
        "state",
        [
            {"ready": False},
            {"unschedulable": True},
            {"deleting_since": START},
            {"taint": "node.kubernetes.io/not-ready"},
            {"taint": "node.kubernetes.io/unreachable", "effect": "NoExecute"},
            {"taint": "recovery.trainjob.dev/quarantined"},
        ],
    )
    def test_a_node_that_takes_nothing_at_the_moment_is_one_of_the_kind(self, state: dict[str, object]) -> None:
        found = room(capacity(node(**state), node("b")), ANY)  # type: ignore[arg-type]
        assert (found.feasible, found.in_all) == (("b",), 2)

    @pytest.mark.parametrize("other", [{"taint": "team-b"}, {"gpus": 4}])
    def test_one_of_another_kind_is_not(self, other: dict[str, object]) -> None:
        found = room(capacity(node(**other), node("b")), Demand(gpus=8))  # type: ignore[arg-type]
        assert (found.feasible, found.in_all) == (("b",), 1)

    def test_what_a_pod_tolerates_lets_it_in(self) -> None:
        nodes = capacity(node("a", taint="node.kubernetes.io/disk-pressure"), node("b", taint="team-b"))
        assert room(nodes, EVERYTHING).feasible == ("a", "b")

    def test_the_pod_that_tolerates_the_state_must_be_the_one_that_fits(self) -> None:
        large = Demand(gpus=8)
        small = Demand(gpus=16, tolerations=EVERYTHING.tolerations)
        found = room(capacity(node(taint="node.kubernetes.io/disk-pressure")), large, small)
        assert (found.feasible, found.in_all) == ((), 1)


class TestPodsPerNode:
    def test_by_the_accelerators_of_the_smallest_feasible_node(self) -> None:
        nodes = capacity(node("a", gpus=16), node("b", gpus=32), node("c", gpus=8, ready=False))
        assert pods_per_node(room(nodes, Demand(gpus=8)), ()) == 2

    def test_one_where_none_is_feasible(self) -> None:
        assert pods_per_node(room(capacity(), Demand(gpus=8)), ()) == 1

    def test_of_pods_without_as_many_as_share_one(self) -> None:
        pods = [PodFacts(f"p{number}", f"p{number}", "job", "job", number, START, node="a") for number in range(3)]
        assert pods_per_node(room(capacity(node()), ANY), pods) == 3


class TestAsPlainlyDefined:
    @given(st.lists(st.tuples(NODES, st.booleans(), st.booleans()), max_size=16), st.lists(DEMANDS, max_size=4))
    @settings(max_examples=300)
    def test_after_any_changes(self, changes: list[tuple[NodeFacts, bool, bool]], demands: list[Demand]) -> None:
        """The booleans: whether the node is gone, and whether a query follows the change."""
        nodes: dict[str, NodeFacts] = {}
        asked = Capacity(nodes)
        wanted = tuple(dict.fromkeys(demands))
        for after, gone, now in changes:
            before = nodes.pop(after.name, None)
            if not gone:
                nodes[after.name] = after
            asked.changed(before, None if gone else after)
            if now:
                assert asked.room(wanted) == plain_room(wanted, nodes.values())
        assert asked.room(wanted) == plain_room(wanted, nodes.values())

    @given(st.lists(st.tuples(NODES, st.booleans()), max_size=16), st.lists(DEMANDS, min_size=1, max_size=4))
    @settings(max_examples=100)
    def test_nodes_that_still_fit_need_not_be_found_again(
        self, changes: list[tuple[NodeFacts, bool]], demands: list[Demand]
    ) -> None:
        nodes: dict[str, NodeFacts] = {}
        asked = Capacity(nodes)
        wanted = tuple(dict.fromkeys(demands))
        fitting = asked.fitting(wanted)
        for after, gone in changes:
            before = nodes.pop(after.name, None)
            if not gone:
                nodes[after.name] = after
            asked.changed(before, None if gone else after)
            assert asked.current()
            if not asked.still_fit(fitting):
                fitting = asked.fitting(wanted)
            assert asked.room_on(fitting) == plain_room(wanted, nodes.values())


def pinned(name: str) -> Demand:
    return Demand(selector=(("kubernetes.io/hostname", name),), gpus=8)


class Counted:
    """Counts the demands that were compared with the index, and the nodes that were indexed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.demands = self.nodes = 0
        matching, put = capacity_module._matching_demand, NodeIndex.put

        def count_demand(demand: Demand, index: NodeIndex) -> int:
            self.demands += 1
            return matching(demand, index)

        def count_node(index: NodeIndex, each: NodeFacts) -> None:
            self.nodes += 1
            put(index, each)

        monkeypatch.setattr(capacity_module, "_matching_demand", count_demand)
        monkeypatch.setattr(NodeIndex, "put", count_node)


class TestCost:
    def test_an_event_examines_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {f"n{number}": node(f"n{number}") for number in range(50)}
        asked = Capacity(nodes)
        asked.room((ANY,))
        counted = Counted(monkeypatch)
        before, nodes["n7"] = nodes["n7"], node("n7", ready=False)
        asked.changed(before, nodes["n7"])
        assert (counted.nodes, counted.demands) == (0, 0)
        asked.room((ANY,))
        asked.room((ANY,))
        assert (counted.nodes, counted.demands) == (1, 0), "only the node, as it is of the same kind"

    def test_news_that_decide_nothing_count_for_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {"a": node("a")}
        asked = Capacity(nodes)
        asked.room((ANY,))
        counted = Counted(monkeypatch)
        news = node("a", conditions=(Condition("GpuUnhealthy", "True"),), resource_version="9", lease_renewed_at=START)
        asked.changed(nodes["a"], news)
        assert asked.room((ANY,)) is not None
        assert (counted.nodes, asked.behind) == (0, 0)

    def test_each_demand_is_examined_once_however_many_nodes_and_askers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = [f"n{number}" for number in range(NODES_AT_ONCE_MAX)]
        asked = capacity(*(node(name, labels={"kubernetes.io/hostname": name}) for name in names))
        counted = Counted(monkeypatch)
        demands = tuple(pinned(name) for name in names)
        for _ in range(20):
            found = asked.room(demands)
        assert found is not None
        assert len(found.feasible) == len(names)
        assert (counted.demands, counted.nodes) == (len(names), len(names))

    def test_a_node_that_comes_has_every_demand_examined_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {"a": node("a")}
        asked = Capacity(nodes)
        asked.room((ANY,))
        counted = Counted(monkeypatch)
        nodes["b"] = node("b")
        asked.changed(None, nodes["b"])
        assert room(asked, ANY).feasible == ("a", "b")
        assert counted.demands == 1

    def test_few_demands_are_remembered_and_the_latest_stay(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = capacity(node())
        for number in range(2 * DEMANDS_KEPT_MAX):
            asked.room((pinned(str(number)),))
            asked.room((ANY,))
        assert len(asked._fitting) <= DEMANDS_KEPT_MAX
        counted = Counted(monkeypatch)
        asked.room((ANY,))
        asked.room((pinned(str(2 * DEMANDS_KEPT_MAX - 1)),))
        assert counted.demands == 0

    @pytest.mark.parametrize(
        "demand",
        [
            Demand(selector=tuple((str(number), "") for number in range(COST_MAX))),
            requires((label("In", *map(str, range(COST_MAX))),)),
            Demand(tolerations=tuple(Toleration(str(number)) for number in range(COST_MAX))),
        ],
    )
    def test_who_asks_for_too_much_gets_no_answer(self, demand: Demand, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = capacity(node(taint="team"))
        counted = Counted(monkeypatch)
        assert asked.room((demand,)) is None
        assert counted.demands == 0

    def test_after_many_nodes_have_changed_no_one_waits_for_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {f"n{number}": node(f"n{number}") for number in range(NODES_AT_ONCE_MAX + 1)}
        asked = Capacity(nodes)
        counted = Counted(monkeypatch)
        assert asked.room((ANY,)) is None
        assert counted.nodes == 0
        asked.index_some(NODES_AT_ONCE_MAX)
        assert (counted.nodes, asked.behind) == (NODES_AT_ONCE_MAX, 1)
        assert room(asked, ANY).in_all == len(nodes)

    def test_groups_that_could_run_on_the_same_nodes_share_their_names(self) -> None:
        asked = capacity(*(node(f"n{number}") for number in range(NODES_AT_ONCE_MAX)))
        assert room(asked, ANY).feasible is room(asked, Demand(gpus=8)).feasible
        assert asked.naming_cost == NODES_AT_ONCE_MAX // 20, "the second costs nothing"

    def test_few_nodes_of_many_have_the_same_names(self) -> None:
        names = [f"n{number}" for number in range(100)]
        asked = capacity(*(node(name, labels={"kubernetes.io/hostname": name}) for name in names))
        assert room(asked, pinned("n7"), pinned("n31"), pinned("n2")).feasible == ("n2", "n31", "n7")

    def test_nodes_that_come_and_go_leave_nothing(self) -> None:
        nodes: dict[str, NodeFacts] = {}
        asked = Capacity(nodes)
        for number in range(1000):
            name = f"n{number}"
            nodes[name] = node(name, gpus=number, taint=f"t{number}", labels={f"key-{number}": "x", "name": name})
            asked.changed(None, nodes[name])
            assert asked.current()
            asked.changed(nodes.pop(name), None)
        assert room(asked, ANY) == PodRoom()
        index = asked._index
        kept = (index._nodes, index._bits, index._with_key, index._with_label, index._with_gpus, index._with_taint)
        assert [len(each) for each in kept] == [0] * len(kept)
        assert len(index._names) == 1, "the bit is used again"
