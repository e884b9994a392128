"""Names of our own objects, so that every leader, and every tool, finds the same one without a search."""

NAME_PART_MAX = 200
"""What is kept of the workload's name: with a UID of 36 characters the whole stays below the 253 of a DNS subdomain."""


def recovery_group_name(workload_name: str, workload_uid: str) -> str:
    """The name of a workload's RecoveryGroup.

    It carries the UID, so that a workload that is deleted and created again under its name starts with a new ledger,
    and so that two leaders that create it at once meet in one AlreadyExists.
    """
    readable = workload_name[:NAME_PART_MAX].rstrip("-.")
    return f"{readable}-{workload_uid}"


def may_be_recovery_group_of(name: str, workload_uid: str) -> bool:
    """Whether the RecoveryGroup of that name may belong to the workload. An empty text is one that is not known."""
    return not name or not workload_uid or name.endswith(f"-{workload_uid}")
