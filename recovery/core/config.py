"""The RecoveryConfig as data: what the platform's SRE allows policies to do at most, and the brake for all of them.

There is one in a cluster, and its name is fixed. Without it the defaults hold. Only what this version acts on stands
here; the CRD declares the rest and refuses it by name.
"""

import msgspec

CONFIG_NAME = "default"
"""The one RecoveryConfig that counts; the CRD refuses others."""


class AllowSpec(msgspec.Struct, frozen=True, rename="camel"):
    """What policies may do at most."""

    fail_job: bool = False
    """End a job for good (`budget.onExhausted: FailJob`)."""


class ConfigSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of the RecoveryConfig."""

    paused: bool = False
    """No workload of the cluster is written to, but to release the controller's own suspensions."""
    pause_reason: str = ""
    """Why, in words for whoever asks `recovery explain`."""
    allow: AllowSpec = AllowSpec()


class ConfigFacts(msgspec.Struct, frozen=True):
    """The RecoveryConfig. One that cannot be read pauses everything: whatever it was meant to forbid stays undone."""

    name: str
    uid: str
    generation: int
    spec: ConfigSpec = ConfigSpec()
    unreadable: str = ""
    """Why it cannot be read; empty: it can."""

    @property
    def pause_words(self) -> str:
        """Why all recoveries are paused, in words; empty: they are not."""
        if self.unreadable:
            return f"RecoveryConfig {self.name} cannot be read ({self.unreadable}), so all recoveries are paused"
        if not self.spec.paused:
            return ""
        why = f": {self.spec.pause_reason}" if self.spec.pause_reason else ""
        return f"RecoveryConfig {self.name} pauses all recoveries{why}"
