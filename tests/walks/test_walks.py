"""The modelled cluster does what the real control plane does, in random walks."""

from tests.walks.comparison import report
from tests.walks.worlds import Outcome, RealWalks


async def test_the_modelled_cluster_walks_like_the_real_one(
    seed: int, walks: RealWalks, outcomes: list[Outcome]
) -> None:
    outcome = await walks.outcome(seed)
    outcomes.append(outcome)
    differences = outcome.comparison.differences
    assert not differences, report(outcome.plan, outcome.real, outcome.model, differences)
