"""Something else answers in place of the API server: every command exits with 1 and prints one line about it."""

import ssl
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner, Result

from recovery.admission.certificates import Certificates, make_certificates
from recovery.cli.main import app
from tests.unit.cli import bad_servers
from tests.unit.cli.bad_servers import BadServer, kubeconfig, refusing

SHIPPED = str(Path(__file__).parents[3] / "examples" / "first-recovery.yaml")

COMMANDS = {
    "status": ["status"],
    "explain": ["explain", "llm"],
    "report": ["report", "llm"],
    "report --fleet": ["report", "--fleet"],
    "pause": ["pause", "llm", "other"],
    "resume": ["resume", "llm", "other"],
    "resume --all": ["resume", "--all"],
    "restart": ["restart", "llm", "other", "--reason", "stuck", "--yes"],
    "retry": ["retry", "llm"],
    "reset-budget": ["reset-budget", "llm"],
    "quarantine": ["quarantine", "gpu-7", "gpu-8", "--reason", "broken"],
    "release": ["release", "gpu-7", "gpu-8"],
    "nodes": ["nodes"],
    "reset-breaker": ["reset-breaker"],
    "chaos list": ["chaos", "list"],
    "chaos abort": ["chaos", "abort", "lose-a-rank-x7k2p"],
    "lint": ["lint", SHIPPED, "--cluster"],
    "explain-launch": ["explain-launch", SHIPPED, "--cluster"],
}
"""Each talks to a cluster. `run` never ends by itself, so it is tried as a process."""
RUN = ["run", "--no-leader-election", "--metrics-address", "127.0.0.1:0"]

each_command = pytest.mark.parametrize("arguments", COMMANDS.values(), ids=COMMANDS)


@pytest.fixture(autouse=True)
def _no_waiting_between_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recovery.kube.client.BACKOFF_SECONDS_FIRST", 0.001)


def tried(arguments: Sequence[str], file: str, *options: str) -> Result:
    return CliRunner().invoke(app, [*arguments, "--kubeconfig", file, *options])


def the_line(result: Result) -> str:
    """The only line that the command printed."""
    assert (result.exit_code, result.stdout) == (1, ""), result.output
    [line] = result.stderr.splitlines()
    assert line.startswith("recovery: ")
    return line


def test_every_command_is_here() -> None:
    registered = set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]
    assert {arguments[0] for arguments in (*COMMANDS.values(), RUN)} | {"simulate"} == registered


@each_command
@pytest.mark.parametrize(
    ("response", "says"),
    [
        (bad_servers.LOGIN_PAGE, "answered 200 with text/html; charset=utf-8: <!DOCTYPE html> <html><title>Sign in"),
        (bad_servers.NOTHING, "answered 200 with application/json, and an empty body"),
        (bad_servers.OTHER_JSON, 'answered 200 with application/json: {"hello": "world"}'),
        (bad_servers.REDIRECT, "answered 302 with text/html, a redirect to https://login.example/"),
        (bad_servers.UNKNOWN_PAGE, "answered 404 with text/html: <!DOCTYPE html>"),
    ],
    ids=["login", "nothing", "other JSON", "redirect", "404"],
)
def test_the_answer_of_something_else(arguments: list[str], response: bytes, says: str, tmp_path: Path) -> None:
    """The line names the URL, the content type and the start of the body."""
    with BadServer(response).serving() as address:
        line = the_line(tried(arguments, kubeconfig(tmp_path, f"http://{address}")))
    assert f"http://{address}/api" in line
    assert says in line


@each_command
@pytest.mark.parametrize(
    ("response", "says"),
    [
        (bad_servers.NO_HTTP, "does not answer in HTTP"),
        (bad_servers.CUT_OFF, "broke in the middle of the answer"),
    ],
    ids=["no HTTP", "cut off"],
)
def test_a_broken_exchange(arguments: list[str], response: bytes, says: str, tmp_path: Path) -> None:
    with BadServer(response).serving() as address:
        line = the_line(tried(arguments, kubeconfig(tmp_path, f"http://{address}")))
    assert f"http://{address}" in line
    assert says in line


