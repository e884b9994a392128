"""What counts as a GPU, in what pods ask for and in what nodes offer."""

from collections.abc import Mapping


def accelerators(amounts: Mapping[str, str]) -> int:
    """GPUs among the resources."""
    # They come in whole numbers, and the server writes a suffix only from a thousand on.
    return sum(int(count) for resource, count in amounts.items() if count.isdigit() and _is_accelerator(resource))


def _is_accelerator(resource: str) -> bool:
    """GPUs of any vendor (nvidia.com/gpu, amd.com/gpu), Gaudi, and slices of an NVIDIA GPU, each counted as one."""
    return resource.endswith("/gpu") or resource == "habana.ai/gaudi" or resource.startswith("nvidia.com/mig-")
