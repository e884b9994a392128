"""The component that runs a drill each week: it asks no one, repeats nothing, and has few rights."""

from datetime import timedelta

from typer.testing import CliRunner

from recovery.chaos.chaos_run import READY_AGAIN_SECONDS_MAX, REPEAT_SECONDS_MAX, VERDICT_SECONDS_MAX
from recovery.chaos.drill_record import ENDED_WITHIN_SECONDS
from recovery.chaos.marked_nodes import UNDO_SECONDS_MAX
from recovery.cli.chaos import CLUSTER_OF_THE_POD
from recovery.cli.main import app
from recovery.core.model.drill import DRILL_MAX_SECONDS
from tests.unit.manifests.kustomize import Object, objects, only, rights
from tests.unit.manifests.test_manager import container as controller
from tests.unit.manifests.test_manager import pod as controller_pod

FOLDER = "components/drill-schedule"
READS_AND_RUNS = {("recovery.trainjob.dev", "recoverydrills", verb) for verb in ("create", "get", "list", "patch")}


def cron_job() -> Object:
    spec: Object = only(FOLDER, "CronJob")["spec"]
    return spec


def job() -> Object:
    spec: Object = cron_job()["jobTemplate"]["spec"]
    return spec


def pod() -> Object:
    spec: Object = job()["template"]["spec"]
    return spec


def container() -> Object:
    [found] = pod()["containers"]
    assert isinstance(found, dict)
    return found


def test_no_two_drills_run_at_once_and_none_is_tried_again_or_begins_late() -> None:
    assert cron_job()["concurrencyPolicy"] == "Forbid"
    assert job()["backoffLimit"] == 0
    assert pod()["restartPolicy"] == "Never"
    assert timedelta(seconds=cron_job()["startingDeadlineSeconds"]) <= timedelta(minutes=10)


def test_the_time_limit_leaves_room_for_repeats_and_ends_before_the_longest_drill() -> None:
    one_repeat = REPEAT_SECONDS_MAX + READY_AGAIN_SECONDS_MAX
    assert 3 * one_repeat < job()["activeDeadlineSeconds"] < DRILL_MAX_SECONDS


def test_after_sigterm_there_is_time_to_take_everything_back() -> None:
    assert pod()["terminationGracePeriodSeconds"] >= UNDO_SECONDS_MAX + ENDED_WITHIN_SECONDS + VERDICT_SECONDS_MAX


def test_the_command_exists_and_names_the_cluster_of_the_pod() -> None:
    group, command, file, agreed = container()["args"]
    assert CliRunner().invoke(app, [group, command, "--help"]).exit_code == 0
    [mount] = [each for each in container()["volumeMounts"] if file.startswith(each["mountPath"])]
    [volume] = [each for each in pod()["volumes"] if each["name"] == mount["name"]]
    assert volume["configMap"] == {"name": "recovery-drill"}, "which the user makes; without it nothing runs"
    assert agreed == f"--yes={CLUSTER_OF_THE_POD}"


def test_the_pod_is_as_confined_as_the_controller() -> None:
    assert container()["image"] == controller()["image"]
    assert container()["securityContext"] == controller()["securityContext"]
    assert pod()["securityContext"] == controller_pod()["securityContext"]


def test_it_may_kill_pods_of_its_own_namespace_and_change_nothing_else() -> None:
    role = rights(only(FOLDER, "Role"))
    assert {each for each in role if each[2] not in {"get", "list"}} == {
        ("recovery.trainjob.dev", "recoverydrills", "create"),
        ("recovery.trainjob.dev", "recoverydrills", "patch"),
        ("", "pods", "delete"),
    }
    assert role >= READS_AND_RUNS
    assert rights(only(FOLDER, "ClusterRole")) == {("", "nodes", "get"), ("", "nodes", "list")}


def test_its_account_has_these_roles_and_that_of_a_viewer() -> None:
    account = only(FOLDER, "ServiceAccount")["metadata"]["name"]
    bindings = objects(FOLDER, "RoleBinding") + objects(FOLDER, "ClusterRoleBinding")
    assert {(each["roleRef"]["kind"], each["roleRef"]["name"]) for each in bindings} == {
        ("Role", only(FOLDER, "Role")["metadata"]["name"]),
        ("ClusterRole", only(FOLDER, "ClusterRole")["metadata"]["name"]),
        ("ClusterRole", "recovery-viewer"),
    }
    assert {each["name"] for binding in bindings for each in binding["subjects"]} == {account}
    assert pod()["serviceAccountName"] == account
