"""The parts of `make bench ARGS=rendezvous`, at a small size: processes that form a rendezvous, and the table."""

import resource

import pytest

from tests.bench.rendezvous import c10d, ours
from tests.bench.rendezvous.measure import Row, table

OURS = Row("ours", 1250, 1.0, 0.4, 0.2, 0.5, reform_cpu_seconds=0.1, rest_mb=30.0, peak_mb=31.0)
TWICE = Row("ours", 2500, 1.0, 0.8, 0.4, 1.0, reform_cpu_seconds=0.2, rest_mb=33.0, peak_mb=34.0)
STOCK = Row("c10d", 128, 1.0, 9.0, 4.0, reform_cpu_seconds=6.0)


async def test_eight_agents_form_form_again_and_all_dial_again() -> None:
    figures = await ours.measure(8, pause_seconds=0.0)
    assert min(figures.form_seconds, figures.reform_seconds, figures.reconnect_seconds) > 0
    assert 10 < figures.rest_mb <= figures.peak_mb


def test_a_low_hard_limit_of_files_leaves_fewer_agents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    assert ours.agents_possible(1250) == 1250
    assert ours.agents_possible(10_000) < 4096 - 100


def test_the_table_compares_with_c10d_and_by_the_number_of_agents() -> None:
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table([OURS, TWICE, STOCK]).splitlines()[2:]]
    assert [(row[0], row[7], row[8]) for row in rows] == [
        ("1,250", "1.00", "0.050"),
        ("2,500", "1.00", "0.100"),
        ("128, c10d", "", ""),
    ]


def test_without_torch_the_table_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(c10d, "python_with_torch", lambda: None)
    *_, last = table([OURS]).splitlines()
    assert last == "c10d: torch is not installed; run `make examples`"
