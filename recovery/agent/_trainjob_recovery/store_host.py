"""Slot 0's store: the process that listens on MASTER_PORT for all ranks.

torchrun's agent hosts it with static rendezvous, and TORCHELASTIC_USE_AGENT_STORE=True makes all ranks its clients. The
agent has no torch, so a process of its own hosts it.

Only a new store keeps the keys of one attempt apart from those of another: torch gives them no prefix. So each epoch
gets one, on the same port, and the import of torch is not repeated.
"""

import os
import sys

OPEN, CLOSE, REFUSED = b"o", b"c", b"r"


def main(port: int, commands: int, answers: int) -> None:
    """Open and close stores as the agent commands, each with an answer. Ends with the agent."""
    from torch.distributed import TCPStore  # type: ignore[import-not-found]

    store = None
    while command := os.read(commands, 1):
        try:
            # The listener ends with the last reference.
            store = TCPStore("localhost", port, None, True, wait_for_workers=False) if command == OPEN else None
        except Exception:
            os.write(answers, REFUSED)
            raise
        os.write(answers, command)
    del store


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
