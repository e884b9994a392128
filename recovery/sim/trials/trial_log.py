"""Records the evidence of a trial as it happens, passes it to the checkers, and computes its fingerprint.

The fingerprint is a hash over every fault, every revision of the server with its author and its body, and every request
of a controller process with its body and its outcome. Two runs of one plan that differ in anything have different
fingerprints.
"""

from datetime import timedelta
from hashlib import blake2b

import msgspec

from recovery.ports import LEASES, Clock
from recovery.sim.api.store import ObjectChange
from recovery.sim.trials.checkers.checker_set import CheckerSet
from recovery.sim.trials.faults import TrialFault
from recovery.sim.trials.request_faults import took_place
from recovery.sim.trials.trial_evidence import Happening, RequestRecord, TrialEvidence

_encode = msgspec.json.Encoder().encode


class TrialLog:
    """Takes in everything that a trial reports, once and in order."""

    def __init__(self, evidence: TrialEvidence, checker_set: CheckerSet, clock: Clock) -> None:
        self.evidence = evidence
        self.faults: list[TrialFault] = []
        """The faults that took place, as a plan would name them."""
        self._checker_set = checker_set
        self._clock = clock
        self._hash = blake2b(digest_size=16)
        evidence.server.subscribe(self._changed)

    @property
    def fingerprint(self) -> str:
        return self._hash.hexdigest()

    def applied(
        self, fault: TrialFault, sentence: str, *, pod_uids: tuple[str, ...] = (), node: str = "", lasting: bool = True
    ) -> TrialFault:
        """Records a fault that takes place now, and returns it with its moment. `lasting` False: nothing is disturbed
        during its seconds."""
        now = self._clock.now()
        until = now + timedelta(seconds=abs(fault.seconds)) if fault.seconds and lasting else None
        happened = took_place(fault, (now - self.evidence.began_at).total_seconds())
        self.faults.append(fault if fault.at_seconds is not None else happened)
        self.evidence.happenings.append(Happening(happened, now, until, sentence, pod_uids, node))
        self._hash.update(f"{now} {fault.key} {sentence}\n".encode())
        return happened

    def requested(self, record: RequestRecord) -> None:
        self.evidence.requests.append(record)
        self._hash.update(
            f"{record.at} {record.actor} {record.number} {record.request.method} {record.request} "
            f"{record.request.query} {record.code} {record.applied} {record.revision}\n".encode()
        )
        self._hash.update(record.request.body or b"")
        self._checker_set.requested(record)

    def _changed(self, change: ObjectChange) -> None:
        now = self._clock.now()
        if change.resource != LEASES:  # Leases are for the election, which the requests show.
            self.evidence.changes.append(change)
            self.evidence.change_times.append(now)
        self._hash.update(f"{now} {change.actor} {change.type} {change.resource.plural} {change.revision}\n".encode())
        self._hash.update(_encode(change.body))
        self._checker_set.changed(change, now)
