"""Every failure is one clear line on stderr and an exit code. No failure is a traceback."""

import asyncio
import os
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import CommandError, chosen_namespace, connect, error_words, execute
from recovery.kube.kubeconfig import context_user
from recovery.kube.session import SessionError
from recovery.ports import (
    ApiError,
    ForbiddenError,
    NoSuchResourceError,
    RefusedError,
    TryLaterError,
    UnauthorizedError,
    UnknownOutcomeError,
    UntrustedServerError,
)
from recovery.telemetry.server_error import ServerError
from tests.unit.cli.cluster import PlainCluster


def failing(error: Exception) -> Coroutine[Any, Any, int]:
    async def work() -> int:
        raise error

    return work()


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (CommandError("there is no TrainJob 'x'"), "there is no TrainJob 'x'"),
        (SessionError("no cluster: there is\nno kubeconfig"), "no cluster: there is no kubeconfig"),
        (ServerError("cannot serve metrics on :80: in use"), "cannot serve metrics on :80: in use"),
        (TryLaterError("list pods: refused"), "no cluster: the API server does not answer: list pods: refused"),
        (TryLaterError("list pods: slow down", status=429), "list pods: slow down"),
        (ForbiddenError("list pods: User x cannot"), "a permission is missing: list pods: User x cannot"),
        (
            UnauthorizedError("list pods: Unauthorized"),
            "the API server does not accept the credentials: list pods: Unauthorized",
        ),
        (UntrustedServerError("list pods: self-signed"), "no cluster: list pods: self-signed"),
        (
            UnknownOutcomeError("patch trainjobs: no answer"),
            "it is not known whether this was done; run the command again: patch trainjobs: no answer",
        ),
        (RefusedError("list pods: no"), "list pods: no"),
        (ApiError("list pods: odd"), "list pods: odd"),
    ],
)
def test_an_error_is_one_line_and_1(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        execute(failing(error))
    assert ended.value.code == 1
    assert capsys.readouterr() == ("", f"recovery: {line}\n")


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        execute(failing(ZeroDivisionError()))


def test_a_command_ends_with_the_code_that_it_returns() -> None:
    async def work() -> int:
        return 130

    with pytest.raises(SystemExit) as ended:
        execute(work())
    assert ended.value.code == 130


KUBECONFIG = """
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts:
- {name: one, context: {cluster: c, user: u, namespace: team-b}}
- {name: two, context: {cluster: c, user: u}}
current-context: one
"""


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    file = tmp_path / "kubeconfig"
    file.write_text(KUBECONFIG)
    return str(file)


@pytest.mark.parametrize(
    ("context", "asked_for", "namespace"),
    [(None, None, "team-b"), ("one", None, "team-b"), ("two", None, "default"), (None, "team-c", "team-c")],
)
async def test_the_namespace_is_the_one_asked_for_or_that_of_the_context(
    kubeconfig: str, context: str | None, asked_for: str | None, namespace: str
) -> None:
    assert await chosen_namespace(ServerOptions(kubeconfig, context), asked_for) == namespace


async def test_the_kubeconfig_of_the_environment_counts(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig)
    assert await chosen_namespace(ServerOptions(), None) == "team-b"


@pytest.mark.parametrize("context", [None, "two"])
async def test_who_asks_is_the_user_of_the_context(kubeconfig: str, context: str | None) -> None:
    assert await context_user(kubeconfig, context) == "u"


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (
            'cannot patch resource "trainjobs" in API group "trainer.kubeflow.org" in the namespace "team-a"',
            "patch trainjobs.trainer.kubeflow.org in namespace team-a",
        ),
        ('cannot list resource "pods" in API group "" at the cluster scope', "list pods in all namespaces"),
        (
            'cannot patch resource "jobsets/status" in API group "jobset.x-k8s.io" in the namespace "x"',
            "patch jobsets.jobset.x-k8s.io/status in namespace x",
        ),
    ],
)
def test_a_missing_permission_is_told_as_a_role_would_grant_it(said: str, words: str) -> None:
    error = ForbiddenError(f'patch trainjobs team-a/llm: trainjobs "llm" is forbidden: User "jane" {said}', status=403)
    assert error_words(error) == f'a permission is missing: {words} (User "jane" {said})'


def test_ctrl_c_is_130_and_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.Event().wait()
        return 0

    with pytest.raises(SystemExit) as ended:
        execute(work())
    assert (ended.value.code, capsys.readouterr()) == (130, ("", ""))


async def test_a_missing_resource_becomes_what_to_install(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = PlainCluster()
    cluster.absent = {"recoverygroups"}
    monkeypatch.setattr("recovery.cli.connection.KubeApiClient", lambda *_, **__: cluster)
    with pytest.raises(
        CommandError, match=r"^not installed in this cluster: recoverygroups\.recovery\.trainjob\.dev; kubectl"
    ):
        async with connect(ServerOptions(kubeconfig)):
            raise NoSuchResourceError("list recoverygroups: 404 page not found")
