"""Names that every leader finds."""

import re

import pytest

from recovery.workloads.naming import recovery_group_name

UID = "1a93898b-ffca-4ca8-9e18-ad099985668f"
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("name", ["llm", "a" * 253, "a" * 199 + "-b", "a" * 199 + ".b"])
def test_the_name_is_valid_and_carries_the_whole_uid(name: str) -> None:
    made = recovery_group_name(name, UID)
    assert DNS_SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253
    assert made.endswith(f"-{UID}")
    assert made.startswith(name[:3])
