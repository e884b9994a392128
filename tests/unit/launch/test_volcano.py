"""The pytorch plugin of Volcano: which pods count, which variables they get, and the findings about it."""

import pytest

from recovery.launch.places import written
from recovery.launch.views import VolcanoJob
from recovery.launch.volcano import check, plugin_of, settings, world_size
from tests.unit.launch.manifests import line, values, volcano_job

OBSERVERS = "{name: observer, replicas: 4, template: {spec: {containers: [{name: observer}]}}}"


def job(spec: str = "{}") -> VolcanoJob:
    """A job of 1 master and 3 workers, with these changes of `spec`."""
    return volcano_job(f"kind: Job\nspec: {spec}")


def told(launch: VolcanoJob) -> list[str]:
    return [line(each) for each in check(launch)]


def codes(launch: VolcanoJob) -> list[str]:
    return [each.code.name for each in check(launch)]


def size(found: VolcanoJob) -> int:
    plugin = plugin_of(found)
    assert plugin is not None
    return world_size(found, plugin)


@pytest.mark.parametrize(
    ("tasks", "ranks"),
    [
        ("[]", 4),
        # One master, three workers and four other pods. Those do not count.
        (f"[{OBSERVERS}]", 4),
        ("[{name: worker, replicas: 7}]", 8),
        ("[{name: worker, replicas: 0}]", 1),
        ("[{name: worker, replicas: null}]", 1),
    ],
)
def test_only_master_and_worker_count(tasks: str, ranks: int) -> None:
    fragment = f"{{tasks: {tasks}}}" if tasks != "[]" else "{}"

    assert size(job(fragment)) == ranks


def test_names_come_from_the_arguments() -> None:
    found = job(f"{{plugins: {{pytorch: [--master=master, --worker, observer]}}, tasks: [{OBSERVERS}]}}")

    assert size(found) == 5


@pytest.mark.parametrize(
    ("arguments", "master", "worker", "port", "unread"),
    [
        ("[]", "master", "worker", 23456, ""),
        ("[--master=m, --worker=w, --port=29500]", "m", "w", 29500, ""),
        ("[-master=m, -worker, w]", "m", "w", 23456, ""),
        ("[--port=29500, --wait-master-enabled, --wait-master-timeout=60]", "master", "worker", 29500, ""),
        # Go's flag package stops at an argument that it cannot parse, and the plugin continues with the defaults.
        ("[--port=abc, --master=m]", "master", "worker", 23456, "--port=abc"),
        ("[--master=m, --rank=0, --worker=w]", "m", "worker", 23456, "--rank=0"),
        ("[master=m]", "master", "worker", 23456, "master=m"),
        ("[--master]", "master", "worker", 23456, "--master"),
        (f"[--port={'9' * 5000}]", "master", "worker", 23456, f"--port={'9' * 5000}"),
    ],
)
def test_arguments(arguments: str, master: str, worker: str, port: int, unread: str) -> None:
    plugin = plugin_of(job(f"{{plugins: {{pytorch: {arguments}}}}}"))

    assert plugin is not None
    assert (plugin.master, plugin.worker, plugin.port, plugin.unread) == (master, worker, port, unread)


def test_the_variables_of_one_master_three_workers_and_four_others() -> None:
    found = values(settings(job(f"{{minAvailable: 8, tasks: [{OBSERVERS}]}}")))
    everywhere = {"MASTER_ADDR": "speech-master-0.speech", "MASTER_PORT": "23456", "WORLD_SIZE": "4"}

    def of(task: str) -> dict[str, str]:
        return {name: value for (target, name), value in found.items() if target == f"task {task}"}

    assert of("master") == {**everywhere, "RANK": "0"}
    assert of("worker") == {**everywhere, "RANK": "1 to 3"}
    assert of("observer") == everywhere


def test_the_rules_tell_what_older_versions_count_and_whom_it_is_not_for() -> None:
    found = {(each.target, each.name): each.rule for each in settings(job(f"{{tasks: [{OBSERVERS}]}}"))}

    assert found[("task master", "WORLD_SIZE")] == (
        "the pods of master and worker (up to Volcano 1.11 it is 8: the pods of every task count)"
    )
    assert found[("task observer", "MASTER_PORT")] == (
        "--port of the plugin, 23456 by default; the task is not part of the group, but has it too"
    )


