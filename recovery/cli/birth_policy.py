"""Whether the API server applies settings at birth: by the admission policy of `birth-settings`, or by the webhook of
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
    """Whether it is installed, or the webhook in its place."""

    INSTALLED = "Installed"
    WEBHOOK = "Webhook"
    """The webhook alone."""
    MISSING = "Missing"
    """Neither."""
    NOT_SERVED = "NotServed"
    """Neither, and the API server has no such policies."""
    UNKNOWN = "Unknown"
    """One of them may not be read, and the other is missing."""

    @property
    def missing(self) -> bool:
        """No size is ever changed."""
        return self in {BirthPolicy.MISSING, BirthPolicy.NOT_SERVED}


async def read_birth_policy(client: ApiClient) -> BirthPolicy:
    """By its binding, or the configuration of the webhook. Raises ApiError."""
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
