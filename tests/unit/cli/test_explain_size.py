"""What `explain` and `status` say about the size of an elastic group, and how a loss would change it."""

import json
from collections.abc import Iterable

import msgspec
import pytest

from recovery.admission.certificates import BIRTH_CONFIGURATION_NAME
from recovery.cli.birth_policy import BINDING_NAME, BINDINGS, BirthPolicy
from recovery.cli.elastic_outlook import ElasticOutlook, elastic_outlook
from recovery.cli.explain_size import size_data, size_lines
from recovery.core.model.annotations import KUEUE_QUEUE_LABEL
from recovery.core.model.ledger import SCHEMA_VERSION, Ledger
from recovery.core.model.pinned_policy import PinnedElastic
from recovery.core.model.rules import Rule, RuleAction
from recovery.core.policy.resolved import Policy
from recovery.core.policy.spec import Mode
from recovery.ports import MUTATING_WEBHOOK_CONFIGURATIONS, NODES, Resource
from tests.unit.cli.cluster import PlainCluster, metadata
from tests.unit.cli.test_explain import explain, section
from tests.unit.cli.test_status import row, status
from tests.unit.core.driver import policy
from tests.unit.core.elastic import ELASTIC, shrunk, sixteen, with_room
from tests.unit.core.world import World
from tests.unit.fake_api import Object

INSTALLED = (
    "MutatingAdmissionPolicyBinding recovery-birth-settings is installed, so the API server can create the Job with "
    "another size"
)
BY_FOURS = msgspec.structs.replace(ELASTIC, min_nodes=12, multiple_of=4)


def seen(world: World, elastic: PinnedElastic | None = ELASTIC, ledger: Ledger | None = None) -> ElasticOutlook:
    found = elastic_outlook(world.snapshot(), ledger or Ledger(), policy(elastic=elastic))
    assert found is not None
    return found


def lines(
    outlook: ElasticOutlook | None, birth_policy: BirthPolicy = BirthPolicy.INSTALLED, ledger: Ledger | None = None
) -> list[str]:
    return list(size_lines(ledger or Ledger(), outlook, birth_policy))


def test_nodes_are_replaced_as_far_as_there_is_room_and_then_the_group_goes_on_with_fewer() -> None:
    outlook = seen(with_room(sixteen(), 2))
    assert [(loss.nodes, loss.replaced, loss.size) for loss in outlook.losses] == [
        (1, True, 16),
        (2, True, 16),
        (4, False, 14),
    ]
    assert lines(outlook) == [
        "all 16 nodes, and 8 at least",
        "if it loses 1 node now: they are replaced, because there is room for 2 more pods",
        "if it loses 2 nodes now: they are replaced, because there is room for 2 more pods",
        "if it loses 4 nodes now: there is room for 2 more pods, so after 2m it goes on with 14 of 16 nodes",
        INSTALLED,
    ]


def test_sizes_are_those_that_the_policy_allows() -> None:
    outlook = seen(with_room(sixteen(), 0), BY_FOURS)
    assert [loss.size for loss in outlook.losses] == [12, 12, 12]
    least = msgspec.structs.replace(BY_FOURS, min_nodes=14)
    assert [loss.size for loss in seen(with_room(sixteen(), 0), least).losses] == [None, None, None]


def test_below_the_least_the_group_waits() -> None:
    elastic = PinnedElastic(min_nodes=14, max_nodes=16)
    assert lines(seen(with_room(sixteen(), 0), elastic))[1:4] == [
        "if it loses 1 node now: there is no room for more pods, so after 2m it goes on with 15 of 16 nodes",
        "if it loses 2 nodes now: there is no room for more pods, so after 2m it goes on with 14 of 16 nodes",
        "if it loses 4 nodes now: there is no room for more pods, so it waits for nodes, because 14 are the least and "
        "12 pods would have one",
    ]


def test_where_it_is_not_known_whether_there_is_room_both_ends_are_told() -> None:
    outlook = seen(sixteen())
    assert (outlook.room, outlook.losses[0].replaced) == (None, None)
    assert lines(outlook)[1] == (
        "if it loses 1 node now: they are replaced if there is room, which is not known; else after 2m it goes on with "
        "15 of 16 nodes"
    )


