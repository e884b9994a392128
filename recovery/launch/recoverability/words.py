"""Numbers as findings write them."""

_STEPS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def counted(number: int, thing: str) -> str:
    """`1 pod`, `1,024 GPUs`."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def span(seconds: float) -> str:
    """`45 s`, `5 min 50 s`, `3 h 5 min`, `2 d`: the two largest units that are not zero, of whole seconds."""
    left, parts = round(seconds), list[str]()
    for size, unit in _STEPS:
        whole, left = divmod(left, size)
        if whole:
            parts.append(f"{whole:,} {unit}")
        elif parts:
            break
    return " ".join(parts[:2]) or "0 s"
