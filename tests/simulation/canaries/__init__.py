"""Bugs planted in the controller, which the simulation has to find.

Each takes the place of one part of the product, as monkeypatching a module lets it, and is what a tired engineer might
have written there. They were written without a look at the checkers, from the product and the names of the invariants
alone: a checker that has been fitted to its canary would show nothing.
"""

from recovery.sim.trials.faults import FaultKind
from recovery.sim.trials.plan import TrialPlan
from tests.simulation.canaries import decisions, deeds, ledgers, looks
from tests.simulation.canaries.canary import Canary


def _any(plan: TrialPlan) -> bool:
    return True


CANARIES = (
    Canary("create before the old pods are gone", "OneIncarnation", deeds.create_before_gone, _any),
    Canary("deed before ledger", "LedgerBeforeDeed", deeds.deed_before_ledger, _any),
    Canary("cache trusted for absence", "JustifiedRestart", looks.cache_is_truth, _any),
    Canary("no compare-and-swap", "LedgerSuccession", ledgers.last_write_wins, _any),
    Canary("edge-triggered", "ConvergesAfterHealing", looks.only_changes, _any),
    Canary("no UID precondition", "OnlyTargets", deeds.deletes_by_name, _any),
    Canary("two charges for one incident", "OneCharge", ledgers.a_charge_for_each_attempt, _any),
    Canary("native decision ignored", "NativeFirst", decisions.no_native_decision, _any),
    Canary("baseline taken for a failure", "BaselineUntouched", decisions.no_baseline, _any),
    Canary("forgotten watchdog", "WatchdogTouches", decisions.no_watchdog, _any),
    Canary("own suspension read as the user's", "SuspensionReleased", decisions.suspension_is_the_user_s, _any),
)
