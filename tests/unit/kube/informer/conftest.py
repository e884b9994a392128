import pytest

from tests.unit.kube.informer.informer_world import World


@pytest.fixture
def world() -> World:
    return World()
