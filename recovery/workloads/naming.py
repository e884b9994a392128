"""Names of our own objects: every leader and every tool finds the same object without a search."""

NAME_PART_MAX = 200
"""How much of the workload's name is kept. With a UID of 36 characters the result fits the 253 of a DNS subdomain."""


def recovery_group_name(workload_name: str, workload_uid: str) -> str:
    """The name of a workload's RecoveryGroup.

    The name has the UID, so that a workload that is deleted and created again under its name starts with a new ledger.
    If two leaders create the object at once, one of them gets AlreadyExists.
    """
    readable = workload_name[:NAME_PART_MAX].rstrip("-.")
    return f"{readable}-{workload_uid}"


def may_be_recovery_group_of(name: str, workload_uid: str) -> bool:
    """Whether the RecoveryGroup of that name may belong to the workload. An empty argument means not known."""
    return not name or not workload_uid or name.endswith(f"-{workload_uid}")
