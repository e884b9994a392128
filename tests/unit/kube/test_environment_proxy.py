"""Which proxy the environment names for a server, by the rules of golang.org/x/net/http/httpproxy."""

import pytest

from recovery.kube.environment_proxy import environment_proxy

PROXY = "http://proxy:3128"

DIRECTLY = [
    ("https://10.96.0.1", "10.96.0.0/12"),
    ("https://10.96.0.1:443", "example.com, 10.0.0.0/8"),
    ("https://[fd00:10:96::1]:443", "fd00:10:96::/112"),
    ("https://[::ffff:10.0.0.1]", "10.0.0.0/8"),
    ("https://10.96.0.1", "10.96.0.1"),
    ("https://10.96.0.1", "10.96.0.1:443"),
    ("https://[fd00::1]:6443", "[fd00::1]:6443"),
    ("https://[fd00::1]:6443", "fd00:0::1"),
    ("https://api.example.com", "example.com"),
    ("https://api.example.com", ".example.com"),
    ("https://api.example.com", "*.example.com"),
    ("https://example.com", "EXAMPLE.com"),
    ("https://API.example.com:6443", "api.example.com:6443"),
    ("https://anything", "*"),
    ("https://localhost:6443", ""),
    ("https://127.0.0.1:6443", ""),
    ("https://[::1]:6443", ""),
]
BY_PROXY = [
    ("https://10.96.0.1", ""),
    ("https://10.112.0.1", "10.96.0.0/12"),
    ("https://[fd00::1]", "10.0.0.0/8"),
    ("https://10.96.0.1", "10.96.0.1:80"),
    ("https://10.96.0.1", "10.96.0.1/33, 10.96.0, :443, ,"),
    ("https://example.com", ".example.com"),
    ("https://example.com", "*.example.com"),
    ("https://badexample.com", "example.com"),
    ("https://example.com", "10.0.0.0/8"),
    ("https://api.example.com:6443", "api.example.com:443"),
]


@pytest.mark.parametrize(("server", "no_proxy"), DIRECTLY)
def test_what_no_proxy_names_is_connected_to_directly(server: str, no_proxy: str) -> None:
    assert environment_proxy(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) is None


@pytest.mark.parametrize(("server", "no_proxy"), BY_PROXY)
def test_what_it_does_not_name_is_not(server: str, no_proxy: str) -> None:
    assert environment_proxy(server, {"HTTPS_PROXY": PROXY, "NO_PROXY": no_proxy}) == PROXY


def test_each_scheme_has_its_own_and_the_name_in_upper_case_counts_first() -> None:
    environment = {"https_proxy": "http://lower", "HTTPS_PROXY": "http://upper", "http_proxy": "plain:80"}
    assert environment_proxy("https://a", environment) == "http://upper"
    assert environment_proxy("http://a", environment) == "http://plain:80"
    assert environment_proxy("http://a", {"HTTPS_PROXY": PROXY}) is None
    assert environment_proxy("https://a", {"https_proxy": PROXY, "no_proxy": "a"}) is None
