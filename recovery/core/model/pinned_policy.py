"""What the policy said when an incident opened."""

import msgspec

from recovery.core.model.rules import Rule


class PinnedElastic(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec.elastic` with its durations parsed."""

    min_nodes: int
    max_nodes: int
    allowed_sizes: tuple[int, ...] = ()
    """Empty: every one."""
    multiple_of: int = 1
    shrink_after_seconds: float = 120.0
    grow_back_after_seconds: float = 300.0
    charge: bool = False


class PinnedPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What the policy said when the incident opened; later edits of it count from the next incident on."""

    policy_name: str
    policy_uid: str = msgspec.field(name="policyUID")
    policy_generation: int
    restart: str
    budget_limit: int
    budget_window_seconds: float
    start_timeout_seconds: float
    grace_seconds: int | None = None
    """Grace for the deletes of old pods. None: the pod's own."""
    on_exhausted: str = "Hold"
    on_terminal_failure: str = "Leave"
    backoff_initial_seconds: float = 0.0
    """0: no backoff."""
    backoff_factor: float = 2.0
    backoff_max_seconds: float = 0.0
    rendezvous_timeout_seconds: float = 0.0
    """0: none (an incident of schema version 1)."""
    resume_timeout_seconds: float = 900.0
    """0: the incident does not wait for progress."""
    finish_timeout_seconds: float = 600.0
    rules: tuple[Rule, ...] = ()
    override_native: bool = False
    settle_seconds: float = 0.0
    elastic: PinnedElastic | None = None
    """None: the group always comes back with all of its nodes."""
    reset_after_seconds: float = 0.0
    """0: an older version opened the incident."""