def test_the_settings_tell_that_a_value_of_the_user_has_no_effect() -> None:
    found = job(
        "{tasks: [{name: worker, template: {spec: {containers: [{name: pytorch, env: [{name: WORLD_SIZE, value: '8'}, "
        "{name: EPOCHS, value: '3'}]}]}}}]}"
    )
    workers = {each.name: each for each in settings(found) if each.target == "task worker"}

    assert (workers["WORLD_SIZE"].value, workers["WORLD_SIZE"].rule) == (
        "4",
        "the pods of master and worker; the 8 of the container has no effect",
    )
    assert (workers["EPOCHS"].value, workers["EPOCHS"].rule) == ("3", "env of the container")


def test_the_settings_tell_of_the_plugin_that_volcano_adds() -> None:
    assert ("Job", "plugin svc") not in values(settings(job()))
    assert values(settings(job("{plugins: {svc: null}}")))[("Job", "plugin svc")] == "[]"


@pytest.mark.parametrize("plugins", ["{pytorch: null}", "{pytorch: [--master=nobody]}"])
def test_without_the_plugin_or_its_master_nothing_is_set(plugins: str) -> None:
    assert values(settings(job(f"{{plugins: {plugins}}}"))) == {}


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        (
            "{plugins: {pytorch: [--master=chief]}}",
            "plugin-task: the pytorch plugin looks for task chief, there is none, and so it sets nothing in any pod "
            "(write --master=<task> with one of the tasks: master, worker)",
        ),
        (
            "{plugins: {pytorch: [--worker=workers]}}",
            "plugin-task: --worker names task workers, there is none, and so WORLD_SIZE counts the master only "
            "(write --worker=<task> with one of the tasks: master, worker)",
        ),
        (
            "{minAvailable: 3, tasks: [{name: master, replicas: 0}]}",
            "plugin-task: task master has no replicas, so that nothing answers at MASTER_ADDR (write replicas: 1)",
        ),
        (
            "{tasks: [{name: master, replicas: 2}]}",
            "several-masters: task master has 2 replicas, and the pytorch plugin gives each of them RANK 0 "
            "(write replicas: 1, and the other 1 as replicas of task worker)",
        ),
        (
            "{plugins: {pytorch: [--port=abc]}}",
            "plugin-argument: the pytorch plugin cannot read --port=abc: it drops it and every argument after it "
            "(write --flag=value; known are master, worker, port, wait-master-enabled, wait-master-timeout, "
            "wait-master-image)",
        ),
        (
            "{minAvailable: 9}",
            "min-available: minAvailable is 9 and the tasks have 4 pods: Volcano refuses the job "
            "(write minAvailable: 4, or remove it)",
        ),
        (
            f"{{minAvailable: 8, tasks: [{OBSERVERS}]}}",
            "plugin-env-elsewhere: the pytorch plugin sets MASTER_ADDR, MASTER_PORT and WORLD_SIZE in task observer "
            "too, which is not of the group of 4; up to Volcano 1.11 it even counts it, and with WORLD_SIZE 8 the "
            "group waits for ever (run Volcano 1.12 or later, and write env -u WORLD_SIZE -u MASTER_ADDR -u "
            "MASTER_PORT before the program of that task if it uses torch.distributed)",
        ),
    ],
)
def test_what_is_told(spec: str, sentence: str) -> None:
    assert told(job(spec)) == [sentence]


def test_a_job_of_a_master_alone_needs_no_worker() -> None:
    found = job("{minAvailable: 1, plugins: {pytorch: []}, tasks: [{name: worker, replicas: 0}]}")

    assert (size(found), told(found)) == (1, [])


@pytest.mark.parametrize(
    ("task", "variable", "own", "plugins"),
    [
        ("worker", "WORLD_SIZE", "8", "4"),
        ("worker", "RANK", "0", "1 to 3"),
        ("master", "RANK", "1", "0"),
        ("master", "MASTER_ADDR", "localhost", "speech-master-0.speech"),
        ("worker", "MASTER_PORT", "29500", "23456"),
    ],
)
def test_the_plugin_wins_over_a_value_of_the_user(task: str, variable: str, own: str, plugins: str) -> None:
    spec = (
        f"{{tasks: [{{name: {task}, template: {{spec: {{containers: [{{name: pytorch, env: "
        f"[{{name: {variable}, value: '{own}'}}]}}]}}}}}}]}}"
    )

    assert told(job(spec)) == [
        f"plugin-env-wins: {variable}={own} has no effect: the pytorch plugin (Volcano 1.9 to 1.15) appends its own "
        f"{plugins} after it (set it in the command instead: env {variable}=... before the program)"
    ]


