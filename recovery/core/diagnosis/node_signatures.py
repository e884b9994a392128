"""Rows of the signature table about hardware and the platform: signs of GPUs, nodes and their agents."""

from recovery.core.diagnosis.evidence import LossKind
from recovery.core.diagnosis.signature import EXITED, DisruptionClass, NodeState, Signature

XID = r"(?i)\bxid(?:\s*\(pci:[0-9a-f:.]+\))?[\s:=#-]{1,3}(?:error\s+)?"
"""What precedes the number of an XID in the kernel log, and in messages that quote it."""
_XIDS = "NVIDIA, XID errors, docs.nvidia.com/deploy/xid-errors"
_CUDA = "NVIDIA, CUDA runtime API, cudaError_t"
_KUBELET = "Kubernetes, pkg/kubelet"

HARDWARE_MESSAGES = (
    Signature(
        name="XidOffTheBus",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=XID + r"(?:79|160)\b",
        means="The GPU has fallen off the PCIe bus: the node needs a reboot.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidEcc",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=XID + r"48\b",
        means="A double-bit ECC error of GPU memory, which cannot be corrected.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidNvlink",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=XID + r"(?:74|14[4-9]|150)\b",
        means="An NVLink failed; the other end may be at fault as well.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidGpuFatal",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=XID + r"(?:46|62|64|95|109|110|119|120|136|140|143|155|156|158|162)\b",
        means="The GPU, its memory or its system processor failed. The GPU needs a reset.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="GpuLost",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=r"(?i)gpu has fallen off the bus|gpu is lost\b|uncorrectable (?:ecc|nvlink) error|"
        r"\bcudaErrorECCUncorrectable\b|row remap(?:ping)? fail(?:ed|ure)",
        means="The driver has lost the GPU, or its memory cannot be trusted any more.",
        source=_CUDA,
        blames_node=True,
    ),
    Signature(
        name="DeviceUnhealthy",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        unhealthy_devices=True,
        means="The device plugin or the DRA driver reports a device of the pod as Unhealthy.",
        source="KEP-4680, pod.status.containerStatuses[].allocatedResourcesStatus",
        blames_node=True,
    ),
    Signature(
        name="DeviceTainted",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        disrupted_by=("DeletionByDeviceTaintManager",),
        means="A DRA driver, or an administrator, has put a NoExecute taint on a device of the pod.",
        source="KEP-5055; Kubernetes, pkg/controller/devicetainteviction",
        blames_node=True,
    ),
)

DISRUPTIONS = (
    Signature(
        name="Preempted",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        disrupted_by=("PreemptionByScheduler",),
        means="The scheduler made room for a pod of higher priority.",
        source="Kubernetes, pkg/scheduler/framework/preemption",
    ),
    Signature(
        name="NodeDeleted",
        disruption_class=DisruptionClass.NODE_LOST,
        disrupted_by=("DeletionByPodGC",),
        means="The pod's Node object does not exist any more, and the pod garbage collector removed it.",
        source="Kubernetes, pkg/controller/podgc",
    ),
    Signature(
        name="NodeNotReady",
        disruption_class=DisruptionClass.NODE_LOST,
        kinds=(LossKind.POD_DISRUPTED,),
        disrupted_by=("DeletionByTaintManager",),
        node=NodeState.LOST,
        means="The pod was evicted because its node is not Ready or does not answer.",
        source="Kubernetes, pkg/controller/tainteviction; node.kubernetes.io/not-ready, node.kubernetes.io/unreachable",
    ),
    Signature(
        name="NodeSilent",
        disruption_class=DisruptionClass.NODE_LOST,
        kinds=(LossKind.POD_DELETED, LossKind.POD_DISRUPTED),
        node=NodeState.SILENT,
        means="The pod was taken away from a node that does not answer or does not exist.",
        source="Kubernetes, pkg/controller/nodelifecycle",
    ),
    Signature(
        name="NodeRestarted",
        disruption_class=DisruptionClass.NODE_LOST,
        kinds=EXITED,
        exit_codes=(137, 255),
        exit_reasons=("ContainerStatusUnknown", "Unknown"),
        means="The kubelet came back and found its container gone: the node was restarted.",
        source=f"{_KUBELET}/container, ContainerReasonStatusUnknown; containerd's CRI plugin",
    ),
    Signature(
        name="EvictedForMemory",
        disruption_class=DisruptionClass.OUT_OF_MEMORY,
        pod_reasons=("Evicted",),
        message=r"low on resource: memory|had condition: \[?MemoryPressure",
        means="The kubelet evicted the pod, because the memory of its node ran out.",
        source=f"{_KUBELET}/eviction",
    ),
    Signature(
        name="Evicted",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        pod_reasons=("Evicted", "Preempting"),
        means="The kubelet evicted the pod for local disk, for process ids, or for a critical pod.",
        source=f"{_KUBELET}/eviction, {_KUBELET}/preemption",
    ),
    Signature(
        name="NodeShutdown",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        pod_reasons=("Terminated", "NodeShutdown"),
        means="The node was shut down in order, as by a reboot or the end of a spot machine.",
        source=f"{_KUBELET}/nodeshutdown",
    ),
)

