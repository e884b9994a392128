"""When the last restart of a group ended. `backoff.minInterval` counts from then."""

from datetime import datetime

from recovery.core.model.ledger import AttemptAction, Ledger, Phase


def ended_at(ledger: Ledger, now: datetime) -> datetime | None:
    """When all ranks had met after the last restart, ours or adopted, or since when it is given up. None: there was
    none.

    If the open incident has a restart, it is over now: asked only when another one is due, or the incident closes.
    """
    open_ = ledger.current_incident
    restarts = [each.started_at for each in open_.attempts if each.action is not AttemptAction.NONE]
    if not restarts:
        return ledger.restart_ended_at
    met = [span.started_at for span in open_.phases if span.phase is Phase.RESUMING and span.started_at >= restarts[-1]]
    if met:
        return met[-1]
    return open_.phases[-1].started_at if open_.step.withheld or ledger.phase is Phase.HELD else now