@pytest.mark.parametrize(("task", "variable", "own"), [("worker", "WORLD_SIZE", "4"), ("master", "RANK", "0")])
def test_the_same_value_is_no_matter(task: str, variable: str, own: str) -> None:
    spec = (
        f"{{tasks: [{{name: {task}, template: {{spec: {{containers: [{{name: pytorch, env: "
        f"[{{name: {variable}, value: '{own}'}}]}}]}}}}}}]}}"
    )

    assert told(job(spec)) == []


@pytest.mark.parametrize(
    ("available", "tasks", "surely"),
    [
        ("4", "[]", None),
        # Left out, or 0: all pods.
        ("null", "[]", None),
        ("0", "[]", None),
        ("2", "[]", 2),
        ("1", "[]", 1),
        # Pods of other tasks may count towards it.
        ("5", f"[{OBSERVERS}]", 1),
        ("3", f"[{OBSERVERS}]", 0),
        ("8", f"[{OBSERVERS}]", None),
        # A task's own minAvailable applies if the job's is not below their sum.
        ("null", "[{name: worker, minAvailable: 1}]", 2),
        ("2", "[{name: worker, minAvailable: 1}]", 2),
        ("4", f"[{OBSERVERS[:-1]}, minAvailable: 0}}]", None),
    ],
)
def test_a_gang_that_starts_without_all_ranks(available: str, tasks: str, surely: int | None) -> None:
    changed = f", tasks: {tasks}" if tasks != "[]" else ""
    found = [each for each in told(job(f"{{minAvailable: {available}{changed}}}")) if "gang-starts-half" in each]

    assert len(found) == (surely is not None)
    assert all(f"lets the job start with {surely} of its 4 ranks" in each for each in found)


def test_the_line_of_a_gang_is_that_of_the_number() -> None:
    of_job, of_task = job("{minAvailable: 2}"), job("{minAvailable: null, tasks: [{name: worker, minAvailable: 1}]}")

    assert [written(each.place.path) for found in (of_job, of_task) for each in check(found)] == [
        "spec.minAvailable",
        "spec.tasks[1]",
    ]


def test_the_longest_name_by_the_size_of_the_job() -> None:
    def named(length: int) -> list[str]:
        spec = "spec: {minAvailable: 128, tasks: [{name: worker, replicas: 127}]}"
        return told(volcano_job(f"kind: Job\nmetadata: {{name: {'a' * length}}}\n{spec}"))

    assert named(52) == []
    (sentence,) = named(53)
    assert sentence.endswith("(choose a name of at most 52 characters for 128 pods)")


def test_a_task_without_a_name_has_volcanos() -> None:
    spec = "{plugins: {pytorch: [--master=default0, --worker=default1]}, tasks: null}"
    whole = job(spec)
    tasks = "[{replicas: 1, template: {}}, {replicas: 3, template: {}}]"
    found = volcano_job(
        f"kind: Job\nspec: {{plugins: {{pytorch: [--master=default0, --worker=default1]}}, tasks: {tasks}}}"
    )

    assert codes(whole) == ["min-available", "plugin-task", "plugin-task"]
    assert told(found) == []


def test_a_master_that_is_the_only_task_may_well_train_alone() -> None:
    emptied = "kind: Job\nspec: {tasks: null}\n---\nkind: Job\nspec: "
    master, other = "{name: master, replicas: 1, template: {}}", "{name: ps, replicas: 1, template: {}}"

    assert codes(volcano_job(f"{emptied}{{minAvailable: 1, tasks: [{master}]}}")) == []
    assert codes(volcano_job(f"{emptied}{{minAvailable: 2, tasks: [{master}, {other}]}}")) == ["plugin-task"]


def test_a_job_without_the_plugin_is_judged_by_its_gang_alone() -> None:
    assert told(job("{minAvailable: 2, plugins: {pytorch: null}}")) == []
