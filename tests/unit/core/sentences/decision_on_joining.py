"""Sentences about ranks that join and make steps, as their agents report it."""

from recovery.core.model.reason import Explanation, Reason, explained
from recovery.core.model.sentence import Sentence


def steps_made(**known: str | int) -> Explanation:
    details = {"ranks": 4, "step": "", "lowest": "", "lost": "", "passed": False, "seconds": "", **known}
    return explained(Sentence.STEPS_MADE, Reason.TRAINING_PROGRESSES, **details)


ON_JOINING: tuple[tuple[Explanation, str], ...] = (
    (
        explained(
            Sentence.WAITING_FOR_JOIN,
            Reason.WAITING_FOR_READY,
            who="pod train-node-0-17 (rank 17, node gpu-9)",
            more=0,
            missing=True,
        ),
        "the rendezvous waits for pod train-node-0-17 (rank 17, node gpu-9): its processes have not called "
        "init_process_group",
    ),
    (
        explained(
            Sentence.WAITING_FOR_JOIN,
            Reason.WAITING_FOR_READY,
            who="pod train-node-0-17 (rank 17, node gpu-9)",
            more=2,
            missing=False,
        ),
        "the rendezvous waits for pod train-node-0-17 (rank 17, node gpu-9) and 2 more: their processes do not return "
        "from init_process_group",
    ),
    (
        explained(Sentence.WAITING_FOR_STEP, Reason.WAITING_FOR_PROGRESS, ranks=4, step=1200),
        "all 4 ranks have joined; waiting until they have passed step 1200, at which the failure stopped them",
    ),
    (
        steps_made(),
        "all 4 ranks have joined and make steps again (source: agent, verified: true)",
    ),
    (
        steps_made(step=1200, lowest=1201, lost=200, passed=True),
        "all 4 ranks have passed step 1200, at which the failure stopped them; 200 steps were made twice "
        "(source: agent, verified: true)",
    ),
    (
        steps_made(step=1200, lowest=1100, lost=200, seconds=900),
        "all 4 ranks make steps again and have reached step 1100 of 1200; timeouts.resume (900 s) is over "
        "(source: agent, verified: true)",
    ),
)