@each_command
@pytest.mark.parametrize("begins", [b"", bad_servers.BEGINS], ids=["at once", "in the middle"])
def test_a_server_that_hangs_is_waited_for_as_long_as_the_option_says(
    arguments: list[str], begins: bytes, tmp_path: Path
) -> None:
    with BadServer(begins, holds=True).serving() as address:
        line = the_line(tried(arguments, kubeconfig(tmp_path, f"http://{address}"), "--request-timeout", "50ms"))
    assert f"no answer from http://{address} within 0.05 s; --request-timeout" in line


@pytest.mark.parametrize(
    ("limit", "after_seconds", "answered"), [("100ms", 600, False), ("1m", 0.4, True), ("0", 0.4, True)]
)
def test_zero_is_no_limit(limit: str, after_seconds: float, answered: bool, tmp_path: Path) -> None:
    with BadServer(bad_servers.NOT_FOUND, after_seconds=after_seconds).serving() as address:
        file = kubeconfig(tmp_path, f"http://{address}")
        line = the_line(tried(COMMANDS["reset-breaker"], file, "--request-timeout", limit))
    assert ("there is no RecoveryConfig" in line) is answered


@each_command
def test_a_server_that_refuses_connections(arguments: list[str], tmp_path: Path) -> None:
    with refusing() as address:
        line = the_line(tried(arguments, kubeconfig(tmp_path, f"http://{address}")))
    assert f"cannot connect to http://{address}: Connection refused" in line


@each_command
def test_a_certificate_that_is_not_trusted(arguments: list[str], tmp_path: Path) -> None:
    made = make_certificates(["127.0.0.1"], datetime.now(UTC), Certificates())
    (tmp_path / "server.pem").write_bytes(made.serving + made.key)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(tmp_path / "server.pem")
    with BadServer(bad_servers.LOGIN_PAGE).serving(tls) as address:
        line = the_line(tried(arguments, kubeconfig(tmp_path, f"https://{address}")))
    assert f"the certificate of https://{address} is not accepted: " in line
    assert "certificate-authority" in line


def test_a_server_without_tls(tmp_path: Path) -> None:
    with BadServer(bad_servers.HANGS_UP).serving() as address:
        file = kubeconfig(tmp_path, f"https://{address}")
        line = the_line(tried(COMMANDS["status"], file, "--request-timeout", "200ms"))
    assert f"https://{address}" in line


@each_command
def test_a_credential_plugin_that_fails_is_heard_once(arguments: list[str], tmp_path: Path) -> None:
    command = "echo 'the token has expired' >&2; exit 3"
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "sh", "args": ["-c", command]}
    line = the_line(tried(arguments, kubeconfig(tmp_path, "http://127.0.0.1:1", {"exec": plugin})))
    assert line.count("the token has expired") == 1


@each_command
def test_no_kubeconfig(arguments: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    line = the_line(CliRunner().invoke(app, arguments))
    assert f"there is no kubeconfig at {tmp_path}/.kube/config" in line


@pytest.mark.parametrize("arguments", [*COMMANDS.values(), RUN, ["simulate"]], ids=lambda words: " ".join(words[:2]))
def test_an_option_that_there_is_not(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, [*arguments, "--frobnicate"])
    assert result.exit_code == 2
    assert "No such option: --frobnicate" in result.stderr


def ran(server: str, folder: Path) -> tuple[int, list[str]]:
    """Exit code and stderr of `recovery run`."""
    command = [sys.executable, "-m", "recovery.cli.entry", *RUN, "--kubeconfig", kubeconfig(folder, server)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert process.stdout == ""
    return process.returncode, process.stderr.splitlines()


def test_the_controller_does_not_start_on_the_answer_of_something_else(tmp_path: Path) -> None:
    with BadServer(bad_servers.LOGIN_PAGE).serving() as address:
        code, [line] = ran(f"http://{address}", tmp_path)
    assert code == 1
    assert f"http://{address}/apis" in line
    assert "answered 200 with text/html; charset=utf-8: <!DOCTYPE html>" in line


def test_the_controller_does_not_start_where_nothing_listens(tmp_path: Path) -> None:
    with refusing() as address:
        code, [line] = ran(f"http://{address}", tmp_path)
    assert code == 1
    assert f"cannot connect to http://{address}: Connection refused" in line
