"""Colours of phases and causes. A name has the same colour on every panel.

They are distinct even for people who see red and green alike. tests/unit/dashboards/test_palette.py measures that.
"""

GOOD = "#0072B2"
WARNING = "#EE9900"
BAD = "#D55E00"
NEUTRAL = "#999999"

PHASE_REASONS = {
    "Detected": "detect",
    "Decided": "decide",
    "Stopping": "teardown",
    "Fencing": "fencing",
    "TearingDown": "teardown",
    "Backoff": "backoff",
    "Scheduling": "schedule",
    "Starting": "start",
    "Rendezvous": "rendezvous",
    "Resuming": "resume",
    "Held": "hung",
}
"""The phases of an incident in their order, and the label `reason` under which their GPU time is counted."""

REASON_COLORS = {
    "detect": "#99EEDD",
    "decide": "#BBBB99",
    "fencing": "#7700EE",
    "teardown": "#EE9900",
    "backoff": "#999999",
    "schedule": "#56B4E9",
    "start": "#7777DD",
    "rendezvous": "#EEDD00",
    "resume": "#BB0077",
    "hung": "#D55E00",
}

CLASS_COLORS = {
    "NodeLost": "#0072B2",
    "HardwareFault": "#995500",
    "PodDisrupted": "#99EEEE",
    "PodDeleted": "#3399EE",
    "Killed": "#BB0077",
    "OutOfMemory": "#7700EE",
    "Crashed": "#BB7700",
    "UserError": "#EEBB99",
    "CommunicationFailure": "#BBEE00",
    "JobFailed": "#997777",
    "Manual": "#99BB33",
    "Growth": "#EE55DD",
    "Unknown": "#999999",
    "unknown": "#99BBEE",
}
"""By failure class. `unknown` stands for names that this version does not know."""

HANDLING_COLORS = {"automatic": GOOD, "manual": WARNING, "held": BAD}
OUTCOME_COLORS = {
    "Recovered": GOOD,
    "Failed": BAD,
    "Held": WARNING,
    "Superseded": NEUTRAL,
    "Observed": "#7777DD",
}
BADPUT_COLORS = {
    "infrastructure_recovery_from_disruption": GOOD,
    "other": NEUTRAL,
    "wasted_progress_from_disruption": BAD,
    "elastic_slice_down": "#EEDD00",
    "elastic_scale_up": "#99EEDD",
    "elastic_reinitialization": "#BB0077",
}
