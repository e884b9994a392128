"""The signature table: by what signs a loss is recognised, and what each means. Data; the first row that fits counts.

It follows the public record of failures of GPU training: NVIDIA's XID catalogue, the sources of PyTorch, NCCL and the
kubelet, and the conditions and taints that node-problem-detector, NVSentinel and the clouds' agents set on nodes. The
order of the rows is part of the data: what proves a fault comes first, then what the script says of itself, then what
only says that somebody else is missing, and bare exit codes last, because anything may end with those.
"""

from functools import lru_cache

from recovery.core.evidence import Evidence, LossKind
from recovery.core.facts import Snapshot
from recovery.core.patterns import compiled
from recovery.core.signs import EXITED, DisruptionClass, NodeState, Signature, fits, texts

_XID = r"(?i)\bxid(?:\s*\(pci:[0-9a-f:.]+\))?[\s:=#-]{1,3}(?:error\s+)?"
_PYTHON = r"(?m)^[\s|]*(?:\[(?:default\d+|rank\d+|\d+)\]:?\s*)?(?:[A-Za-z_]\w*\.)*"
"""The beginning of a line that names a Python exception, behind what torchrun puts before a rank's lines."""
_XIDS = "NVIDIA, XID errors, docs.nvidia.com/deploy/xid-errors"
_PYTORCH = "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_CUDA = "NVIDIA, CUDA runtime API, cudaError_t"
_KUBELET = "Kubernetes, pkg/kubelet"
_BUILT_IN = "Python, built-in exceptions"

