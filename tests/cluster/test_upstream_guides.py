"""What `recovery lint` calls an error in the manifests of Trainer's, JobSet's and Kueue's guides, read from their Go
modules.

Each row was judged by reading the block and the sources of its version: it is a mistake of the guide, or a sketch that
is not a manifest. An error without a row is a mistake of the lint. These tests need no control plane.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from recovery.launch.documents import documents
from recovery.launch.findings import Severity
from recovery.launch.kinds import kind_of
from recovery.launch.lint import lint
from tests.cluster.controlplane.build import TOOLS, source_folder

Errors = dict[str, list[str]]
"""Guide -> its codes, each once."""

REMOVED, SKETCH = "removed-field", "wrong-type"

GUIDES: dict[str, tuple[int, Errors]] = {
    "trainer": (
        25,
        {
            # mlPolicy.torch has no numNodes, and since 2.2 no numProcPerNode.
            "docs/operator-guides/job-scheduling/kai.md": ["unknown-field"],
            "docs/operator-guides/runtime.md": [REMOVED],
            "docs/user-guides/local-execution/overview.md": [REMOVED],
            "docs/user-guides/pytorch-rocm.md": [REMOVED],
            "proposals/2401-llm-trainer-v2/README.md": [REMOVED],
            # Sketches: a status without a spec, and `...` for what is left out.
            "proposals/2779-trainjob-progress/README.md": ["missing-field", "not-yaml", SKETCH],
        },
    ),
    "jobset": (
        17,
        {
            # Each has `image` twice. One name makes pod names of 69 characters. And `...` for what is left out.
            "keps/262-ConfigurableFailurePolicy/README.md": ["duplicate-key", "name-too-long", SKETCH],
            # Only torchrun --nnodes 2:8, which is a static rendezvous of 8 nodes on localhost, each of them rank 0.
            "keps/463-ElasticJobsets/README.md": ["master-nowhere", "range-waits", "same-node-rank"],
            "keps/467-InPlaceRestart/README.md": [SKETCH],
            # The name trainjob-qwen2.5 has a dot.
            "keps/572-stateful-jobset/README.md": ["name-not-dns"],
        },
    ),
    # It has a number as the value of an annotation.
    "kueue": (3, {"keps/2724-topology-aware-scheduling/README.md": ["wrong-type"]}),
}


def _blocks(folder: Path) -> Iterator[tuple[str, str]]:
    """Every distinct code block with an object of a kind that the lint judges, and its guide."""
    seen: set[str] = set()
    for path in sorted(folder.rglob("*.md")):
        for found in re.finditer(r"^[ \t]*```.*?\n(.*?)^[ \t]*```", path.read_text(), re.MULTILINE | re.DOTALL):
            text = re.sub(r"^.*<<.*EOF.*$|^EOF\s*$", "", dedent(found[1]), flags=re.MULTILINE)  # cat <<EOF | kubectl …
            if text not in seen and any(kind_of(each.kind, each.api_version) for each in documents(text)):
                seen.add(text)
                yield str(path.relative_to(folder)), text


@pytest.mark.parametrize("tool", GUIDES)
def test_an_error_in_a_guide_is_one(tool: str) -> None:
    (folder,) = (source_folder(each) for each in TOOLS if each.name == tool)
    blocks, errors = list(_blocks(folder)), dict[str, set[str]]()
    for guide, text in blocks:
        found = {each.code.name for each in lint(documents(text)) if each.code.severity is Severity.ERROR}
        if found:
            errors.setdefault(guide, set()).update(found)

    assert (len(blocks), {guide: sorted(codes) for guide, codes in errors.items()}) == GUIDES[tool]
