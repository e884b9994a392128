"""The parts of `make bench ARGS=reports` that need no controller: the tokens of its API server, and its table."""

from recovery.controller.clock import SystemClock
from recovery.ports import ApiRequest
from recovery.rendezvous.tokens import TokenPod, Tokens
from tests.bench.reports.api import AgentRequests, token_of
from tests.bench.reports.measure import Row, table
from tests.bench.scale.cluster import Cluster
from tests.bench.scale.fleet import Fleet
from tests.unit.fake_api import FakeApi


class Api(FakeApi):
    """The API server of the bench, without HTTP."""

    def __init__(self, requests: AgentRequests) -> None:
        super().__init__()
        self.served = requests
        self.reviews = 0

    async def answer(self, request: ApiRequest) -> bytes:
        self.reviews += 1
        _, body, _ = self.served.handle(
            request.verb, request.resource.plural, ("", ""), "", {}, "", bytes(request.body or b"")
        )
        return body


async def test_each_token_is_reviewed_once_and_is_of_its_pod() -> None:
    fleet = Fleet([(1, 2)])
    api = Api(AgentRequests(Cluster(fleet)))
    tokens = Tokens(api, SystemClock())
    pod = next(iter(fleet.pods.values()))
    first, renewed = token_of(pod), token_of(pod, "renewed")
    for token in (first, renewed, first):
        assert await tokens.pod(token) == TokenPod(pod.job.group.namespace, pod.name, pod.uid)
    assert api.reviews == 2


def row(phase: str, cpu_milliseconds: float | None) -> Row:
    return Row(phase, 1.0, 10, 0, cpu_milliseconds, 4.0, 9.0, None, 120.0)


def test_the_table_compares_with_the_reports_of_every_30_s() -> None:
    lines = table([row("none", None), row("every 30 s", 2.0), row("all at once", 1.0)]).splitlines()[2:]
    assert [line.split("|")[5].strip() for line in lines] == ["", "1.00", "0.50"]
