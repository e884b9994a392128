"""The election has its own connections and limits, so no request of a recovery delays a renewal."""

import asyncio
from pathlib import Path

from aiohttp import web

from recovery import api_verbs
from recovery.cli.arguments import ServerOptions
from recovery.cli.connection import connect
from recovery.cli.preflight import WATCHED
from recovery.cli.run import standing
from recovery.controller.leadership import SoleLeader
from recovery.controller.lease import LEASE_NAME
from recovery.kube.client import READS_IN_FLIGHT_MAX, WRITES_IN_FLIGHT_MAX
from recovery.kube.session import CONNECTIONS_MAX
from recovery.ports import NODES, PODS
from tests.unit.kube.server import OBJECT, serving


async def test_the_lease_is_taken_and_renewed_while_every_read_and_write_of_a_storm_hangs(tmp_path: Path) -> None:
    release = asyncio.Event()

    async def stuck(_: web.Request) -> web.StreamResponse:
        await release.wait()
        return web.Response(body=OBJECT)

    async def absent(_: web.Request) -> web.StreamResponse:
        details = {"name": LEASE_NAME, "kind": "leases"}
        return web.json_response({"kind": "Status", "code": 404, "reason": "NotFound", "details": details}, status=404)

    async def written(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Lease", "metadata": {"resourceVersion": "1"}, "spec": {}})

    async with serving() as server:
        kubeconfig = server.kubeconfig(tmp_path)
        hanging = READS_IN_FLIGHT_MAX + WRITES_IN_FLIGHT_MAX
        server.script.extend([stuck] * hanging)
        async with connect(ServerOptions(kubeconfig)) as recoveries, standing(kubeconfig, None, "ns", 15) as election:
            client = recoveries.client
            storm = [
                *(asyncio.create_task(api_verbs.get(client, NODES, f"n{number}")) for number in range(300)),
                *(asyncio.create_task(api_verbs.delete(client, PODS, f"p{n}", namespace="a")) for n in range(300)),
            ]
            while server.script:
                await asyncio.sleep(0.005)
            assert len(server.received) == hanging
            server.script.extend([absent, written, written])
            term = await election.acquire()
            holding = asyncio.create_task(election.hold(term))
            while server.script:
                await asyncio.sleep(0.005)
            holding.cancel()
            sent = [(each.method, each.path.rpartition("/")[2]) for each in server.received[hanging:]]
            for task in storm:
                task.cancel()
            release.set()
            await asyncio.gather(holding, *storm, return_exceptions=True)
    assert sent == [("GET", LEASE_NAME), ("POST", "leases"), ("PATCH", LEASE_NAME)]
    assert term.lasts


async def test_who_holds_no_election_opens_no_session_for_it(tmp_path: Path) -> None:
    async with standing(str(tmp_path / "there is none"), None, None, None) as leadership:
        assert isinstance(leadership, SoleLeader)


def test_a_session_has_a_connection_for_each_request_in_flight_and_each_watch() -> None:
    """A request would otherwise wait for a connection while its time limit runs."""
    assert READS_IN_FLIGHT_MAX + WRITES_IN_FLIGHT_MAX + len(WATCHED) <= CONNECTIONS_MAX
