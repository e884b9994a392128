"""Why the kubelet says that a container waits: the reasons that are about images, and about making a container."""

IMAGE_PULL = frozenset(
    {
        # kubelet, pkg/kubelet/images/types.go
        *("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "ImageInspectError"),
        # more reasons from the CRI: k8s.io/cri-api/pkg/errors
        *("RegistryUnavailable", "SignatureValidationFailed"),
    }
)
CREATE_CONTAINER = frozenset(
    {
        # kubelet, pkg/kubelet/kuberuntime/kuberuntime_container.go and pkg/kubelet/container/sync_result.go
        "CreateContainerConfigError",
        "PreCreateHookError",
        "CreateContainerError",
        "PreStartHookError",
        "PostStartHookError",
        "RunContainerError",
    }
)
