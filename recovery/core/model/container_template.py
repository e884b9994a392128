"""The containers of a Job's pod template, as facts."""

import msgspec

from recovery.core.model.collective import LaunchFacts


class RestartRule(msgspec.Struct, frozen=True):
    """One of a container's `restartPolicyRules` (KEP-5307): the exit codes after which the kubelet restarts it."""

    operator: str
    """In or NotIn."""
    values: tuple[int, ...] = ()


class ContainerTemplate(msgspec.Struct, frozen=True):
    """One container of a Job's pod template, not an init container."""

    name: str
    accelerators: int = 0
    """How many it requests, including those of DRA claims."""
    restart_policy: str = ""
    """Its own `restartPolicy`; empty: the pod's applies."""
    restart_rules: tuple[RestartRule, ...] = ()
    launch: LaunchFacts | None = None
    """What its command and its variables show about the program. None: nothing, so it is an ordinary one."""
