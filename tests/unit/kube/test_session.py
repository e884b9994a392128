"""Finding the cluster: the order of the sources, and one clear line for each kind of failure."""

import asyncio
import json
from pathlib import Path

import pytest

from recovery.kube import session as session_module
from recovery.kube.session import SessionError, open_session

CONTEXTS = {
    "current-context": "one",
    "contexts": [
        {"name": "one", "context": {"cluster": "c1", "user": "u"}},
        {"name": "two", "context": {"cluster": "c2", "user": "u"}},
        {"name": "nowhere", "context": {"cluster": "c3", "user": "u"}},
        {"name": "odd", "context": {"cluster": "c4", "user": "u"}},
        {"name": "badca", "context": {"cluster": "c5", "user": "u"}},
        {"name": "plugin", "context": {"cluster": "c1", "user": "plugin"}},
    ],
    "clusters": [
        {"name": "c1", "cluster": {"server": "http://one:1"}},
        {"name": "c2", "cluster": {"server": "http://two:2/prefix/"}},
        {"name": "c4", "cluster": {"server": "four:4"}},
        {"name": "c5", "cluster": {"server": "https://five:5", "certificate-authority-data": "bm9uZQ=="}},
    ],
    "users": [
        {"name": "u", "user": {"token": "t"}},
        {
            "name": "plugin",
            "user": {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "sh",
                    "args": ["-c", "echo log in >&2; exit 3"],
                }
            },
        },
    ],
}


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    path = tmp_path / "config"
    path.write_text(json.dumps(CONTEXTS))
    return str(path)


async def failure(kubeconfig: str | None = None, context: str | None = None) -> str:
    with pytest.raises(SessionError) as caught:
        async with open_session(kubeconfig=kubeconfig, context=context):
            pass
    assert "\n" not in str(caught.value)
    return str(caught.value)


async def test_the_current_context_is_taken_or_the_named_one(kubeconfig: str) -> None:
    async with (
        open_session(kubeconfig=kubeconfig) as current,
        open_session(kubeconfig=kubeconfig, context="two") as two,
    ):
        assert current.server == "http://one:1"
        assert two.server == "http://two:2/prefix"
        assert await two.authorization() == {"authorization": "Bearer t"}


async def test_the_environment_names_the_kubeconfig(kubeconfig: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", f"/not/there:{kubeconfig}")
    async with open_session() as session:
        assert session.server == "http://one:1"


@pytest.mark.parametrize(
    ("context", "line"),
    [
        ("three", "there is no context 'three'"),
        ("nowhere", "Expected object with name c3"),
        ("odd", "names no http(s) server"),
        ("plugin", "exec: sh exited with 3: log in"),
    ],
)
async def test_a_context_that_leads_nowhere_is_named(kubeconfig: str, context: str, line: str) -> None:
    message = await failure(kubeconfig, context)
    assert message.startswith(f"kubeconfig {kubeconfig}")
    assert line in message


@pytest.mark.parametrize(
    "text", ["", "a: [", "[]", "just words", "current-context: x", "{current-context: x, contexts: 1}"]
)
async def test_a_file_that_is_no_kubeconfig(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    assert (await failure(str(path))).startswith(f"kubeconfig {path}")


@pytest.mark.parametrize("text", ["", "[]", "just words", "3", "{current-context: x, contexts: 1}"])
async def test_a_file_of_something_else_is_called_that(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    message = await failure(str(path))
    assert message.startswith(f"kubeconfig {path} is not a kubeconfig: ")
    assert "Error" not in message


async def test_no_cluster_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert await failure() == (
        f"no cluster: there is no kubeconfig at {tmp_path}/.kube/config; set KUBECONFIG, or name another file"
    )


async def test_in_a_pod_the_service_account_speaks_for_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    assert await failure() == "service account: Service token file does not exist."


async def test_a_certificate_authority_that_is_none(kubeconfig: str) -> None:
    assert "certificates: " in await failure(kubeconfig, "badca")


async def test_credentials_that_do_not_come_are_not_waited_for(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def hang(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session_module, "load_kubeconfig", hang)
    monkeypatch.setattr(session_module, "LOAD_SECONDS_MAX", 0.01)
    assert await failure(kubeconfig) == f"kubeconfig {kubeconfig}: credentials did not come within 0 s"


async def test_the_proxy_of_the_environment_is_used_where_it_applies(
    kubeconfig: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "two")
    async with open_session(kubeconfig=kubeconfig) as one, open_session(kubeconfig=kubeconfig, context="two") as two:
        assert one.connection_arguments() == {"proxy": "http://proxy:3128"}
        assert two.connection_arguments() == {}


@pytest.mark.parametrize("server", ["https://one:99999", "https://[::1", "https://one:abc"])
async def test_a_server_that_is_no_url_is_named(kubeconfig: str, server: str) -> None:
    path = Path(kubeconfig)
    path.write_text(path.read_text().replace("http://one:1", server))
    assert f"the server {server!r} is no URL: " in await failure(kubeconfig)
