"""A campaign of small attempts, which processes of their own can run."""

import time

from tests.soak.attempt import Attempt, Broken, Campaign


def odd_seven_breaks(number: int) -> Attempt:
    """7, 17, 27 and so on break an invariant, and 13 hangs."""
    if number == 13:
        time.sleep(1000)
    broken = (Broken("no seven", f"{number} has one"),) if number % 10 == 7 else ()
    return Attempt(cpu_seconds=0.5, broken=broken, figures={"digits": len(str(number))})


def endless(number: int) -> Attempt:
    """It runs until Ctrl-C."""
    print(f"{number} has begun", flush=True)
    time.sleep(1000)
    return Attempt(0)


def described(number: int) -> str:
    return f"number {number}"


def explained(number: int) -> str:
    return f"{number} ends with 7"


SEVENS = Campaign("number", odd_seven_breaks, described, explained, "show {number}", attempts=10, limit_seconds=1)
ENDLESS = Campaign("number", endless, described, explained, "show {number}", attempts=10, limit_seconds=100)
