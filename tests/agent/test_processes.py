"""What lives below the agent is found in the process table, and what no signal ends is named."""

import os
import subprocess
import sys
from pathlib import Path

from recovery.agent._trainjob_recovery.processes import ProcessEntry, living_below, process_table

AGENT, RANK, WORKER, ZYGOTE, BELOW_ZYGOTE, ENDED, STRANGER = 10, 11, 12, 13, 14, 15, 20
TABLE = [
    ProcessEntry(AGENT, 1, "S"),
    ProcessEntry(RANK, AGENT, "R"),
    ProcessEntry(WORKER, RANK, "D"),
    ProcessEntry(ZYGOTE, AGENT, "S"),
    ProcessEntry(BELOW_ZYGOTE, ZYGOTE, "S"),
    ProcessEntry(ENDED, AGENT, "Z"),
    ProcessEntry(STRANGER, 1, "S"),
]


def test_every_living_descendant_is_found_but_the_agents_own_processes() -> None:
    assert {each.pid for each in living_below(AGENT, TABLE, {ZYGOTE})} == {RANK, WORKER}


def test_what_lives_below_a_process_that_has_ended_is_found() -> None:
    table = [*TABLE, ProcessEntry(16, ENDED, "S")]
    assert 16 in {each.pid for each in living_below(AGENT, table)}


def test_the_name_of_a_program_may_hold_anything(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "stat").write_bytes(b"7 (a) R 1 \xff (b) D 3 7 7 0\n")
    (tmp_path / "8").mkdir()
    (tmp_path / "self").mkdir()
    assert process_table(tmp_path) == [ProcessEntry(7, 3, "D")]


def test_the_table_of_this_machine_has_this_process() -> None:
    [own] = [each for each in process_table() if each.pid == os.getpid()]
    assert (own.parent, own.state) == (os.getppid(), "R")


STUCK = """
import asyncio, sys
from recovery.agent._trainjob_recovery import processes, ranks
from recovery.agent._trainjob_recovery.flags import launch_options

async def main():
    launch = ["--nnodes=2", "--node-rank=1", "--master-port=1", "/dev/null"]
    said = []
    started = ranks.Ranks(launch_options(launch, {}), say=said.append)
    waiting = processes.ProcessEntry(2**22 + 1, 1, "D")
    processes.living_below = lambda *_: [waiting]
    ranks._AFTER_KILL_SECONDS = 0.1
    print(await started.stop(grace_seconds=0), said)
    await started.close()

asyncio.run(main())
"""


def test_a_process_that_no_signal_ends_is_named() -> None:
    """It waits in the kernel. A process table that always has it stands for that."""
    done = subprocess.run([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True, check=True, timeout=45)
    assert done.stdout == "False ['process 4194305 (state D) is still there 0.1 s after SIGKILL']\n"
