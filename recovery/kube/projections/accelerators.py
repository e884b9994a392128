"""Decides what counts as a GPU: in the requests of pods, in what nodes offer, and among the devices of DRA claims."""

import re
from collections.abc import Mapping

_DEVICES = frozenset({"google.com/tpu", "habana.ai/gaudi", "gpu.intel.com/i915", "gpu.intel.com/xe"})
_DEVICE_ENDINGS = ("/gpu", "/gpu.shared")
_WORDS = re.compile(r"[./]")
_ACCELERATOR_WORDS = frozenset({"gpu", "gaudi"})


def accelerators(amounts: Mapping[str, str]) -> int:
    """The number of GPUs among the resources."""
    # GPUs come in whole numbers, and the server writes a suffix only from a thousand on.
    return sum(int(count) for resource, count in amounts.items() if _is_accelerator(resource) and _is_count(count))


def _is_count(quantity: str) -> bool:
    """ASCII digits, at most those of an int64: `int` refuses some that `isdigit` accepts, and over 4,300 digits."""
    return quantity.isascii() and quantity.isdigit() and len(quantity) <= 19


def _is_accelerator(resource: str) -> bool:
    """GPUs of any vendor, Gaudi, TPUs, and shares and slices of an NVIDIA GPU, each counted as one.

    Parts such as `nvidia.com/gpumem` do not count. `recovery.launch.processes` has the same list for manifests.
    """
    return resource in _DEVICES or resource.endswith(_DEVICE_ENDINGS) or resource.startswith("nvidia.com/mig-")


def is_accelerator_device(resource_id: str) -> bool:
    """Whether a device of a DRA claim is a GPU of any vendor, or a Gaudi, by the `resourceID` that the kubelet reports.

    The `resourceID` is the device's first CDI name, such as `k8s.gpu.nvidia.com/device=gpu-0`, else DRIVER/POOL/DEVICE
    (`pkg/kubelet/cm/dra/manager.go`). Network cards and channels of a compute domain are claimed in the same way.
    """
    kind, cdi, _ = resource_id.partition("=")
    driver = kind if cdi else resource_id.partition("/")[0]
    return not _ACCELERATOR_WORDS.isdisjoint(_WORDS.split(driver))
