"""In the mode with conflicts, every write that tests a version meets a change once, and then goes through."""

import pytest

from tests.cluster.conflicts import Conflicts

JOB = "/apis/batch/v1/namespaces/team/jobs/llm-node-0"
VERSIONED = b'{"preconditions": {"resourceVersion": "7"}}'


class Administrator:
    """Notes what kubectl is asked to do."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, ...]] = []

    async def __call__(self, *arguments: str) -> str:
        self.commands.append(arguments)
        return ""


async def test_a_repeated_write_goes_through_and_the_next_one_meets_a_change_again() -> None:
    administrator = Administrator()
    conflicts = Conflicts(administrator)
    counts = []
    for _ in range(3):
        await conflicts.before("DELETE", JOB, VERSIONED)
        counts.append(len(administrator.commands))
    assert counts == [1, 1, 2]
    assert administrator.commands[0][:5] == ("annotate", "jobs", "llm-node-0", "-n", "team")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (JOB, b'{"spec": {}}'),
        (f"{JOB}/status", VERSIONED),
        ("/apis/batch/v1/namespaces/team/jobs", VERSIONED),
        ("/api/v1/namespaces/team/pods/llm-node-0-0-abcde", VERSIONED),
        ("/api/v1/nodes/node-1", VERSIONED),
    ],
    ids=["no version", "status", "create", "pod", "node"],
)
async def test_nothing_else_is_changed(path: str, body: bytes) -> None:
    administrator = Administrator()
    await Conflicts(administrator).before("PATCH", path, body)
    assert administrator.commands == []
