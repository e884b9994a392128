"""One real control plane for the whole suite, and a namespace of its own for every test.

Everything runs in one event loop for the session (pyproject.toml sets it): the control plane outlives each test's own
loop otherwise.
"""

import re
import secrets
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.cluster.controlplane.build import Toolbox, provide
from tests.cluster.controlplane.start import ControlPlane, ControlPlaneSettings


@pytest.fixture(scope="session")
def toolbox() -> Toolbox:
    """Built here, in minutes and silence, if nothing is cached; `python -m tests.cluster.controlplane.build` tells."""
    return provide()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def control_plane(toolbox: Toolbox) -> AsyncIterator[ControlPlane]:
    """With raised request limits, so that tests of behaviour do not wait for the controller-manager's 20 a second."""
    async with ControlPlane.start(ControlPlaneSettings(request_limits="raised"), toolbox) as running:
        yield running


@pytest_asyncio.fixture(loop_scope="session")
async def namespace(control_plane: ControlPlane, request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Named after the test. Its deletion is not waited for: a pod bound to a node that nobody plays would keep it."""
    readable = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")[:40].rstrip("-")
    name = f"{readable}-{secrets.token_hex(3)}"
    await control_plane.kubectl("create", "namespace", name)
    yield name
    await control_plane.kubectl("delete", "namespace", name, "--wait=false")
