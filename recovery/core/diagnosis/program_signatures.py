"""Rows of the signature table about the training program: its messages and its exit codes."""

from recovery.core.diagnosis.node_signatures import XID
from recovery.core.diagnosis.signature import EXITED, DisruptionClass, Signature

_XIDS = "NVIDIA, XID errors, docs.nvidia.com/deploy/xid-errors"
_PYTORCH = "PyTorch, torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp"
_CUDA = "NVIDIA, CUDA runtime API, cudaError_t"
_KUBELET = "Kubernetes, pkg/kubelet"
_BUILT_IN = "Python, built-in exceptions"
_PYTHON = r"(?m)^[\s|]*(?:\[(?:default\d+|rank\d+|\d+)\]:?\s*)?(?:[A-Za-z_]\w*\.)*"
"""The beginning of a line that names a Python exception, after the prefix that torchrun adds to a rank's lines."""

MEMORY = (
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


USER_ERRORS = (
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

LAUNCHER = (
    Signature(
        name="LauncherStopped",
        disruption_class=DisruptionClass.KILLED,
        kinds=EXITED,
        message=r"SignalException: Process \d+ got signal: (?:15|Signals\.SIGTERM)\b",
        means="torchrun was asked to end by SIGTERM, and exits with 1.",
        source="PyTorch, torch/distributed/elastic/multiprocessing/api.py",
    ),
    Signature(
        name="RankKilled",
        disruption_class=DisruptionClass.KILLED,
        kinds=EXITED,
        message=r"(?s)Root Cause \(first observed failure\):.{0,600}"
        r"\bSignal (?:9|15) \(SIG(?:KILL|TERM)\) received by PID",
        means="By torchrun's report the first rank of the pod to fail was killed, and nothing says why.",
        source="PyTorch, torch/distributed/elastic/multiprocessing/errors",
    ),
)
"""What torchrun reports about its ranks counts before what the peers of a killed rank say in the same message."""

PEERS_MISSING = (
    Signature(
        name="NcclWatchdog",
        disruption_class=DisruptionClass.COMMUNICATION_FAILURE,
        kinds=EXITED,
        message=r"Watchdog caught collective operation timeout|watchdog thread terminated with exception|"
        r"Watchdog got stuck|Heartbeat ?monitor timed out|monitored_?[bB]arrier|"
        r"Timed out waiting \d+ ?ms for (?:recv|send) operation",
        means="A collective timed out: a rank that did not join it is missing, not this one.",
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
        means="NCCL failed. The reason may lie in the network, the node or the job.",
        source="NCCL, ncclResult_t",
    ),
)

OTHER_MESSAGES = (
    Signature(
        name="IllegalMemoryAccess",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        message=r"an illegal memory access was encountered|\bcudaErrorIllegalAddress\b|unspecified launch failure|"
        r"misaligned address",
        means="A CUDA kernel used memory of others: by a bug twice as often as by a bad GPU.",
        source=_CUDA,
    ),
    Signature(
        name="XidApplication",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        message=XID + r"(?:13|31|94)\b",
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
        means="CUDA finds no GPU: the driver or fabric manager is down, or the pod asked for none.",
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

EXIT_CODES = (
    Signature(
        name="GpuExitCode",
        disruption_class=DisruptionClass.HARDWARE_FAULT,
        kinds=EXITED,
        exit_codes=(14, 128, 201, 202),
        means="Launchers use this exit code for a fault of a GPU or driver; alone it proves nothing.",
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
        means="SIGKILL or SIGTERM ended the process, and nothing says why.",
        source="128 + signal, POSIX shell",
    ),
    Signature(
        name="OwnSignal",
        disruption_class=DisruptionClass.CRASHED,
        kinds=EXITED,
        exit_codes=(132, 133, 134, 135, 136, 139),
        means="A signal of its own ended it: abort, segmentation fault, bus error, illegal instruction.",
        source="128 + signal, POSIX shell",
    ),
)
