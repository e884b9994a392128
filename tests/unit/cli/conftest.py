import pytest

from tests.unit.cli.cluster import PlainCluster, connect_to


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PlainCluster:
    """What `status` and `explain` read; the context's namespace is team-a."""

    async def chosen_namespace(_kubeconfig: object, _context: object, namespace: str | None) -> str:
        return namespace or "team-a"

    plain = PlainCluster()
    for module in ("status", "explain"):
        monkeypatch.setattr(f"recovery.cli.{module}.connect", connect_to(plain))
        monkeypatch.setattr(f"recovery.cli.{module}.chosen_namespace", chosen_namespace)
    return plain
