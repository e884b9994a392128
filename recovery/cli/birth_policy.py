"""Whether the API server applies settings at birth: the admission policy of the component `birth-settings`."""

from enum import StrEnum

from recovery import api_verbs
from recovery.ports import ApiClient, ForbiddenError, NoSuchResourceError, NotFoundError, Resource

BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "mutatingadmissionpolicybindings",
    "MutatingAdmissionPolicyBinding",
    namespaced=False,
)
BINDING_NAME = "recovery-birth-settings"
"""As in manifests/components/birth-settings."""


class BirthPolicy(StrEnum):
    """Whether it is installed."""

    INSTALLED = "Installed"
    MISSING = "Missing"
    NOT_SERVED = "NotServed"
    """The API server has no such policies."""
    UNKNOWN = "Unknown"
    """It may not be read."""

    @property
    def missing(self) -> bool:
        """No size is ever changed."""
        return self in {BirthPolicy.MISSING, BirthPolicy.NOT_SERVED}


async def read_birth_policy(client: ApiClient) -> BirthPolicy:
    """By its binding. Raises ApiError."""
    try:
        await api_verbs.get(client, BINDINGS, BINDING_NAME)
    except NotFoundError:
        return BirthPolicy.MISSING
    except NoSuchResourceError:
        return BirthPolicy.NOT_SERVED
    except ForbiddenError:
        return BirthPolicy.UNKNOWN
    return BirthPolicy.INSTALLED
