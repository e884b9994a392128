"""Whether the API server applies birth settings: by the admission policy of `birth-settings`, or by the webhook in
`manifests/admission/birth-settings`."""

from enum import StrEnum

from recovery import api_verbs
from recovery.ports import (
    MUTATING_WEBHOOK_CONFIGURATIONS,
    ApiClient,
    ForbiddenError,
    NoSuchResourceError,
    NotFoundError,
    Resource,
)

BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
BINDING_NAME = "recovery-birth-settings"
"""As in manifests/components/birth-settings. The MutatingWebhookConfiguration has the same name."""


class BirthPolicy(StrEnum):
    """Whether the admission policy is installed, or the webhook in its place."""

    INSTALLED = "Installed"
    WEBHOOK = "Webhook"
    """The webhook alone."""
    MISSING = "Missing"
    """Neither."""
    NOT_SERVED = "NotServed"
    """Neither, and the API server does not serve such policies."""
    UNKNOWN = "Unknown"
    """Neither is found, and the user may not read at least one of them."""

    @property
    def missing(self) -> bool:
        """Neither is installed, so no size ever changes."""
        return self in {BirthPolicy.MISSING, BirthPolicy.NOT_SERVED}


async def read_birth_policy(client: ApiClient) -> BirthPolicy:
    """Reads the binding of the policy, and the configuration of the webhook. Raises ApiError."""
    policy = await _found(client, BINDINGS)
    if policy is BirthPolicy.INSTALLED:
        return policy
    webhook = await _found(client, MUTATING_WEBHOOK_CONFIGURATIONS)
    if webhook is BirthPolicy.INSTALLED:
        return BirthPolicy.WEBHOOK
    return BirthPolicy.UNKNOWN if BirthPolicy.UNKNOWN in {policy, webhook} else policy


async def _found(client: ApiClient, resource: Resource) -> BirthPolicy:
    try:
        await api_verbs.get(client, resource, BINDING_NAME)
    except NotFoundError:
        return BirthPolicy.MISSING
    except NoSuchResourceError:
        return BirthPolicy.NOT_SERVED
    except ForbiddenError:
        return BirthPolicy.UNKNOWN
    return BirthPolicy.INSTALLED
