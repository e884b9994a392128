"""The policy as it was when an incident opened."""

import msgspec

from recovery.core.model.rules import Rule


class PinnedElastic(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec.elastic` with its durations parsed."""

    min_nodes: int
    max_nodes: int
    allowed_sizes: tuple[int, ...] = ()
    """Sizes from `minNodes` to `maxNodes` that the training can run with. Empty: all that are a multiple of
    `multipleOf`."""
    multiple_of: int = 1
    shrink_after_seconds: float = 120.0
    grow_back_after_seconds: float = 300.0
    charge: bool = False


class PinnedInPlace(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """`spec.inPlace`, with `timeouts.inPlace` in seconds."""

    max_in_a_row: int
    timeout_seconds: float


class PinnedPolicy(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """The policy as it was when the incident opened. Later edits count from the next incident on."""

    policy_name: str
    policy_uid: str = msgspec.field(name="policyUID")
    policy_generation: int
    restart: str
    budget_limit: int
    budget_window_seconds: float
    start_timeout_seconds: float
    grace_seconds: int | None = None
    """Grace period in seconds for deletes of old pods. None: the grace period of each pod."""
    on_exhausted: str = "Hold"
    on_terminal_failure: str = "Leave"
    while_waiting: str = "Hold"
    capacity_wait_seconds: float = 1800.0
    """`capacityWait` of the policy in seconds."""
    backoff_initial_seconds: float = 0.0
    """Delay before the second attempt in a row, in seconds. 0: no backoff."""
    backoff_factor: float = 2.0
    backoff_max_seconds: float = 0.0
    backoff_min_interval_seconds: float = 0.0
    """`backoff.minInterval` in seconds. 0: a restart need not wait for the one before."""
    rendezvous_timeout_seconds: float = 0.0
    """`timeouts.rendezvous` in seconds. 0: no timeout."""
    resume_timeout_seconds: float = 900.0
    """`timeouts.resume` in seconds. 0: the incident does not wait for progress."""
    finish_timeout_seconds: float = 600.0
    rules: tuple[Rule, ...] = ()
    override_native: bool = False
    on_native_ignore: str = "StandAside"
    settle_seconds: float = 0.0
    elastic: PinnedElastic | None = None
    """`elastic` of the policy with its durations in seconds. None: the group always restarts with all of its nodes."""
    in_place: PinnedInPlace | None = None
    """`inPlace` of the policy. None: it is not enabled."""
    reset_after_seconds: float = 0.0
    """`backoff.resetAfter` in seconds."""
    policy_digest: str = ""
    """A hash of the fields of the policy that decide about recoveries. Empty: the incident is older than this field."""
