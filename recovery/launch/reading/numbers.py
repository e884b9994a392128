"""Reads whole numbers that count something. It reports numbers that the API refuses, and absurdly large ones."""

from recovery.launch.fields import Field
from recovery.launch.findings import Code, Severity
from recovery.launch.places import written

BAD_NUMBER = Code("bad-number", Severity.ERROR, "a number is smaller than the field allows, or absurdly large")
CODES = (BAD_NUMBER,)

PODS_MAX = 100_000
"""The most that the API server accepts for an Indexed Job (k8s.io/kubernetes pkg/apis/batch/validation,
maxParallelismForIndexedJob). JobSet makes all of its Jobs Indexed."""
INT32_MAX = 2**31 - 1


def number(field: Field, *, least: int = 0, most: int = INT32_MAX) -> int | None:
    """The number, if it is between `least` and `most`, both included. None: it is missing, or out of range."""
    value = field.whole()
    if value is None:
        return None
    if least <= value <= most:
        return value
    limit, fix = f"at most {most:,}", f"write {most} or less"
    if value < least:
        limit, fix = f"at least {least}", f"write {least} or more"
    field.finding(BAD_NUMBER, f"{written(field.place.path)} is {value}, and it has to be {limit}", fix)
    return None


def pods(field: Field, *, least: int) -> int | None:
    """A number of pods."""
    return number(field, least=least, most=PODS_MAX)