_LEAVING = (
    "ToBeDeletedByClusterAutoscaler",
    "karpenter.sh/disrupted",
    "karpenter.sh/disruption",
    "cloud.google.com/impending-node-termination",
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/scheduled-maintenance",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/rebalance-recommendation",
)
NODE_SIGNS = (
    Signature(
        name="GpuFaultOnNode",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        node_conditions=(
            *(
                (f"Gpu{part}Watch", "True")
                for part in (
                    *("All", "Driver", "Inforom", "Mcu", "Mem", "Nvlink", "NvswitchFatal"),
                    *("Pcie", "Pmu", "Sm"),
                )
            ),
            ("GpuXidError", "True"),
            ("SysLogsXIDError", "True"),
            ("SysLogsSXIDError", "True"),
            ("SysLogsGPUFallenOff", "True"),
            ("GPUMissing", "True"),
            ("NVLinkStatusInactive", "True"),
            ("NebiusGPUError", "True"),
            ("GpuUnhealthy", "True"),
            ("GPUUnhealthy", "True"),
            ("GPUHealthy", "False"),
        ),
        means="A health agent says that a GPU or an NVLink of the node is broken.",
        source="NVSentinel (Gpu...Watch, SysLogs...), AKS (GPUMissing, NVLinkStatusInactive), Nebius, plugins of "
        "node-problem-detector",
        blames_node=True,
    ),
    Signature(
        name="GpuTaintOnNode",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        node_taints=(
            "nvidia.com/gpu-error",
            "nvidia.com/gpu-unhealthy",
            "nvidia.com/gpu-xid-error",
            "nvidia.com/gpu-nvlink-error",
        ),
        means="A health agent has tainted the node for a fault of a GPU.",
        source="NVSentinel, rule sets of fault-quarantine",
        blames_node=True,
    ),
    Signature(
        name="NodeBroken",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        node_conditions=(
            ("KernelDeadlock", "True"),
            ("ReadonlyFilesystem", "True"),
            ("XfsShutdown", "True"),
            ("CperHardwareErrorFatal", "True"),
            ("FilesystemCorruptionProblem", "True"),
            ("NebiusBootDiskIOError", "True"),
            ("KernelReady", "False"),
            ("StorageReady", "False"),
        ),
        means="A health agent says that the node's kernel, its firmware or its disk is broken.",
        source="node-problem-detector, config/kernel-monitor.json and readonly-monitor.json; EKS; AKS; Nebius",
        blames_node=True,
    ),
    Signature(
        name="NodeDegraded",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        kinds=(*EXITED, LossKind.NODE_FAULT),
        node_conditions=(
            ("GpuThermalWatch", "True"),
            ("GpuPowerWatch", "True"),
            ("GpuNvswitchNonfatalWatch", "True"),
            ("SysLogsNICDriverError", "True"),
            ("IBLinkFlapping", "True"),
            ("GPUClockThrottling", "True"),
            ("AcceleratedHardwareReady", "False"),
            ("XIDErrors", "True"),
            ("UnhealthyNvidiaDevicePlugin", "True"),
            ("UnhealthyNvidiaDCGMServices", "True"),
            ("NetworkingReady", "False"),
            ("ContainerRuntimeReady", "False"),
            ("KubeletProblem", "True"),
            ("ContainerRuntimeProblem", "True"),
            ("FrequentKubeletRestart", "True"),
            ("FrequentContainerdRestart", "True"),
            ("FrequentUnregisterNetDevice", "True"),
        ),
        means="A health agent reports a problem of the node, which need not be what failed.",
        source="NVSentinel; AKS (IBLinkFlapping, GPUClockThrottling; XIDErrors counts those of the application "
        "too); EKS and Karpenter (AcceleratedHardwareReady, False also when the agent loses its own DCGM); "
        "node-problem-detector",
    ),
    Signature(
        name="NodeLeaving",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        kinds=(LossKind.POD_DELETED, LossKind.POD_DISRUPTED),
        node_taints=_LEAVING,
        means="The cloud or autoscaler takes the node away: spot, maintenance, consolidation.",
        source="Cluster Autoscaler, Karpenter, GKE, AWS Node Termination Handler: keys of their taints",
    ),
    Signature(
        name="SpotEnded",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        kinds=EXITED,
        exit_codes=(137, 143),
        node_taints=_LEAVING,
        means="The process was stopped while the cloud took its node away.",
        source="Cluster Autoscaler, Karpenter, GKE, AWS Node Termination Handler: keys of their taints",
    ),
    Signature(
        name="Drained",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        kinds=(LossKind.POD_DELETED,),
        node=NodeState.CORDONED,
        means="The pod was deleted from a cordoned node: a drain without the eviction API.",
        source="kubectl drain --disable-eviction",
    ),
    Signature(
        name="DeviceAllocation",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        pod_reasons=("UnexpectedAdmissionError", "OutOfnvidia.com/gpu", "OutOfamd.com/gpu"),
        means="The kubelet could not give the pod its devices. If it repeats, no pod runs there.",
        source=f"{_KUBELET}/cm/admission, `Allocate failed due to ..., which is unexpected`; {_KUBELET}/lifecycle",
    ),
)
