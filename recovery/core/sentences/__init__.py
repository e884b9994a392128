"""Explanations rendered as English. Only people read the sentences: programs read the reason.

One module for each room whose reasons it renders. A text names its details in braces, as in `str.format`. Where a
detail changes the sentence, the text is a function of the details.
"""

from recovery.core.model.reason import Detail, Explanation, Reason
from recovery.core.model.sentence import Sentence
from recovery.core.sentences import decision, diagnosis, drill, fleet, in_place, incident, plan, proof, sizes
from recovery.core.sentences.text import Details, Text

TEXTS: dict[Sentence | Reason, Text] = {
    **diagnosis.TEXTS,
    **fleet.TEXTS,
    **incident.TEXTS,
    **plan.TEXTS,
    **decision.TEXTS,
    **in_place.TEXTS,
    **sizes.TEXTS,
    **drill.TEXTS,
    **proof.TEXTS,
}


def render(why: Explanation) -> str:
    """The sentence, without a full stop: it may be a part of another one."""
    text = TEXTS[why.sentence]
    details = Details({name: _rendered(detail) for name, detail in why.details.items()})
    return text.format_map(details) if isinstance(text, str) else text(details)


def _rendered(detail: Detail) -> str | int:
    return render(detail) if isinstance(detail, Explanation) else detail
