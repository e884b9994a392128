"""Names that every leader derives in the same way."""

import re

import pytest

from recovery.workloads.naming import may_be_recovery_group_of, recovery_group_name

UID = "1a93898b-ffca-4ca8-9e18-ad099985668f"
DNS_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")


@pytest.mark.parametrize("name", ["llm", "a" * 253, "a" * 199 + "-b", "a" * 199 + ".b"])
def test_the_name_is_valid_and_carries_the_whole_uid(name: str) -> None:
    made = recovery_group_name(name, UID)
    assert DNS_SUBDOMAIN.fullmatch(made)
    assert len(made) <= 253
    assert made.endswith(f"-{UID}")
    assert made.startswith(name[:3])


@pytest.mark.parametrize("name", ["llm", "a" * 253])
def test_the_name_says_whose_it_is(name: str) -> None:
    made = recovery_group_name(name, UID)
    assert may_be_recovery_group_of(made, UID)
    assert not may_be_recovery_group_of(made, UID.replace("1a", "2b", 1))


@pytest.mark.parametrize(("name", "uid"), [("", UID), ("llm-" + UID, "")], ids=["no name", "no UID"])
def test_what_is_not_known_rules_nothing_out(name: str, uid: str) -> None:
    assert may_be_recovery_group_of(name, uid)