def test_pods_that_share_a_node_are_lost_together_and_no_more_nodes_than_there_are() -> None:
    world = sixteen()
    for rank in range(16):
        world = world.with_pod(rank, node=f"gpu-{rank // 8}")
    outlook = seen(with_room(world, 0))
    assert [(loss.nodes, loss.pods, loss.size) for loss in outlook.losses] == [(1, 8, 8), (2, 16, None)]
    assert lines(outlook)[1].startswith("if it loses 1 node now (8 pods): there is no room for more pods, so after 2m")


def test_a_smaller_group_says_since_when_and_what_a_further_loss_would_mean() -> None:
    controller, world = shrunk()
    ledger = controller.ledger
    assert ledger.elastic is not None
    grown_in_vain = msgspec.structs.replace(
        ledger, elastic=msgspec.structs.replace(ledger.elastic, failed_growths=2, room_since=ledger.elastic.since)
    )
    outlook = seen(with_room(world, 0), ledger=grown_in_vain)
    assert (outlook.nodes, outlook.wanted_nodes, outlook.losses[2].size) == (12, 16, 8)
    since = f"{ledger.elastic.since:%Y-%m-%d %H:%M:%S}Z"
    assert lines(outlook, ledger=grown_in_vain)[:4] == [
        f"12 of 16 nodes since {since}",
        f"there has been room for more since {since}",
        "2 growths in a row have failed; each one doubles the wait before the next one",
        "if it loses 1 node now: there is no room for more pods, so after 2m it goes on with 11 of 16 nodes",
    ]


def test_a_size_that_cannot_change_is_said_with_why() -> None:
    world = with_room(sixteen().with_job(gang="scheduling.x-k8s.io/pod-group"), 0)
    told = lines(seen(world))
    assert told[1] == "if it loses 1 node now: there is no room for more pods, so it waits for nodes"
    assert told[4].startswith(
        "the size of the group cannot be changed: scheduling.x-k8s.io/pod-group asks for all pods"
    )


@pytest.mark.parametrize(
    ("birth_policy", "said"),
    [
        (
            BirthPolicy.MISSING,
            "MutatingAdmissionPolicyBinding recovery-birth-settings is not installed "
            "(manifests/components/birth-settings), so the size does not change, and the group waits for its nodes",
        ),
        (
            BirthPolicy.NOT_SERVED,
            "the API server knows no MutatingAdmissionPolicyBinding of admissionregistration.k8s.io/v1, and "
            "MutatingWebhookConfiguration recovery-birth-settings is not installed "
            "(manifests/admission/birth-settings), so the size does not change, and the group waits for its nodes",
        ),
    ],
)
def test_without_the_admission_policy_the_group_waits(birth_policy: BirthPolicy, said: str) -> None:
    told = lines(seen(with_room(sixteen(), 0)), birth_policy)
    assert told[1] == "if it loses 1 node now: there is no room for more pods, so it waits for nodes"
    assert told[-1] == said


def test_a_policy_that_may_not_be_read_is_said_to_be_that() -> None:
    told = lines(seen(with_room(sixteen(), 0)), BirthPolicy.UNKNOWN)
    assert told[1].endswith("so after 2m it goes on with 15 of 16 nodes")
    assert told[-1].startswith(
        "MutatingAdmissionPolicyBinding or MutatingWebhookConfiguration recovery-birth-settings may not be read; "
    )


def test_rules_that_say_shrink_do_not_wait() -> None:
    shrinks = policy(elastic=ELASTIC, rules=(Rule("rack", RuleAction.SHRINK), Rule("rest", RuleAction.RECREATE_GROUP)))
    outlook = elastic_outlook(with_room(sixteen(), 0).snapshot(), Ledger(), shrinks)
    assert outlook is not None
    assert outlook.at_once == ("rack",)
    assert "a failure that matches rule rack does not wait 2m" in lines(outlook)


def test_under_kueue_the_quota_stays_reserved() -> None:
    world = sixteen().with_workload(labels={KUEUE_QUEUE_LABEL: "team"})
    assert lines(seen(world))[-1] == "Kueue keeps the quota of all 16 nodes reserved while the group is smaller"


