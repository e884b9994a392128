"""How long a group waits for a lost node, and on which nodes its pods may run again."""

from typing import Any

import pytest

from recovery.launch.places import Place
from recovery.launch.recoverability import nodes
from recovery.launch.recoverability.effective import patience_seconds
from tests.unit.launch.groups import LOST_NODE, PODS, group, job, names, only, patience, pods, tolerations

NOT_READY, UNREACHABLE = LOST_NODE


@pytest.mark.parametrize(
    ("each", "seconds"),
    [
        ([], 300),  # the API server adds it
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "seconds": 30}], 30),
        ([{"key": NOT_READY, "operator": "Exists", "seconds": 30}], 30),  # no effect: any effect
        ([{"key": NOT_READY, "effect": "NoExecute", "seconds": 30}], 30),  # Equal, with the taint's own empty value
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}], None),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "seconds": -5}], 0),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], 300),  # another effect
        ([{"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"}], 300),  # another taint
        (
            [{"key": NOT_READY, "value": "yes", "effect": "NoExecute", "seconds": 30}],
            0,
        ),  # matches no taint without a value
        ([{"operator": "Exists", "effect": "NoExecute"}], None),  # every key
        ([{"operator": "Exists"}, {"key": NOT_READY, "operator": "Exists", "seconds": 60}], 60),  # the shortest applies
    ],
)
def test_patience_with_a_lost_node(each: list[dict[str, Any]], seconds: int | None) -> None:
    assert patience_seconds(pods(tolerations=tolerations(*each)), NOT_READY) == seconds


def test_a_prepared_group_has_nothing_to_fix() -> None:
    assert names(nodes.check(group())) == []


def test_the_default_patience_is_told_with_the_time_that_it_costs() -> None:
    finding = only(nodes.check(group(job(pods(tolerations=())))))
    assert finding.message == (
        "a lost node is marked after about 50 s, and its pods are given up another 300 s later (the default "
        "tolerationSeconds): 128 GPUs wait for 5 min 50 s before anything is done"
    )
    assert finding.fix == (
        "tolerate node.kubernetes.io/not-ready and node.kubernetes.io/unreachable, each with operator: Exists, "
        "effect: NoExecute and tolerationSeconds: 30"
    )
    assert finding.place == PODS


@pytest.mark.parametrize(("seconds", "told"), [(0, False), (60, False), (61, True)])
def test_patience_beyond_a_minute_is_told(seconds: int, told: bool) -> None:
    found = list(nodes.check(group(job(pods(tolerations=patience(seconds))))))
    assert names(found) == (["node-loss-noticed-late"] if told else [])
    assert [each.place for each in found] == ([PODS / "tolerations" / 0 / "tolerationSeconds"] if told else [])


def test_the_longer_of_the_two_counts() -> None:
    """A node whose kubelet stops is not-ready. A node that is cut off is unreachable."""
    one = tolerations({"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "seconds": 30})
    finding = only(nodes.check(group(job(pods(tolerations=one)), gpus_per_pod=0)))
    assert "300 s later (the default tolerationSeconds): 16 pods wait for 5 min 50 s" in finding.message


@pytest.mark.parametrize(
    ("seconds", "place"),
    [(None, PODS / "tolerations" / 1), (90, PODS / "tolerations" / 1 / "tolerationSeconds")],
)
def test_a_toleration_of_another_effect_is_not_the_line_to_change(seconds: int | None, place: Place) -> None:
    """The NoSchedule toleration only allows new pods on the node."""
    each = tolerations(
        {"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule", "seconds": seconds},
        {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "seconds": seconds},
        {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "seconds": 30},
    )
    assert only(nodes.check(group(job(pods(tolerations=each))))).place == place


def test_the_line_to_change_is_that_of_the_longer_one() -> None:
    each = tolerations(
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoExecute", "seconds": 90},
        {"key": NOT_READY, "operator": "Exists", "effect": "NoExecute", "seconds": 30},
        {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "seconds": 90},
    )
    finding = only(nodes.check(group(job(pods(tolerations=each)))))
    assert finding.place == PODS / "tolerations" / 2 / "tolerationSeconds"


def test_no_one_waits_where_there_is_one_pod() -> None:
    assert names(nodes.check(group(job(pods(tolerations=())), nodes=1))) == []


def test_a_runtime_by_itself_may_become_a_group() -> None:
    found = only(nodes.check(group(job(pods(tolerations=())), nodes=1, runtime_alone=True)))
    assert "the whole group waits for 5 min 50 s" in found.message


def test_patience_for_ever_is_told_once() -> None:
    finding = only(nodes.check(group(job(pods(tolerations=patience(None))))))
    assert (finding.code.name, finding.place) == ("tolerates-lost-node", PODS / "tolerations" / 0)
    assert "never given up, and 128 GPUs wait for it" in finding.message


def test_patience_for_ever_with_one_of_them_is_more_telling_than_the_default_with_the_other() -> None:
    each = tolerations(
        {"key": "nvidia.com/gpu", "operator": "Exists"},
        {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute"},
    )
    finding = only(nodes.check(group(job(pods(tolerations=each)))))
    assert (finding.code.name, finding.place) == ("tolerates-lost-node", PODS / "tolerations" / 1)
    assert finding.message.startswith("a toleration of node.kubernetes.io/unreachable without tolerationSeconds")


def test_every_taint_of_every_node_is_more_telling_than_those_of_a_lost_one() -> None:
    finding = only(nodes.check(group(job(pods(tolerations=tolerations({"operator": "Exists"}))))))
    assert finding.code.name == "tolerates-everything"
    assert finding.message.endswith("(recovery.trainjob.dev/quarantined), and stay on a lost one for ever")


def test_every_taint_against_scheduling_lets_pods_come_back_to_a_broken_node() -> None:
    each = (*patience(30), *tolerations({"operator": "Exists", "effect": "NoSchedule"}))
    finding = only(nodes.check(group(job(pods(tolerations=each)), nodes=1)))
    assert finding.code.name == "tolerates-everything"
    assert finding.message.endswith("(recovery.trainjob.dev/quarantined)")


def test_a_key_of_its_own_is_no_matter() -> None:
    each = (*patience(30), *tolerations({"key": "nvidia.com/gpu", "operator": "Exists"}))
    assert names(nodes.check(group(job(pods(tolerations=each))))) == []
