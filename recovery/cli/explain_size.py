"""The lines of `explain` about the size of an elastic group: its size now, and its size after a loss."""

from collections.abc import Iterator
from typing import Any

from recovery.cli.birth_policy import BINDING_NAME, BINDINGS, BirthPolicy
from recovery.cli.elastic_outlook import ElasticOutlook, NodeLoss
from recovery.cli.formatting import moment
from recovery.cli.status_rows import stamp
from recovery.core.model.durations import in_words
from recovery.core.model.group_size import ElasticState
from recovery.core.model.ledger import Ledger
from recovery.core.sentences import render
from recovery.ports import MUTATING_WEBHOOK_CONFIGURATIONS

_POLICY = f"{BINDINGS.kind} {BINDING_NAME}"
_WEBHOOK = f"{MUTATING_WEBHOOK_CONFIGURATIONS.kind} {BINDING_NAME}"
_WITHOUT = "so the size does not change, and the group waits for its nodes"


def size_lines(ledger: Ledger, outlook: ElasticOutlook | None, policy: BirthPolicy | None) -> Iterator[str]:
    """Empty for a group that is not elastic. `policy`: whether it is installed. None: it was not read."""
    if ledger.elastic is not None:
        yield from _smaller_lines(ledger.elastic)
    if outlook is None:
        return
    if ledger.elastic is None:
        yield f"all {_nodes(outlook.wanted_nodes)}, and {outlook.least} at least"
    shrinks = outlook.fixed is None and not (policy is not None and policy.missing)
    yield from (_loss_line(loss, outlook, shrinks=shrinks) for loss in outlook.losses)
    if outlook.fixed is not None:
        yield render(outlook.fixed)
    if outlook.at_once and shrinks:
        yield f"a failure that matches rule {', '.join(outlook.at_once)} does not wait {in_words(outlook.shrink_after)}"
    yield from _policy_lines(policy)
    if outlook.quota_kept is not None:
        yield render(outlook.quota_kept)


def _smaller_lines(state: ElasticState) -> Iterator[str]:
    yield f"{state.nodes} of {_nodes(state.wanted_nodes)} since {moment(state.since)}"
    if state.room_since is not None:
        yield f"there has been room for more since {moment(state.room_since)}"
    if state.failed_growths:
        yield f"{state.failed_growths} growths in a row have failed; each one doubles the wait before the next one"


def _loss_line(loss: NodeLoss, outlook: ElasticOutlook, *, shrinks: bool) -> str:
    of_pods = f" ({loss.pods} pods)" if loss.pods != loss.nodes else ""
    return f"if it loses {_nodes(loss.nodes)} now{of_pods}: {_consequence(loss, outlook, shrinks=shrinks)}"


def _consequence(loss: NodeLoss, outlook: ElasticOutlook, *, shrinks: bool) -> str:
    after = in_words(outlook.shrink_after)
    if not shrinks:
        otherwise = "it waits for nodes"
    elif loss.size is None:
        otherwise = f"it waits for nodes, because {outlook.least} are the least and {_pods(loss.placed)} would have one"
    else:
        otherwise = f"after {after} it goes on with {loss.size} of {_nodes(outlook.wanted_nodes)}"
    if loss.replaced is None:
        return f"they are replaced if there is room, which is not known; else {otherwise}"
    room = f"there is room for {_pods(outlook.room, 'more ')}" if outlook.room else "there is no room for more pods"
    return f"they are replaced, because {room}" if loss.replaced else f"{room}, so {otherwise}"


def _pods(count: int | None, more: str = "") -> str:
    return f"{count or 'no'} {more}{'pods' if count and count > 1 else 'pod'}"


def _policy_lines(policy: BirthPolicy | None) -> Iterator[str]:
    match policy:
        case BirthPolicy.INSTALLED:
            yield f"{_POLICY} is installed, so the API server can create the Job with another size"
        case BirthPolicy.WEBHOOK:
            yield (
                f"{_WEBHOOK} is installed, so the API server can create the Job with another size while the controller "
                "serves webhooks"
            )
        case BirthPolicy.MISSING:
            yield f"{_POLICY} is not installed (manifests/components/birth-settings), {_WITHOUT}"
        case BirthPolicy.NOT_SERVED:
            yield (
                f"the API server knows no {BINDINGS.kind} of {BINDINGS.api_version}, and {_WEBHOOK} is not installed "
                f"(manifests/admission/birth-settings), {_WITHOUT}"
            )
        case BirthPolicy.UNKNOWN:
            yield (
                f"{BINDINGS.kind} or {_WEBHOOK} may not be read; without both the size does not change, and the group "
                "waits for its nodes"
            )


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"


def size_data(ledger: Ledger, outlook: ElasticOutlook | None, policy: BirthPolicy | None) -> dict[str, Any] | None:
    """The same as data, for `-o json` and `-o yaml`. None: the group is not elastic."""
    state = ledger.elastic
    if state is None and outlook is None:
        return None
    return {
        "smallerSince": stamp(state.since) if state is not None else None,
        "failedGrowths": state.failed_growths if state is not None else 0,
        "least": outlook.least if outlook is not None else None,
        "room": outlook.room if outlook is not None else None,
        "fixed": render(outlook.fixed) if outlook is not None and outlook.fixed is not None else "",
        "quotaReserved": outlook.quota_kept is not None if outlook is not None else None,
        "admissionPolicy": str(policy) if policy is not None else None,
        "losses": [
            {"nodes": loss.nodes, "pods": loss.pods, "replaced": loss.replaced, "size": loss.size}
            for loss in (outlook.losses if outlook is not None else ())
        ],
    }
