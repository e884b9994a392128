"""How often a client may ask, and that many clients take no more memory than a few thousand."""

import pytest

from recovery.rendezvous.rates import CLIENTS_MAX, Rates, network_of, retry_after
from tests.unit.rendezvous.world import HandClock


def test_a_client_has_a_burst_and_then_its_rate() -> None:
    clock = HandClock()
    rates: Rates[str] = Rates(clock, per_second=2.0, burst=3.0)
    assert [rates.wait_seconds("a") for _ in range(3)] == [0.0] * 3
    assert rates.wait_seconds("a") == 0.5
    assert rates.wait_seconds("b") == 0.0, "each client has its own"
    clock.seconds += 0.5
    assert rates.wait_seconds("a") == 0.0
    assert rates.wait_seconds("a") == 0.5
    clock.seconds += 1000
    assert [bool(rates.wait_seconds("a")) for _ in range(4)] == [False, False, False, True]


def test_the_client_that_has_been_silent_for_longest_is_forgotten() -> None:
    rates: Rates[int] = Rates(HandClock(), per_second=1.0, burst=1.0)
    for client in range(CLIENTS_MAX + 10):
        rates.wait_seconds(client)
    assert len(rates) == CLIENTS_MAX
    assert rates.wait_seconds(CLIENTS_MAX + 9) == 1.0
    assert rates.wait_seconds(0) == 0.0


@pytest.mark.parametrize(("seconds", "said"), [(0.01, "1"), (1.0, "1"), (1.2, "2")])
def test_a_delay_is_said_in_whole_seconds(seconds: float, said: str) -> None:
    assert retry_after(seconds) == {"Retry-After": said}


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("10.1.2.3", "10.1.2.3"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        (None, ""),
        ("unknown", ""),
    ],
)
def test_a_client_with_ipv6_is_counted_by_its_network(address: str | None, network: str) -> None:
    assert network_of(address) == network
