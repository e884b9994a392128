"""The kubelet replaces a token before it expires, and the process continues with the new one."""

import asyncio
import time

import pytest

from tests.cluster.real_nodes.start import RealCluster
from tests.real_nodes.pods import eventually
from tests.real_nodes.token_reader import LIFETIME_SECONDS, TokenReader, expires_at
from tests.real_nodes.tokens import is_accepted, token_of

GOES_ON_SECONDS = 5.0


@pytest.mark.timeout(2 * LIFETIME_SECONDS)
async def test_a_process_outlives_its_token(cluster: RealCluster, token_reader: TokenReader) -> None:
    control_plane, first = cluster.control_plane, token_reader.first_token
    await asyncio.sleep(max(0.0, expires_at(first) - time.time()))

    async def is_refused() -> bool:
        # The API server allows for a minute of clock skew.
        return not await is_accepted(control_plane, first)

    await eventually("the first token is refused", is_refused)
    refused_at = time.time()
    assert await is_accepted(control_plane, token_of(token_reader.process))
    await asyncio.sleep(GOES_ON_SECONDS)

    requests = await token_reader.requests()
    assert requests[-1]["at"] > refused_at
    assert [each for each in requests if each["wrong"]] == []
    assert (await token_reader.processes())[0] == token_reader.process
