"""torchrun's command line and PET_* environment, as options or as a reason to leave the launch to torchrun."""

import sys

import pytest

from recovery.agent._trainjob_recovery.flags import ERR, OUT, LaunchOptions, LeftToTorchrunError, launch_options

# What Trainer sets in the container.
TRAINER = {
    "PET_NNODES": "4",
    "PET_NPROC_PER_NODE": "2",
    "PET_NODE_RANK": "3",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}


def options(*arguments: str, **environ: str) -> LaunchOptions:
    return launch_options([*arguments, "train.py"], TRAINER | environ, lambda wanted: {"auto": 8, "gpu": 0}[wanted])


def reason(*arguments: str, **environ: str) -> str:
    with pytest.raises(LeftToTorchrunError) as left:
        options(*arguments, **environ)
    return str(left.value)


def test_the_environment_of_trainer_suffices() -> None:
    assert options() == LaunchOptions(
        nodes=4,
        node_rank=3,
        ranks_per_node=2,
        master_addr="job-node-0-0.job",
        master_port=29400,
        run_id="none",
        role="default",
        log_dir=None,
        redirects=(0, 0),
        tee=(0, 0),
        local_ranks_shown=None,
        line_prefix=None,
        signals="SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        shutdown_timeout_seconds=30,
        python=sys.executable,
        module=False,
        script="train.py",
        script_args=(),
    )
    assert options().world_size == 8


@pytest.mark.parametrize(
    ("arguments", "name", "value"),
    [
        (["--nnodes=5"], "nodes", 5),
        (["--nnodes", "5:5"], "nodes", 5),
        (["--nproc_per_node", "1"], "ranks_per_node", 1),
        (["--nproc-per-node=auto"], "ranks_per_node", 8),
        (["--node_rank=1"], "node_rank", 1),
        (["--master-addr", "[::1]"], "master_addr", "::1"),
        (["--master_port=1234"], "master_port", 1234),
        (["--rdzv-id", "mine"], "run_id", "mine"),
        (["--rdzv-backend=static"], "run_id", "none"),
        (["--max-restarts=0"], "run_id", "none"),
        (["--local-addr=10.0.0.1"], "run_id", "none"),
        (["--role", "trainer"], "role", "trainer"),
        (["--log-dir=/logs"], "log_dir", "/logs"),
        (["-r", "3"], "redirects", (OUT | ERR, OUT | ERR)),
        (["--redirects=1:2"], "redirects", (0, ERR)),
        (["-t", "0:1,1:3"], "tee", (OUT, OUT | ERR)),
        (["--local-ranks-filter=0,1"], "local_ranks_shown", frozenset({0, 1})),
        (["--signals-to-handle=SIGTERM,SIGUSR1"], "signals", "SIGTERM,SIGUSR1"),
        (["--shutdown-timeout=5"], "shutdown_timeout_seconds", 5),
        (["-m"], "module", True),
        (["--monitor-interval=1.5", "--start-method=fork"], "module", False),
    ],
)
def test_a_flag_goes_before_the_environment(arguments: list[str], name: str, value: object) -> None:
    assert getattr(options(*arguments), name) == value


def test_the_environment_gives_what_no_flag_does() -> None:
    found = options(PET_TEE="3", PET_SHUTDOWN_TIMEOUT="7", PET_MODULE="1", PET_STANDALONE="0", PET_LOG_DIR="/logs")
    assert (found.tee, found.shutdown_timeout_seconds, found.module, found.log_dir) == ((3, 3), 7, True, "/logs")


def test_the_shutdown_timeout_may_come_from_torchs_own_variable() -> None:
    assert options(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="12").shutdown_timeout_seconds == 12


def test_what_follows_the_script_belongs_to_it() -> None:
    found = launch_options(["train.py", "--nnodes", "9", "", "-m", "--", "x"], TRAINER)
    assert (found.nodes, found.script, found.script_args) == (4, "train.py", ("--nnodes", "9", "", "-m", "--", "x"))


def test_the_command_of_a_rank_is_torchruns() -> None:
    found = launch_options(["-m", "pkg.train", "--gpu=${local_rank}", "$$x", "$other"], TRAINER)
    assert found.command(1) == [sys.executable, "-u", "-m", "pkg.train", "--gpu=1", "$x", "$other"]
    assert options(PYTHON_EXEC="/usr/bin/python3").command(0) == ["/usr/bin/python3", "-u", "train.py"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--no-such-flag"],
        ["--no-such-flag=3"],
        ["--nproc=2"],
        ["--help"],
        ["--nnodes=2:4"],
        ["--nnodes=x"],
        ["--max-restarts=3"],
        ["--rdzv-backend=c10d"],
        ["--rdzv-endpoint=host:1"],
        ["--rdzv-conf=timeout=3"],
        ["--rdzv-id="],
        ["--standalone"],
        ["--no-python"],
        ["--run-path"],
        ["--numa-binding=node"],
        ["--virtual-local-rank"],
        ["--logs-specs=mine"],
        ["--event-log-handler=console"],
        ["--duplicate-stdout-filters=a"],
        ["--nproc-per-node=gpu"],
        ["--node-rank=4"],
        ["--redirects=4"],
        ["--tee=0:5"],
        ["--local-ranks-filter=a"],
        ["--shutdown-timeout=-1"],
        ["--master-port=70000"],
        ["--start-method=vfork"],
        ["--log-line-prefix-template=x"],
    ],
)
def test_what_it_does_not_know_is_left_to_torchrun(arguments: list[str]) -> None:
    assert reason(*arguments)


@pytest.mark.parametrize(
    "variable",
    [
        "PET_MAX_RESTARTS",
        "PET_STANDALONE",
        "PET_NEWER_OPTION",
        "TORCHELASTIC_HEALTH_CHECK_PORT",
        "TORCHELASTIC_ENABLE_FILE_TIMER",
    ],
)
def test_a_variable_can_leave_the_launch_to_torchrun(variable: str) -> None:
    assert reason(**{variable: "1"})


def test_without_the_rank_of_the_node_or_a_port_the_launch_is_not_of_trainer() -> None:
    for missing in ({"PET_NODE_RANK"}, {"PET_MASTER_PORT"}):
        environ = {name: value for name, value in TRAINER.items() if name not in missing} | {"PET_NNODES": "1"}
        with pytest.raises(LeftToTorchrunError):
            launch_options(["train.py"], {**environ, **({} if "PET_NODE_RANK" in missing else {"PET_NODE_RANK": "0"})})


def test_several_nodes_without_a_port_meet_on_torchruns() -> None:
    environ = {name: value for name, value in TRAINER.items() if name != "PET_MASTER_PORT"}
    assert launch_options(["train.py"], environ).master_port == 29500


def test_no_script_is_torchruns_error_to_report() -> None:
    with pytest.raises(LeftToTorchrunError):
        launch_options([], TRAINER)