@pytest.mark.parametrize(
    "found",
    [None, policy(), policy(Mode.OBSERVE, elastic=ELASTIC)],
    ids=["no policy", "not elastic", "Observe"],
)
def test_nothing_is_told_where_the_policy_lets_no_group_go_on_with_fewer(found: Policy | None) -> None:
    assert elastic_outlook(sixteen().snapshot(), Ledger(), found) is None
    assert lines(None) == []
    assert size_data(Ledger(), None, None) is None


def test_nothing_is_told_of_a_group_that_has_not_trained_or_has_several_jobs() -> None:
    snapshot = sixteen().snapshot()
    untrained = msgspec.structs.replace(snapshot, trained_at={})
    several = msgspec.structs.replace(snapshot, expected_jobs=2)
    for found in (untrained, several):
        assert elastic_outlook(found, Ledger(), policy(elastic=ELASTIC)) is None


# --- the commands --------------------------------------------------------------------------------------------------


def elastic_job(cluster: PlainCluster, **spec: object) -> None:
    cluster.add_job("llm", ranks=4)
    cluster.add_policy(mode="Enforce", elastic={"minNodes": 2, "maxNodes": 4, **spec})


def add_free_node(cluster: PlainCluster, gpus: int) -> None:
    """Add a free node. This cluster lists all pods, with 32 GPUs in use, for whichever node it is asked about."""
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-02T08:00:00Z"}
    resources = {"nvidia.com/gpu": str(32 + gpus), "cpu": "96", "memory": "1Ti", "pods": "110"}
    status = {"conditions": [ready], "allocatable": resources}
    cluster.put(NODES, {"metadata": metadata("free", "", "free"), "status": status})


def install(cluster: PlainCluster) -> None:
    cluster.put(BINDINGS, {"metadata": metadata(BINDING_NAME, "", "binding")})


def test_explain_tells_before_any_failure_what_a_loss_would_mean(cluster: PlainCluster) -> None:
    elastic_job(cluster)
    add_free_node(cluster, gpus=16)
    install(cluster)
    assert section(explain("llm"), "Size") == [
        "all 4 nodes, and 2 at least",
        "if it loses 1 node now: they are replaced, because there is room for 2 more pods",
        "if it loses 2 nodes now: they are replaced, because there is room for 2 more pods",
        "if it loses 4 nodes now: there is room for 2 more pods, so after 2m it goes on with 2 of 4 nodes",
        INSTALLED,
    ]
    told = json.loads(explain("llm", "-o", "json"))["elastic"]
    assert (told["least"], told["room"], told["admissionPolicy"]) == (2, 2, "Installed")
    assert told["losses"][2] == {"nodes": 4, "pods": 4, "replaced": False, "size": 2}


def admission_policy(cluster: PlainCluster, *, absent: bool = False, denied: Iterable[Resource] = ()) -> str:
    """What `explain` says about the admission policy. `absent`: the API server does not serve such policies."""
    cluster.absent = {BINDINGS.plural} if absent else set()
    cluster.denied = {("get", each.plural) for each in denied}
    return str(json.loads(explain("llm", "-o", "json"))["elastic"]["admissionPolicy"])


def test_explain_finds_neither_the_admission_policy_nor_the_webhook(cluster: PlainCluster) -> None:
    elastic_job(cluster)
    assert admission_policy(cluster) == "Missing"
    assert admission_policy(cluster, absent=True) == "NotServed"
    for either in (BINDINGS, MUTATING_WEBHOOK_CONFIGURATIONS):
        assert admission_policy(cluster, denied=[either]) == "Unknown"
    assert admission_policy(cluster, absent=True, denied=[MUTATING_WEBHOOK_CONFIGURATIONS]) == "Unknown"


def test_explain_finds_the_webhook_in_place_of_the_policy(cluster: PlainCluster) -> None:
    elastic_job(cluster)
    webhook = {"metadata": metadata(BIRTH_CONFIGURATION_NAME, "", "webhook")}
    cluster.put(MUTATING_WEBHOOK_CONFIGURATIONS, webhook)
    assert admission_policy(cluster) == admission_policy(cluster, denied=[BINDINGS]) == "Webhook"
    assert admission_policy(cluster, absent=True) == "Webhook"
    *losses, said = section(explain("llm"), "Size")
    assert said.startswith("MutatingWebhookConfiguration recovery-birth-settings is installed, so the API server can")
    assert "it goes on with 3 of 4 nodes" in losses[1]
    install(cluster)
    assert admission_policy(cluster, denied=[MUTATING_WEBHOOK_CONFIGURATIONS]) == "Installed"


