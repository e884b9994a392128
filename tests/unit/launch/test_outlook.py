"""What would happen today: one table of the manifest's settings, and three sentences."""

import pytest
from msgspec.structs import replace

from recovery.launch.launch import Launch
from recovery.launch.recoverability.effective import settings
from recovery.launch.recoverability.outlook import outlook
from recovery.launch.recoverability.words import counted, span
from recovery.launch.views import FailurePolicy, MlPolicy, MpiPolicy, NativeRule
from tests.unit.launch.groups import JOB, PODS, SPEC, container, group, job, patience, pods, tolerations

RECREATES = "The controller in Enforce recreates the whole group at once, within its policy's budget."
RESCUES = (
    "The controller in Enforce recreates the group before that if it acts within the first seconds, and afterwards "
    "only with onTerminalFailure: RecreateJobSet."
)
ADOPTS = "The controller adopts a restart that follows, and never doubles it."
ASIDE = "The controller stands aside: that is your decision."
FENCES = (
    "The controller in Enforce recreates the group once the Node object is deleted or tainted "
    "node.kubernetes.io/out-of-service, or with fencing AssumeDead after assumeDeadAfter (60 s)."
)
LEAVES = (
    " If no other node is free, the others give up after a while, and with restartPolicy Never they then leave their "
    "nodes: set whileWaiting: Release in the policy, or use restartPolicy OnFailure."
)
SHIPPED = group(job(pods(restart_policy="", grace_seconds=None, tolerations=()), backoff_limit=None))
NATIVE = group(job(backoff_limit=0), failure_policy=FailurePolicy(SPEC, max_restarts=10))
MPI = MlPolicy(JOB, mpi=MpiPolicy(JOB))


def test_of_a_job_whose_runtime_is_not_known_nothing_is_foretold() -> None:
    known = group()
    assert outlook(Launch(known.place, known.name, known.job_set, train_job=known.train_job)) == ()


def test_of_a_jobset_that_need_not_be_a_training_nothing_is_foretold() -> None:
    batch = group(job(pods(container(command=("./render",)))), gpus_per_pod=0)
    assert outlook(replace(batch, train_job=None, runtime=None)) == ()


