"""What an incident under Observe would have cost under Enforce, estimated when it closes from the facts at that time.

The report of a recovered incident estimates the opposite from the same baselines (`recovery/report/platform_ways`).
"""

from datetime import datetime

from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.model.enforce_estimate import EnforceEstimate
from recovery.core.model.ledger import JOB_TRIGGERS, AttemptAction, Incident, Outcome, Phase
from recovery.core.policy.spec import Mode

COLLECTIVE_TIMEOUT_SECONDS = 600.0
"""PyTorch, `torch.distributed.init_process_group`: the default timeout of the NCCL backend is 10 minutes."""
RESTART_SECONDS_PER_POD = 0.15
"""JobSet's own restart on a real control plane at stock limits, grace 0: 5.0 s for 32 pods, 19.4 s for 128."""
WITHOUT_BASELINE = frozenset({DisruptionClass.MANUAL, DisruptionClass.GROWTH, DisruptionClass.JOB_FAILED})
"""Classes for which the platform's own behaviour was not measured."""

_COMING_BACK = frozenset(
    {Phase.TEARING_DOWN, Phase.SCHEDULING, Phase.STARTING, Phase.RENDEZVOUS, Phase.RESUMING},
)
"""Phases of every restart, whether the controller made it or not."""


def enforce_estimate(incident: Incident, previous_started_at: datetime | None) -> EnforceEstimate:
    """The estimate for a closed incident. Empty where Enforce would have restarted nothing, and for a drill, because a
    person chose its cost.

    `previous_started_at`: when the failure of the previous incident happened. None: there was no previous incident.

    Where the platform restarted the group, both figures come from this incident: Enforce would have been as fast from
    the restart on, and saves the time before it. Where the platform restarted a rank in place, the others wait for it
    until their collective times out or the next failure happens, whichever is earlier. The time to start is left out,
    because it is the same in both cases.
    """
    if incident.mode != Mode.OBSERVE or incident.would not in JOB_TRIGGERS or incident.drill is not None:
        return EnforceEstimate()
    observed = incident.closing is not None and incident.closing.outcome is Outcome.OBSERVED
    if not observed or incident.disruption_class in WITHOUT_BASELINE:
        return EnforceEstimate(restarts=1)
    detected = _seconds(incident, frozenset({Phase.DETECTED}))
    if any(each.action is AttemptAction.ADOPTED for each in incident.attempts):
        enforced = detected + _seconds(incident, _COMING_BACK)
        platform = sum(span.idle_gpu_seconds for span in incident.phases)
    else:
        enforced = detected + incident.ranks * RESTART_SECONDS_PER_POD
        platform = incident.gpus * _waiting_seconds(incident, previous_started_at)
    return EnforceEstimate(1, round(incident.gpus * enforced, 3), round(platform, 3))


def _seconds(incident: Incident, among: frozenset[Phase]) -> float:
    spans = (span for span in incident.phases if span.phase in among and span.ended_at is not None)
    return sum((span.ended_at - span.started_at).total_seconds() for span in spans if span.ended_at is not None)


def _waiting_seconds(incident: Incident, previous_started_at: datetime | None) -> float:
    """How many seconds this incident adds to the time that the ranks wait because of the previous one."""
    if incident.disruption_class == DisruptionClass.COMMUNICATION_FAILURE:
        return 0.0  # they have timed out already
    if previous_started_at is None:
        return COLLECTIVE_TIMEOUT_SECONDS
    since = (incident.started_at - previous_started_at).total_seconds()
    return min(COLLECTIVE_TIMEOUT_SECONDS, max(0.0, since))
