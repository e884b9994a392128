"""The podFailurePolicy of a Job and the failurePolicy of a JobSet, as facts."""

import msgspec


class ExitCodesRequirement(msgspec.Struct, frozen=True):
    """`onExitCodes` of a rule. `container_name` None: any container."""

    operator: str
    values: tuple[int, ...]
    container_name: str | None = None


class PodConditionPattern(msgspec.Struct, frozen=True):
    """One item of `onPodConditions`."""

    type: str
    status: str = "True"


class PodFailureRule(msgspec.Struct, frozen=True):
    """One rule of a Job's podFailurePolicy. Exactly one of the two requirements is set."""

    action: str
    on_exit_codes: ExitCodesRequirement | None = None
    on_pod_conditions: tuple[PodConditionPattern, ...] = ()


class FailurePolicyRule(msgspec.Struct, frozen=True):
    """One rule of a JobSet's failurePolicy. An empty list matches everything."""

    name: str
    action: str
    on_job_failure_reasons: tuple[str, ...] = ()
    on_job_failure_message_patterns: tuple[str, ...] = ()
    target_replicated_jobs: tuple[str, ...] = ()


class FailurePolicyFacts(msgspec.Struct, frozen=True):
    """A JobSet's failurePolicy."""

    max_restarts: int = 0
    rules: tuple[FailurePolicyRule, ...] = ()