def test_each_job_gets_three_sentences() -> None:
    for launch in (SHIPPED, NATIVE, group(), group(nodes=1), group(ml_policy=MPI), group(runtime_alone=True)):
        starts = [sentence.split(":")[0] for sentence in outlook(launch)]
        assert starts == ["If a pod is lost today", "If all ranks exit at once", "If a node is lost"]


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        pytest.param(
            SHIPPED,
            "a container that fails is restarted in place, and a pod that is gone is replaced, alone, while the other "
            "15 pods hang with 120 GPUs until the collective in which they wait times out (10 min by default with "
            "NCCL). " + RECREATES,
            id="shipped",
        ),
        pytest.param(
            group(nodes=2, gpus_per_pod=0),
            "the Job replaces it, alone, while the other pod hangs until the collective in which they wait times out "
            "(10 min by default with NCCL). " + RECREATES,
            id="prepared, two pods without GPUs",
        ),
        pytest.param(
            group(job(pod_failure_rules=(NativeRule("FailJob", JOB),)), nodes=2, gpus_per_pod=0),
            "the Job replaces it, alone, while the other pod hangs until the collective in which they wait times out "
            f"(10 min by default with NCCL). {RECREATES} Where a rule of its podFailurePolicy with FailJob matches "
            "the pod, that decides instead, and the controller stands aside.",
            id="rules of the Job",
        ),
        pytest.param(
            NATIVE,
            "its Job fails at once (backoffLimit 0), and JobSet restarts all pods by itself, up to 10 times and "
            "without delay. Then it fails for good. " + ADOPTS,
            id="JobSet restarts",
        ),
        pytest.param(
            group(job(backoff_limit=0)),
            "its Job fails at once (backoffLimit 0), and the JobSet, which has no failurePolicy, fails with it for "
            "good. " + ASIDE,
            id="no retry",
        ),
        pytest.param(
            group(job(backoff_limit=0), failure_policy=FailurePolicy(SPEC)),
            "its Job fails at once (backoffLimit 0), and the JobSet, whose failurePolicy allows no restart, fails with "
            "it for good. " + ASIDE,
            id="no restart allowed",
        ),
        pytest.param(
            group(job(backoff_limit=0), failure_policy=FailurePolicy(SPEC, 3, rules=(NativeRule("FailJobSet", SPEC),))),
            "its Job fails at once (backoffLimit 0), and JobSet does what the first matching rule of its failurePolicy "
            "says. " + ADOPTS,
            id="rules",
        ),
        pytest.param(
            group(nodes=1),
            "the Job replaces it, and no other waits for it; at 1,001 failures backoffLimit 1000 is used up, and the "
            "Job fails, and the JobSet, which has no failurePolicy, fails with it for good.",
            id="one pod",
        ),
    ],
)
def test_if_a_pod_is_lost(launch: Launch, sentence: str) -> None:
    assert outlook(launch)[0] == f"If a pod is lost today: {sentence}"


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        pytest.param(
            SHIPPED,
            "backoffLimit 6 (the default) is used up at 6 restarts of 16, and the Job fails, and the JobSet, which has "
            "no failurePolicy, fails with it for good. " + RESCUES,
            id="shipped",
        ),
        pytest.param(
            group(job(backoff_limit=6), failure_policy=FailurePolicy(SPEC, max_restarts=2)),
            "backoffLimit 6 is used up at 7 failed pods of 16, and the Job fails, and JobSet restarts all pods by "
            "itself, up to 2 times and without delay. Then it fails for good. " + ADOPTS,
            id="JobSet restarts",
        ),
        pytest.param(
            group(),
            "the Job replaces its pods one by one, and they may find each other again; backoffLimit 1000 stands 62 "
            "times of that. " + RECREATES,
            id="prepared",
        ),
        pytest.param(
            group(job(pods(restart_policy="OnFailure"), backoff_limit=32)),
            "they are restarted in place one by one, and they may find each other again; backoffLimit 32 stands 1 time "
            "of that. " + RECREATES,
            id="twice is too often",
        ),
        pytest.param(
            group(job(pods(restart_policy="OnFailure"), backoff_limit=2), nodes=2),
            "backoffLimit 2 is used up at 2 restarts of 2, and the Job fails, and the JobSet, which has no "
            "failurePolicy, fails with it for good. " + RESCUES,
            id="two pods",
        ),
        pytest.param(NATIVE, "the same.", id="the first pod fails the Job"),
        pytest.param(group(nodes=1), "the same.", id="one pod"),
    ],
)
def test_if_all_ranks_exit(launch: Launch, sentence: str) -> None:
    assert outlook(launch)[1] == f"If all ranks exit at once: {sentence}"


@pytest.mark.parametrize(
    ("launch", "sentence"),
    [
        pytest.param(
            SHIPPED,
            "and its pods are given up 300 s later, after 5 min 50 s in all; 128 GPUs wait meanwhile; with a grace of "
            "30 s they then stay Terminating, and block every restart, until the node is back or is proven "
            "dead. " + FENCES,
            id="shipped",
        ),
        pytest.param(
            group(nodes=2),
            "and its pods are given up 30 s later, after 1 min 20 s in all; 16 GPUs wait meanwhile; with a grace of 15 "
            "s they then stay Terminating, and block every restart, until the node is back or is proven dead. "
            + FENCES
            + LEAVES,
            id="prepared, two pods",
        ),
        pytest.param(
            group(job(pods(grace_seconds=0)), nodes=1),
            "and its pods are given up 30 s later, after 1 min 20 s in all; with a grace of 0 they are gone at once, "
            "and are replaced elsewhere. " + FENCES,
            id="no grace",
        ),
        pytest.param(
            group(job(pods(tolerations=patience(None))), gpus_per_pod=0),
            "and its pods are never given up, because they tolerate that for ever; 16 pods wait meanwhile. "
            + FENCES
            + LEAVES,
            id="tolerated for ever",
        ),
        pytest.param(
            group(job(pods(grace_seconds=0), backoff_limit=0)),
            "and its pods are given up 30 s later, after 1 min 20 s in all; 128 GPUs wait meanwhile; with a grace of 0 "
            "they are gone at once. Then its Job fails (backoffLimit 0), and the JobSet, which has no failurePolicy, "
            "fails with it for good. The controller stands aside: that is your decision.",
            id="a native decision",
        ),
    ],
)
def test_if_a_node_is_lost(launch: Launch, sentence: str) -> None:
    assert outlook(launch)[2] == f"If a node is lost: it is marked after about 50 s, {sentence}"


