"""Options, usage errors and exit codes, as a shell sees them."""

import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version

import pytest
import typer
from typer.testing import CliRunner

from recovery.cli.arguments import Address, parse_address, parse_request_timeout, parse_window
from recovery.cli.main import app


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8080", Address("127.0.0.1", 8080)),
        (":9090", Address("", 9090)),
        ("[::1]:0", Address("::1", 0)),
        ("metrics.local:65535", Address("metrics.local", 65535)),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["8080", "host", "host:", "host:http", "host:65536", "host:-1", "::1:80", "[::1:80", "host:\uff18"]
)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not an address like"):
        parse_address(text)


def test_version() -> None:
    result = CliRunner().invoke(app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"recovery {version('trainjob-recovery')}\n")


@pytest.mark.parametrize(
    ("text", "window"),
    [
        ("7d", timedelta(days=7)),
        ("1d12h", timedelta(hours=36)),
        ("90m", timedelta(minutes=90)),
        ("36525d", timedelta(days=36525)),
    ],
)
def test_a_time_span_is_read(text: str, window: timedelta) -> None:
    assert parse_window(text) == window


@pytest.mark.parametrize("text", ["", "0d", "7", "-1d", "1.5d", "1h1d", "36526d", "99999999999d", "٣d", "7days"])
def test_what_is_no_time_span_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="not a time span"):
        parse_window(text)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("30", 30), ("30s", 30), ("500ms", 0.5), ("1m30s", 90), ("1.5h", 5400), (".5s", 0.5), ("250us", 2.5e-4)],
)
def test_a_time_out_is_read_as_kubectl_reads_it(text: str, seconds: float) -> None:
    assert parse_request_timeout(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "-1", "-1s", "1.5", "5x", "s", "1s ", "1 s", "٣s", "0x10", "1d", "9999999999"])
def test_what_is_no_time_out_is_refused(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="is not a time-out like 30s"):
        parse_request_timeout(text)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "--metrics-address", "nonsense"], "'nonsense' is not an address"),
        (["run", "--log-level", "loud"], "'loud' is not one of"),
        (["status", "--output", "text"], "'text' is not one of"),
        (["explain", "llm", "--output", "wide"], "'wide' is not one of"),
        (["status", "-A", "-n", "x"], "exclude each other"),
        (["status", "--request-timeout", "-1s"], "'-1s' is not a time-out like 30s, 500ms, 1m30s or 30 (seconds)"),
        (["status", "--wach"], "No such option"),
        (["pause"], "Missing argument"),
        (["pause", "llm", "--reason", "false"], "'false' would not pause anything"),
        (["resume"], "name jobs, or say --all"),
        (["resume", "llm", "--all"], "name jobs, or say --all"),
        (["resume", "llm", "-A"], "--all-namespaces goes with --all"),
        (["resume", "--all", "-A", "-n", "x"], "exclude each other"),
        (["restart", "llm"], "Missing option '--reason'"),
        (["restart", "llm", "--reason", " "], "--reason must not be empty"),
        (["retry", "llm", "--wait", "-1"], "should be greater than or equal to 0"),
        (["explain"], "Missing argument"),
        (["report"], "name a job, or use --fleet for all jobs"),
        (["report", "llm", "--fleet"], "--fleet reports on all jobs: leave JOB and --incident out"),
        (["report", "--fleet", "--incident", "x"], "--fleet reports on all jobs: leave JOB and --incident out"),
        (["report", "llm", "--since", "7d"], "--since is only for --fleet: leave it out, or replace JOB by --fleet"),
        (["report", "--fleet", "--since", "7"], "'7' is not a time span like 7d, 12h or 90m"),
        (["report", "llm", "-o", "pdf"], "'pdf' is not one of"),
        (["lint", "-", "--format", "xml"], "'xml' is not one of"),
        (["explain-launch", "-", "--format", "sarif"], "'sarif' is not one of"),
        (["frobnicate"], "No such command"),
    ],
)
def test_wrong_usage_is_said_and_ends_with_2(arguments: list[str], says: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert says in result.stderr
    assert "Traceback" not in result.output


COMMANDS = (
    *("run", "status", "explain", "report", "pause", "resume", "restart", "retry", "reset-budget"),
    *("quarantine", "release", "nodes", "reset-breaker", "lint", "explain-launch", "simulate"),
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage:" in result.stdout


SLOW_TO_LOAD = (
    *("kubernetes_asyncio", "kopf", "aiohttp", "prometheus_client", "cryptography", "structlog", "yaml", "rich"),
    *("msgspec", "asyncio", "recovery.sim", "recovery.kube", "recovery.launch", "recovery.core.decision"),
)


def test_help_loads_nothing_that_only_the_work_of_a_command_needs() -> None:
    """Every command waits for these imports before it prints its first line."""
    program = (
        "import sys\n"
        "from recovery.cli.main import app\n"
        f"for arguments in ([], *([command] for command in {COMMANDS})):\n"
        "    try: app([*arguments, '--help'])\n"
        "    except SystemExit: pass\n"
        f"print([name for name in {SLOW_TO_LOAD} if name in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert ended.stderr == "[]\n"
    assert ended.stdout.count("Usage:") == 1 + len(COMMANDS)
