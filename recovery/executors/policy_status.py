"""Writes in the status of a policy since when it enforces, by compare-and-swap."""

import msgspec

from recovery import api_verbs
from recovery.core.policy.enforcement import Enforcement
from recovery.core.policy.resolved import PolicyFacts
from recovery.ports import CLUSTER_RECOVERY_POLICIES, RECOVERY_POLICIES, ApiClient, PatchKind

_ABSENT = {field.encode_name: None for field in msgspec.structs.fields(Enforcement)}


async def write_enforcement(api: ApiClient, policy: PolicyFacts) -> None:
    """Write the status that this policy should have. Raises ConflictError if the policy has changed since.

    It is a merge patch: the conditions in the same status are written by admission.
    """
    resource = RECOVERY_POLICIES if policy.namespace else CLUSTER_RECOVERY_POLICIES
    body = {
        # With the resourceVersion in it, the patch is refused with 409 if anything was written in between.
        "metadata": {"resourceVersion": policy.resource_version},
        "status": {**_ABSENT, **msgspec.to_builtins(policy.enforcement)},
    }
    await api_verbs.patch(
        api,
        resource,
        policy.name,
        body,
        kind=PatchKind.MERGE,
        namespace=policy.namespace or None,
        subresource="status",
    )