def test_under_mpi_the_launcher_starts_all_ranks_again() -> None:
    pod, ranks, _ = outlook(group(job(backoff_limit=6), nodes=4, ml_policy=MPI))
    assert "mpirun ends all ranks when it loses one of 4 pods" in pod
    assert "after 7 failures of that kind backoffLimit 6 is used up" in ranks


def test_settings_tell_defaults_from_what_was_written() -> None:
    told = {each.name: (each.value, each.rule, each.place) for each in settings(SHIPPED)}
    assert told == {
        "restartPolicy": ("OnFailure", "JobSet's default", None),
        "backoffLimit": ("6", "the Job's default", None),
        "podReplacementPolicy": ("TerminatingOrFailed", "the Job's default", None),
        "terminationGracePeriodSeconds": ("30", "the pod's default", None),
        "tolerationSeconds of node.kubernetes.io/not-ready": ("300", "the API server's default for every pod", None),
        "tolerationSeconds of node.kubernetes.io/unreachable": ("300", "the API server's default for every pod", None),
    }
    written = {each.name: (each.value, each.place) for each in settings(NATIVE)}
    assert written["backoffLimit"] == ("0", JOB / "template" / "spec" / "backoffLimit")
    assert written["restartPolicy"] == ("Never", PODS / "restartPolicy")
    assert written["tolerationSeconds of node.kubernetes.io/not-ready"] == ("30", PODS / "tolerations")
    assert written["maxRestarts"] == ("10", SPEC / "maxRestarts")


def test_a_toleration_of_another_effect_sets_no_toleration_seconds() -> None:
    each = tolerations({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"})
    [shown] = [s for s in settings(group(job(pods(tolerations=each)))) if s.name.endswith("not-ready")]
    assert (shown.value, shown.rule, shown.place) == ("300", "the API server's default for every pod", None)


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (("Count",), ()),
        (("Ignore",), ("Where a rule with Ignore matches the pod, the budget is not charged.",)),
        (
            ("Ignore", "FailJob"),
            (
                "Where a rule of its podFailurePolicy with FailJob matches the pod, that decides instead, and the "
                "controller stands aside.",
                "Where a rule with Ignore matches the pod, the budget is not charged.",
            ),
        ),
    ],
)
def test_a_pod_failure_policy_changes_what_the_controller_does(actions: tuple[str, ...], said: tuple[str, ...]) -> None:
    lost, *_ = outlook(group(job(pod_failure_rules=tuple(NativeRule(each, JOB) for each in actions))))
    assert lost.endswith(" ".join(("within its policy's budget.", *said)))


def test_a_pod_failure_policy_changes_what_replaces_a_pod() -> None:
    launch = group(job(pod_failure_rules=(NativeRule("Ignore", JOB),)))
    told = next(each for each in settings(launch) if each.name == "podReplacementPolicy")
    assert (told.value, told.rule) == ("Failed", "a podFailurePolicy's default")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.4, "0 s"),
        (59.6, "1 min"),
        (350, "5 min 50 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (11135, "3 h 5 min"),
        (90000, "1 d 1 h"),
        (86400 * 2000, "2,000 d"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_counts() -> None:
    assert [counted(number, "GPU") for number in (0, 1, 2, 1024)] == ["0 GPUs", "1 GPU", "2 GPUs", "1,024 GPUs"]