def test_who_may_not_list_nodes_is_told_both_ends_and_of_the_decision_nothing_is_left_out(
    cluster: PlainCluster,
) -> None:
    elastic_job(cluster)
    install(cluster)
    cluster.denied = {("list", "nodes")}
    text = explain("llm")
    assert "if there is room, which is not known" in section(text, "Size")[1]
    assert section(text, "Decision") == ["no failure"]


def test_who_is_not_elastic_is_asked_for_nothing_more(cluster: PlainCluster) -> None:
    cluster.add_job("llm")
    cluster.add_policy(mode="Enforce")
    assert "Size:" not in explain("llm")
    assert cluster.sent("get", BINDINGS) == []
    assert cluster.sent("list", NODES) == []
    assert json.loads(explain("llm", "-o", "json"))["elastic"] is None


def smaller_group() -> Object:
    """`status` of a RecoveryGroup that has 2 of 4 nodes and avoids one node."""
    avoided = {"node": "gpu-9", "host": "gpu-9", "since": "2026-11-02T08:30:00Z", "reason": "rank 3 crashed there"}
    return {
        "schemaVersion": SCHEMA_VERSION,
        "totals": {"incidents": 1, "restarts": 2},
        "cause": "NodeLost",
        "action": "Shrink",
        "avoided": [
            {**avoided, "until": "2026-11-03T08:30:00Z"},
            {**avoided, "node": "gpu-8", "until": "2026-11-02T08:59:00Z"},
        ],
        "elastic": {
            "nodes": 2,
            "wantedNodes": 4,
            "since": "2026-11-02T08:30:00Z",
            "gpus": 16,
            "runningSince": "2026-11-02T08:31:00Z",
        },
    }


def test_status_shows_how_many_of_its_nodes_a_smaller_group_has(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=2)
    cluster.add_policy("elastic", mode="Enforce", elastic={"minNodes": 2, "maxNodes": 4})
    assert json.loads(explain("llm", "-o", "json"))["size"] is None
    cluster.add_group("llm", smaller_group())
    cells = row("llm")
    assert (cells["PHASE"], cells["CAUSE"]) == ("Healthy", "2/4 nodes")
    assert max(map(len, status().stdout.splitlines())) <= 100
    assert row("llm", "-o", "wide")["REASON"] == "has run with 2 of 4 nodes since 2026-11-02 08:30:00Z"
    size = {"nodes": 2, "wantedNodes": 4, "quotaReserved": False}
    assert json.loads(explain("llm", "-o", "json"))["size"] == size


def test_status_shows_that_the_quota_of_a_smaller_group_stays_reserved(cluster: PlainCluster) -> None:
    job = cluster.add_job("llm", ranks=2)
    job["metadata"]["labels"] = {KUEUE_QUEUE_LABEL: "team"}
    cluster.add_policy("elastic", mode="Enforce", elastic={"minNodes": 2, "maxNodes": 4})
    cluster.add_group("llm", smaller_group())
    assert row("llm", "-o", "wide")["REASON"].endswith(
        "08:30:00Z; Kueue keeps the quota of all 4 nodes reserved while the group is smaller"
    )
    assert json.loads(explain("llm", "-o", "json"))["size"]["quotaReserved"]


def test_explain_names_the_nodes_that_the_group_avoids(cluster: PlainCluster) -> None:
    cluster.add_job("llm", ranks=2)
    cluster.add_policy(mode="Enforce")
    cluster.add_group("llm", smaller_group())
    text = explain("llm")
    assert section(text, "Nodes") == ["this group avoids node gpu-9 until 2026-11-03 08:30:00Z: rank 3 crashed there"]
    assert section(text, "Size") == ["2 of 4 nodes since 2026-11-02 08:30:00Z"]


def test_the_wait_is_that_of_the_policy(cluster: PlainCluster) -> None:
    elastic_job(cluster, shrinkAfter="90s")
    install(cluster)
    cluster.denied = {("list", "nodes")}
    assert "else after 90s it goes on with 3 of 4 nodes" in section(explain("llm"), "Size")[1]
