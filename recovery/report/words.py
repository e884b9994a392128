"""How a report writes figures, times, and strings that others wrote."""

from datetime import UTC, datetime

_MINUTE, _HOUR, _DAY = 60, 3600, 86400


def printable(text: str) -> str:
    """The text on one line, without characters that a terminal or a browser obeys: control characters, and those that
    change the writing direction."""
    return " ".join("".join(each if each.isprintable() else " " for each in text).split())


def verbatim(line: str) -> str:
    """A line of a program as it is, with its indentation, but without characters that move a cursor."""
    return "".join(each if each.isprintable() else " " for each in line)


def duration_words(seconds: float) -> str:
    """`0.25 s`, `42.1 s`, `3 min 05 s`, `2 h 5 min`, `24 h`, `2 d 3 h`."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 2 * _MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 2 * _HOUR:
        return f"{whole // _MINUTE} min {whole % _MINUTE:02} s"
    if whole < 2 * _DAY:
        return _two(whole // _HOUR, "h", whole % _HOUR // _MINUTE, "min")
    return _two(whole // _DAY, "d", whole % _DAY // _HOUR, "h")


def _two(large: int, unit: str, small: int, smaller_unit: str) -> str:
    return f"{large:,} {unit} {small} {smaller_unit}" if small else f"{large:,} {unit}"


def gpu_hours(gpu_seconds: float) -> str:
    """GPU-hours, to three significant figures or as a whole number."""
    hours = gpu_seconds / _HOUR
    if abs(hours) >= 100:
        return f"{hours:,.0f}"
    if abs(hours) >= 10:
        return f"{hours:.1f}"
    if abs(hours) >= 1:
        return f"{hours:.2f}"
    return f"{hours:.3f}" if hours else "0"


def utc_cell(at: datetime) -> str:
    """`2026-11-02 08:59:00`, for a column whose title says UTC."""
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S")


def moment_words(at: datetime) -> str:
    """`2026-11-02 08:59:00 UTC`."""
    return f"{utc_cell(at)} UTC"


def percent(part: float, whole: float) -> str:
    """`25%`, or `-` if the whole is 0."""
    return f"{100 * part / whole:.0f}%" if whole else "-"


def counted(number: int, noun: str) -> str:
    """`1 incident`, `3 incidents`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