_HARDWARE_MESSAGES = (
    Signature(
        name="XidOffTheBus",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=_XID + r"(?:79|160)\b",
        means="The GPU has fallen off the PCIe bus: the node needs a reboot.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidEcc",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=_XID + r"48\b",
        means="A double-bit ECC error of GPU memory, which cannot be corrected.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidNvlink",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=_XID + r"(?:74|14[4-9]|150)\b",
        means="An NVLink failed; the other end may be at fault as well.",
        source=_XIDS,
        blames_node=True,
    ),
    Signature(
        name="XidGpuFatal",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        message=_XID + r"(?:46|62|64|95|109|110|119|120|136|140|143|155|156|158|162)\b",
        means="The GPU, its memory or its system processor failed: it needs a reset before anything runs on it.",
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

_DISRUPTIONS = (
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
        means="The kubelet evicted the pod: local disk or process ids ran out, or a critical pod needed its place.",
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

_MEMORY = (
    Signature(
        name="HostOutOfMemory",
        disruption_class=DisruptionClass.OUT_OF_MEMORY,
        exit_reasons=("OOMKilled",),
        means="The kernel killed the container at its memory limit, or the node had none left.",
        source=f"{_KUBELET}/kuberuntime; CRI reason OOMKilled",
    ),
    Signature(
        name="WorkerOutOfMemory",
        disruption_class=DisruptionClass.OUT_OF_MEMORY,
        message=r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) is killed by signal: Killed|"
        r"\bOut of memory: Killed process\b|\boom-kill:|\bMemoryError\b|Cannot allocate memory",
        means="A process of the container was killed for its memory, or got none.",
        source="PyTorch, torch/utils/data; Linux, mm/oom_kill.c",
    ),
    Signature(
        name="SharedMemory",
        disruption_class=DisruptionClass.USER_ERROR,
        message=r"insufficient shared memory \(shm\)|is killed by signal: Bus error|"
        r"unable to (?:open|mmap) shared memory",
        means="The shared memory is too small: the pod needs an emptyDir of medium Memory for it.",
        source="PyTorch, torch/utils/data/_utils/signal_handling.py",
    ),
    Signature(
        name="CudaOutOfMemory",
        disruption_class=DisruptionClass.OUT_OF_MEMORY,
        message=r"CUDA out of memory|\b(?:torch\.)?(?:cuda\.)?OutOfMemoryError\b|\bCUDA_ERROR_OUT_OF_MEMORY\b|"
        r"\bcudaErrorMemoryAllocation\b|HIP out of memory",
        means="The GPU's memory is full: the settings ask for more than it has.",
        source="PyTorch, c10/cuda/CUDACachingAllocator.cpp",
    ),
)


def _python(name: str, means: str, *more: str) -> Signature:
    names = "|".join((name, *more))
    return Signature(
        name=name,
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        message=_PYTHON + rf"(?:{names})(?::|\s*$)",
        means=means,
        source=_BUILT_IN,
    )


_USER_ERRORS = (
    _python("ImportError", "A module is missing in the image, or does not load.", "ModuleNotFoundError"),
    _python("SyntaxError", "The script cannot be read.", "IndentationError", "TabError"),
    _python("FileNotFoundError", "A file or a folder is not there.", "NotADirectoryError", "IsADirectoryError"),
    _python("PermissionError", "A file may not be read or written."),
    _python("TypeError", "The script called something in a wrong way."),
    _python("AttributeError", "The script asked an object for what it does not have."),
    _python("NameError", "The script uses a name that does not exist.", "UnboundLocalError"),
    _python("LookupError", "A key or an index does not exist.", "KeyError", "IndexError"),
    _python("ValueError", "A value is not what the script can use.", "UnicodeDecodeError", "JSONDecodeError"),
    _python("AssertionError", "The script found its own expectation broken."),
    _python("NotImplementedError", "The script asked for what is not built.", "ZeroDivisionError"),
    Signature(
        name="Configuration",
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        message=r"\b(?:yaml\.)?(?:scanner\.ScannerError|parser\.ParserError|constructor\.ConstructorError)\b|"
        r"\b(?:hydra|omegaconf)\.errors\.\w+|\bConfigAttributeError\b|\bMissingConfigException\b|"
        r"\bConfigCompositionException\b|\bpydantic\S*ValidationError\b|\bvalidation errors? for \w+",
        means="A configuration file cannot be read, or asks for what does not exist.",
        source="PyYAML, Hydra, OmegaConf, pydantic: names of their exceptions",
    ),
    Signature(
        name="Usage",
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        exit_codes=(2,),
        message=r"(?m)^usage: |error: (?:unrecognized arguments|the following arguments are required|argument )|"
        r"can't open file|^Error: No such (?:option|command)",
        means="The command line is wrong.",
        source="Python, argparse; exit status 2",
    ),
    Signature(
        name="CannotRunDevice",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        kinds=EXITED,
        exit_reasons=("ContainerCannotRun", "StartError", "RunContainerError", "CreateContainerError"),
        message=r"(?i)nvidia-container-cli|nvml error|driver (?:rpc )?error|cdi device|no such device",
        means="The container runtime could not give the container its GPUs.",
        source="NVIDIA container toolkit; CRI reason StartError",
    ),
    Signature(
        name="CannotRun",
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        exit_reasons=("ContainerCannotRun", "StartError"),
        means="The container's command cannot be started: it does not exist, or may not be executed.",
        source="containerd and runc; CRI reason StartError",
    ),
    Signature(
        name="CommandNotFound",
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        exit_codes=(126, 127),
        means="The shell found no such command, or may not execute it.",
        source="POSIX shell, exit status of commands",
    ),
    Signature(
        name="DeviceSideAssert",
        disruption_class=DisruptionClass.USER_ERROR,
        kinds=EXITED,
        message=r"device-side assert triggered|\bcudaErrorAssert\b",
        means="A check within a CUDA kernel failed, such as an index that is out of range.",
        source=_CUDA,
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
_NODE_SIGNS = (
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
        means="A health agent says that something of the node is not in order, which need not be what failed.",
        source="NVSentinel; AKS (IBLinkFlapping, GPUClockThrottling; XIDErrors counts those of the application "
        "too); EKS and Karpenter (AcceleratedHardwareReady, False also when the agent loses its own DCGM); "
        "node-problem-detector",
    ),
    Signature(
        name="NodeLeaving",
        disruption_class=DisruptionClass.POD_DISRUPTED,
        kinds=(LossKind.POD_DELETED, LossKind.POD_DISRUPTED),
        node_taints=_LEAVING,
        means="The cloud or the autoscaler takes the node away: the end of a spot machine, maintenance, consolidation.",
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
        means="The kubelet could not give the pod its devices: repeated, the node swallows pods and runs none.",
        source=f"{_KUBELET}/cm/admission, `Allocate failed due to ..., which is unexpected`; {_KUBELET}/lifecycle",
    ),
)

_PEERS_MISSING = (
    Signature(
        name="NcclWatchdog",
        disruption_class=DisruptionClass.COMMUNICATION_FAILURE,
        kinds=EXITED,
        message=r"Watchdog caught collective operation timeout|watchdog thread terminated with exception|"
        r"Watchdog got stuck|Heartbeat ?monitor timed out|monitored_?[bB]arrier|"
        r"Timed out waiting \d+ ?ms for (?:recv|send) operation",
        means="A collective operation timed out: a rank that did not join it is missing, not this one.",
        source=_PYTORCH,
        cascade=True,
    ),
    Signature(
        name="ConnectionReset",
        disruption_class=DisruptionClass.COMMUNICATION_FAILURE,
        kinds=EXITED,
        message=r"(?i)connection reset by peer|connection closed by (?:remote )?peer|connection refused|broken pipe|"
        r"ncclRemoteError|remote process exited|failed to recv, got 0 bytes",
        means="The other end of a connection has gone away.",
        source="NCCL, src/misc/socket.cc; Gloo; PyTorch, torch/csrc/distributed/c10d",
        cascade=True,
    ),
    Signature(
        name="RendezvousTimeout",
        disruption_class=DisruptionClass.COMMUNICATION_FAILURE,
        kinds=EXITED,
        message=r"(?i)rendezvous ?time(?:d )?out|\bRendezvous(?:Timeout|Connection|Closed)Error\b|DistStoreError|"
        r"DistNetworkError|client socket has timed out|timed out after \d+ seconds waiting for clients",
        means="Not all ranks met in time.",
        source="PyTorch, torch/distributed/elastic/rendezvous; TCPStore",
        cascade=True,
    ),
    Signature(
        name="NcclError",
        disruption_class=DisruptionClass.COMMUNICATION_FAILURE,
        kinds=EXITED,
        message=r"\bnccl(?:Internal|System|UnhandledCuda)Error\b|\bNCCL (?:error|WARN)\b|\bncclUnhandledCudaError\b|"
        r"unhandled (?:system|cuda) error|NET/IB\s*:.*(?:error|failed)|ibv_\w+ failed",
        means="NCCL failed, for a reason that may lie in the network, the node or the job: suspect, tried again.",
        source="NCCL, ncclResult_t",
    ),
)

_OTHER_MESSAGES = (
    Signature(
        name="IllegalMemoryAccess",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        message=r"an illegal memory access was encountered|\bcudaErrorIllegalAddress\b|unspecified launch failure|"
        r"misaligned address",
        means="A CUDA kernel touched memory that is not its own: by a bug twice as often as by a bad GPU.",
        source=_CUDA,
    ),
    Signature(
        name="XidApplication",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        message=_XID + r"(?:13|31|94)\b",
        means="A GPU error that is contained to the application: suspect on repeat only.",
        source=_XIDS,
    ),
    Signature(
        name="NoCudaDevice",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        kinds=EXITED,
        message=r"no CUDA-capable device is detected|\bcudaErrorNoDevice\b|No CUDA GPUs are available|"
        r"system not yet initialized|\bcudaErrorSystemNotReady\b|CUDA driver initialization failed|"
        r"CUDA error: unknown error|Failed to initialize NVML",
        means="CUDA finds no usable GPU: a driver or fabric manager that is not up, or a pod that asked for none.",
        source=_CUDA,
    ),
    Signature(
        name="NoSpaceLeft",
        disruption_class=DisruptionClass.UNKNOWN,
        kinds=EXITED,
        message=r"No space left on device|Disk quota exceeded",
        means="A disk is full: the node's own, or the volume of the job.",
        source="Linux, ENOSPC, EDQUOT",
    ),
    Signature(
        name="FileSystemError",
        disruption_class=DisruptionClass.UNKNOWN,
        kinds=EXITED,
        message=r"Read-only file system|Input/output error|Stale file handle|Transport endpoint is not connected",
        means="A file system failed under the job.",
        source="Linux, EROFS, EIO, ESTALE, ENOTCONN",
    ),
    Signature(
        name="NotANumber",
        disruption_class=DisruptionClass.UNKNOWN,
        kinds=EXITED,
        message=r"(?i)loss (?:is|became|=|:) ?(?:nan|inf)\b|found nan in|nan (?:loss|grad)|non-finite loss",
        means="The loss is not a number: data, a bug, a checkpoint or silent corruption.",
        source="reports of public training runs",
    ),
    Signature(
        name="PythonError",
        disruption_class=DisruptionClass.UNKNOWN,
        kinds=EXITED,
        message=_PYTHON + r"(?:RuntimeError|OSError|RecursionError|Exception)(?::|\s*$)",
        means="An exception that may be the script's or its surroundings'.",
        source=_BUILT_IN,
    ),
)

_EXIT_CODES = (
    Signature(
        name="GpuExitCode",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        kinds=EXITED,
        exit_codes=(14, 128, 201, 202),
        means="Launchers use this exit code for a fault of a GPU or its driver; alone it proves nothing.",
        source="launchers of public training runs",
    ),
    Signature(
        name="ChildKilled",
        disruption_class=DisruptionClass.OUT_OF_MEMORY,
        kinds=EXITED,
        exit_codes=(247,),
        means="The launcher passed on that a process was killed (-9), as the kernel does for memory.",
        source="Python, subprocess: a negative return code as exit status",
    ),
    Signature(
        name="SignalFromOutside",
        disruption_class=DisruptionClass.KILLED,
        kinds=EXITED,
        exit_codes=(137, 143),
        means="SIGKILL or SIGTERM ended the process, and nobody says why.",
        source="128 + signal, POSIX shell",
    ),
    Signature(
        name="OwnSignal",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        exit_codes=(132, 133, 134, 135, 136, 139),
        means="The process ended itself by a signal: abort, segmentation fault, bus error, illegal instruction.",
        source="128 + signal, POSIX shell",
    ),
)

SIGNATURES: tuple[Signature, ...] = (
    *_HARDWARE_MESSAGES,
    *_DISRUPTIONS,
    *_MEMORY,
    *_USER_ERRORS,
    *_NODE_SIGNS,
    *_PEERS_MISSING,
    *_OTHER_MESSAGES,
    *_EXIT_CODES,
)
"""The table; the first row that fits counts."""

_FAULTS = tuple(row for row in SIGNATURES if row.disruption_class is DisruptionClass.HARDWARE_FAULT)
"""A member runs on a node that a rule calls faulty: nothing else can be read from it."""

BY_NAME = {signature.name: signature for signature in SIGNATURES}


def tells_of_another(name: str) -> bool:
    """The row of that name is what a rank says that waited for another one in vain: its own node has done nothing."""
    row = BY_NAME.get(name)
    return row is not None and row.cascade


_COMPILED = {signature.name: compiled(signature.message) for signature in SIGNATURES if signature.message}


_HAVE_SIGNATURES = frozenset({*EXITED, LossKind.POD_DELETED, LossKind.POD_DISRUPTED, LossKind.NODE_FAULT})
"""The other kinds say themselves what they mean."""


def signature_of(evidence: Evidence, snapshot: Snapshot) -> Signature | None:
    """The first row that fits. None: only the kind of loss tells."""
    if evidence.kind not in _HAVE_SIGNATURES:
        return None
    found = _found(evidence)
    rows = _FAULTS if evidence.kind is LossKind.NODE_FAULT else SIGNATURES
    return next((row for row in rows if fits(row, evidence, snapshot, found)), None)


def xid_of(evidence: Evidence, signature: Signature) -> str:
    """The number of the XID that the row has found. Empty: it is not about XIDs."""
    if not signature.message.startswith(_XID):
        return ""
    matches = (_COMPILED[signature.name].search(text) for text in texts(evidence))
    said = next((match.group() for match in matches if match is not None), "")
    return said[len(said.rstrip("0123456789")) :]


def _found(evidence: Evidence) -> frozenset[str]:
    """The names of all rows whose pattern is found; asked only whether one is among them."""
    return frozenset().union(*(_rows_of(text) for text in texts(evidence) if text))


@lru_cache(maxsize=4096)
def _rows_of(text: str) -> frozenset[str]:
    """The ranks of a group end with much the same words, and each look reads them again."""
    return frozenset(name for name, pattern in _COMPILED.items() if pattern.search(text) is not None)
