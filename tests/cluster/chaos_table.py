"""What the experiments of examples/chaos came to, wherever they ran: `make chaos` prints it.

The tests keep one line for each run. The verdicts of an experiment must be equal everywhere.
"""

import json
import sys
from typing import Any

from tests.cluster.scene import REPOSITORY

_FILE = REPOSITORY / "build" / "chaos.jsonl"
_COLUMNS = ("experiment", "where", "verdict", "seconds", "idle GPU-s", "acted", "attempts", "resumed at step")


def keep(where: str, experiment: str, verdict: str, case: dict[str, Any]) -> None:
    """Add a run. `case`: its last repeat, as the command prints it as JSON."""
    _FILE.parent.mkdir(exist_ok=True)
    line = {
        "experiment": experiment,
        "where": where,
        "verdict": verdict,
        "seconds": case.get("recoverySeconds"),
        "idle GPU-s": case.get("idleGpuSeconds"),
        "acted": ", ".join(case.get("actions", ())),
        "attempts": case.get("attempts"),
        "resumed at step": case.get("resumedStep"),
    }
    with _FILE.open("a") as kept:
        kept.write(json.dumps(line) + "\n")


def rows() -> list[dict[str, Any]]:
    """The newest run of each experiment in each place."""
    lines = _FILE.read_text().splitlines() if _FILE.exists() else []
    found = {(each["experiment"], each["where"]): each for each in map(json.loads, lines)}
    return [found[key] for key in sorted(found)]


def main() -> None:
    """Print the table. Exit code 1: an experiment has several verdicts, or none was run."""
    found = rows()
    print(f"| {' | '.join(_COLUMNS)} |")
    print(f"|{'---|' * len(_COLUMNS)}")
    for row in found:
        print(f"| {' | '.join('-' if row[each] in (None, '') else str(row[each]) for each in _COLUMNS)} |")
    verdicts: dict[str, set[str]] = {}
    for row in found:
        verdicts.setdefault(row["experiment"], set()).add(row["verdict"])
    differ = sorted(name for name, each in verdicts.items() if len(each) > 1)
    if differ or not found:
        print(f"verdicts differ: {', '.join(differ)}" if differ else "no experiment was run")
        sys.exit(1)


if __name__ == "__main__":
    main()
