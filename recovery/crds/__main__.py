"""`python -m recovery.crds [--check]`: exit code 0, or 1 with the names of the files that have drifted."""

import sys

from recovery.crds.definitions import definitions
from recovery.crds.diagrams import diagrams
from recovery.crds.field_reference import reference
from recovery.crds.manifests import kustomization, manifest
from recovery.generated_files import REPOSITORY, GeneratedFiles

CRDS = "manifests/crd"


def generated() -> GeneratedFiles:
    """The CRDs, their reference, and the diagrams of the state machine."""
    all_of_them = definitions()
    return GeneratedFiles(
        program="python -m recovery.crds",
        source="recovery/core",
        texts={f"{CRDS}/{each.resource.plural}.yaml": manifest(each) for each in all_of_them}
        | {
            f"{CRDS}/kustomization.yaml": kustomization(all_of_them),
            "docs/reference.md": reference(all_of_them),
            **diagrams(),
        },
        owned=(f"{CRDS}/*.yaml",),
    )


if __name__ == "__main__":
    sys.exit(generated().main(sys.argv[1:], REPOSITORY))
