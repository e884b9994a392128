"""In a pod, the kubelet replaces the token while the process runs."""

import datetime
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kubernetes_asyncio.config import incluster_config

from recovery.admission.certificates import Certificates, make_certificates
from recovery.kube.session import Session, open_session


@pytest.fixture
def token(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text("old")
    return path


@pytest.fixture
async def session(token: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Session]:
    authority = tmp_path / "ca.crt"
    now = datetime.datetime.now(datetime.UTC)
    authority.write_bytes(make_certificates(["127.0.0.1"], now, Certificates()).authorities)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority))
    async with open_session() as opened:
        yield opened


async def test_a_token_of_which_the_minute_is_over_is_read_again(
    session: Session, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No request was refused: a token is replaced long before it expires."""
    monkeypatch.setattr(incluster_config, "datetime", _InAMinute)
    token.write_text("new")
    assert await session.authorization() == {"authorization": "Bearer new"}


async def test_a_token_that_was_refused_is_read_again_at_once(session: Session, token: Path) -> None:
    assert await session.authorization() == {"authorization": "Bearer old"}
    token.write_text("new")
    assert await session.authorization() == {"authorization": "Bearer old"}, "not for every request"
    await session.refresh(session.credentials_version)
    assert await session.authorization() == {"authorization": "Bearer new"}


class _InAMinute:
    """Stands in for the module `datetime`."""

    timedelta = datetime.timedelta

    class datetime:  # noqa: N801
        @staticmethod
        def now() -> datetime.datetime:
            return datetime.datetime.now() + incluster_config.TOKEN_REFRESH_PERIOD
