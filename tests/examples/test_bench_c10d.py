"""The comparison of `make bench ARGS=rendezvous`: stock c10d joins again when one of its agents does."""

from tests.bench.rendezvous import c10d


async def test_four_agents_of_c10d_form_and_form_again() -> None:
    python = c10d.python_with_torch()
    assert python is not None, "make examples has installed torch"
    figures = await c10d.measure(python, agents=4, processes=2, reforms=1)
    assert figures.form_seconds > 0
    assert figures.reform_seconds is not None
