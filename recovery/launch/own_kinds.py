"""Our own kinds: RecoveryPolicies, ClusterRecoveryPolicies and the RecoveryConfig.

They start nothing, so this package does not judge them. `recovery lint` does, by their CRDs and the webhook's rules,
which this package does not know. The codes are here because all codes are listed in one place.
"""

from recovery.launch.documents import Document
from recovery.launch.findings import Code, Severity
from recovery.launch.kinds import OWN, kind_of

POLICY_REFUSED = Code("policy-refused", Severity.ERROR, "the API server refuses the policy, or the config")
POLICY_DOUBTFUL = Code("policy-doubtful", Severity.WARNING, "the webhook admits the policy, or the config, and warns")
CODES = (POLICY_REFUSED, POLICY_DOUBTFUL)


def is_ours(document: Document) -> bool:
    return kind_of(document.kind, document.api_version) in OWN
