"""Why the agents restart a group in its pods, why they do not, and what the group waits for then."""

from recovery.core.model.reason import Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences.text import Details, Text


def _agents_gave_up(details: Details) -> str:
    stuck = f", because the kernel does not end a process in {details['stuck']} of them" if details["stuck"] else ""
    return f"the agents could not start the ranks again in their pods{stuck}"


TEXTS: dict[Sentence | Reason, Text] = {
    Sentence.RESTART_IN_PLACE: "{found}; {why}: the agents start all {ranks} ranks again in their pods ({left})",
    Reason.RESTARTED_ALONE: "the agents have started all ranks again in their pods, as an earlier answer permits",
    Reason.AGENTS_DO_NOT_ASK: "no agent waits for a decision about it",
    Reason.MORE_THAN_A_PROCESS: "more than a process was lost, or an agent does not answer",
    Reason.RESTARTED_ALREADY: "this incident has restarted the group before",
    Reason.IN_PLACE_IN_A_ROW: "{count} restarts in place have followed one another",
    Reason.SAME_ERROR_IN_PLACE: "the same error has led to a restart before",
    Reason.WAITING_FOR_AGENTS: "waiting for a report of the agents",
    Reason.AGENTS_GAVE_UP: _agents_gave_up,
    Reason.AGENT_BLOCKS_START: "the agent keeps {pod} from starting: {words}",
    Sentence.LEAVES_OUT_AGENT: "the next Jobs of {job} are created without the agent",
    Reason.IN_PLACE_TIMEOUT: "not all ranks ran again in their pods within {seconds} s",
}
