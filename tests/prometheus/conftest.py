"""Prometheus, promtool and kube-state-metrics beside the control plane of the cluster tests, and its fixtures."""

import pytest

from tests.cluster.conftest import (
    control_plane,
    controller,
    fleet,
    installed,
    namespace,
    proxy,
    training,
)
from tests.cluster.controlplane.build import CONTROL_PLANE, MONITORING, Toolbox, provide

__all__ = ["control_plane", "controller", "fleet", "installed", "namespace", "proxy", "toolbox", "training"]


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Builds the tools if nothing is cached, which takes minutes and prints nothing. The error says why it failed."""
    return provide(tools=(*CONTROL_PLANE, *MONITORING))
