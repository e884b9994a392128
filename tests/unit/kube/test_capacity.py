"""Which nodes would take which pods, and how long an answer holds."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recovery.core.model.facts import Condition, Demand, LabelRequirement, NodeFacts, PodFacts, Taint, Toleration
from recovery.kube.capacity import ANSWERS_MAX, CHANGES_MAX, Capacity, pods_per_node
from tests.unit.kube.testing import START

ANY = Demand()
EVERYTHING = Demand(tolerations=(Toleration(operator="Exists"),))


def node(
    name: str = "a", *, gpus: int = 8, taint: str = "", effect: str = "NoSchedule", **changes: object
) -> NodeFacts:
    taints = (Taint(taint, effect=effect),) if taint else ()
    return msgspec.structs.replace(NodeFacts(name, ready=True, gpus=gpus, taints=taints), **changes)


STATES = (node(), node(gpus=4), node(ready=False), node(taint="node.kubernetes.io/not-ready"), node(taint="x"), None)


def capacity(*nodes: NodeFacts) -> Capacity:
    return Capacity({each.name: each for each in nodes})


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
        assert list(nodes.room((requires((requirement,)),)).feasible) == wanted

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
        """An empty term matches nothing, and no term at all does not either."""
        fast = node("b", labels={"gpu": "h100", "fast": ""})
        nodes = capacity(node("a", labels={"gpu": "h100"}), fast, node("c", labels={"gpu": "a100"}))
        assert "".join(nodes.room((demand,)).feasible) == feasible


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
        room = capacity(node(**state), node("b")).room((ANY,))  # type: ignore[arg-type]
        assert (room.feasible, room.in_all) == (("b",), 2)

    @pytest.mark.parametrize("other", [{"taint": "team-b"}, {"gpus": 4}])
    def test_one_of_another_kind_is_not(self, other: dict[str, object]) -> None:
        room = capacity(node(**other), node("b")).room((Demand(gpus=8),))  # type: ignore[arg-type]
        assert (room.feasible, room.in_all) == (("b",), 1)

    def test_what_a_pod_tolerates_lets_it_in(self) -> None:
        nodes = capacity(node("a", taint="node.kubernetes.io/disk-pressure"), node("b", taint="team-b"))
        assert nodes.room((EVERYTHING,)).feasible == ("a", "b")

    def test_the_pod_that_tolerates_the_state_must_be_the_one_that_fits(self) -> None:
        large = Demand(gpus=8)
        small = Demand(gpus=16, tolerations=EVERYTHING.tolerations)
        room = capacity(node(taint="node.kubernetes.io/disk-pressure")).room((large, small))
        assert (room.feasible, room.in_all) == ((), 1)


class TestPodsPerNode:
    def test_by_the_accelerators_of_the_smallest_feasible_node(self) -> None:
        nodes = capacity(node("a", gpus=16), node("b", gpus=32), node("c", gpus=8, ready=False))
        assert pods_per_node(nodes.room((Demand(gpus=8),)), ()) == 2

    def test_one_where_none_is_feasible(self) -> None:
        assert pods_per_node(capacity().room((Demand(gpus=8),)), ()) == 1

    def test_of_pods_without_as_many_as_share_one(self) -> None:
        pods = [PodFacts(f"p{number}", f"p{number}", "job", "job", number, START, node="a") for number in range(3)]
        assert pods_per_node(capacity(node()).room((ANY,)), pods) == 3


class TestRemembered:
    def test_until_a_node_changes_in_what_counts(self) -> None:
        nodes = {"a": node("a")}
        asked = Capacity(nodes)
        first = asked.room((ANY,))
        news = node("a", conditions=(Condition("GpuUnhealthy", "True"),), resource_version="9", lease_renewed_at=START)
        asked.changed(nodes["a"], news)
        assert asked.room((ANY,)) is first, "that a condition is new lets no pod in and keeps none off"
        nodes["a"] = node("a", unschedulable=True)
        asked.changed(news, nodes["a"])
        assert asked.room((ANY,)).feasible == ()

    @pytest.mark.parametrize(
        "change",
        [
            {"ready": False},
            {"unschedulable": True},
            {"deleting_since": START},
            {"gpus": 4},
            {"taints": (Taint("t"),)},
            {"labels": {"gpu": "a100"}},
        ],
    )
    def test_each_of_these_counts(self, change: dict[str, object]) -> None:
        demand = Demand(gpus=8, selector=(("gpu", "h100"),))
        before = node(labels={"gpu": "h100"})
        nodes = {"a": before}
        asked = Capacity(nodes)
        assert asked.room((demand,)).feasible == ("a",)
        nodes["a"] = msgspec.structs.replace(before, **change)
        asked.changed(before, nodes["a"])
        assert asked.room((demand,)).feasible == ()

    @given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(STATES), st.booleans()), max_size=12))
    @settings(max_examples=60, deadline=None)
    def test_after_any_changes_it_answers_as_if_it_were_asked_for_the_first_time(
        self, changes: list[tuple[str, NodeFacts | None, bool]]
    ) -> None:
        """`None`: the node is gone. The booleans: whether somebody asks in between."""
        nodes: dict[str, NodeFacts] = {}
        asked = Capacity(nodes)
        asks = ((ANY,), (Demand(gpus=8),), (Demand(gpus=4), EVERYTHING))
        for name, state, now in changes:
            before = nodes.pop(name, None)
            after = msgspec.structs.replace(state, name=name) if state is not None else None
            if after is not None:
                nodes[name] = after
            asked.changed(before, after)
            if now:
                asked.room(asks[0])
        assert [asked.room(each) for each in asks] == [Capacity(nodes).room(each) for each in asks]

    def test_only_what_has_changed_is_reconciled(self, monkeypatch: pytest.MonkeyPatch) -> None:
        nodes = {f"n{number}": node(f"n{number}") for number in range(50)}
        asked = Capacity(nodes)
        asked.room((ANY,))
        rechecked: list[str] = []

        def fits(_: Demand, each: NodeFacts) -> bool:
            rechecked.append(each.name)
            return False

        monkeypatch.setattr("recovery.kube.capacity._fits", fits)
        before, nodes["n7"] = nodes["n7"], node("n7", ready=False)
        asked.changed(before, nodes["n7"])
        assert rechecked == [], "an event looks at nothing"
        asked.room((ANY,))
        asked.room((ANY,))
        assert rechecked == ["n7"]

    def test_however_many_ask_for_something_else_few_answers_are_kept(self) -> None:
        asked = capacity(node())
        for number in range(3 * ANSWERS_MAX):
            asked.room((Demand(selector=(("group", str(number)),)),))
        assert len(asked._answers) <= ANSWERS_MAX

    def test_however_often_nodes_change_while_nobody_asks_little_is_written_down(self) -> None:
        nodes = {"a": node()}
        asked = Capacity(nodes)
        asked.room((ANY,))
        for ready in [False, True] * CHANGES_MAX + [False]:
            before, nodes["a"] = nodes["a"], node(ready=ready)
            asked.changed(before, nodes["a"])
        assert len(asked._changes) <= CHANGES_MAX
        assert asked.room((ANY,)).feasible == ()
