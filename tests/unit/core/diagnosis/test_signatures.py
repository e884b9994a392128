"""The signature table: for each row, facts that match it and the conclusion from them."""

import re
from pathlib import Path

import pytest

from recovery.core.diagnosis import signature_table
from recovery.core.diagnosis.classify import cause_of, classify
from recovery.core.diagnosis.evidence import Evidence, LossKind
from recovery.core.diagnosis.signature import DisruptionClass
from recovery.core.diagnosis.signature_table import SIGNATURES, signature_of
from recovery.core.model.facts import Snapshot
from recovery.core.model.fleet_ledger import QUARANTINE_TAINT
from recovery.core.model.patterns import Pattern, compiled
from tests.unit.core.signs import around, container, died, lost

TRACEBACK = 'Traceback (most recent call last):\n  File "/workspace/train.py", line 212, in main\n'
TORCHRUN_REPORT = """RuntimeError: [gloo] Connection closed by peer [10.0.0.7]:4411
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-21_12:00:00
  host      : llm-node-0-1
  rank      : 9 (local_rank: 1)
  exitcode  : {exitcode} (pid: 41)
  error_file: <N/A>
  traceback : Signal {signal} received by PID 41
============================================================
"""
"""The last lines of torchrun, after what a neighbour of the killed rank wrote."""
WELL = around()

Row = tuple[Evidence, Snapshot, str, str, str]
"""The facts, then the expected row, class and cause."""


def xid(number: int) -> str:
    return f"NVRM: Xid (PCI:0000:3b:00): {number}, pid=4141, name=python"


def deleted(kind: LossKind = LossKind.POD_DELETED, by: str = "", **changes: object) -> Evidence:
    return lost(kind, disrupted_by=by, **changes)  # type: ignore[arg-type]


def disrupted(by: str, **changes: object) -> Evidence:
    return deleted(LossKind.POD_DISRUPTED, by, **changes)


HARDWARE = "HardwareFault"
TABLE: tuple[Row, ...] = (
    *((died(1, xid(n)), WELL, "XidOffTheBus", HARDWARE, f"Xid{n}") for n in (79, 160)),
    (died(1, xid(48)), WELL, "XidEcc", HARDWARE, "Xid48"),
    *((died(1, xid(n)), WELL, "XidNvlink", HARDWARE, f"Xid{n}") for n in (74, 144, 149, 150)),
    *(
        (died(1, xid(n)), WELL, "XidGpuFatal", HARDWARE, f"Xid{n}")
        for n in (46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158, 162)
    ),
    (died(1, "RuntimeError: GPU is lost. Reboot the system"), WELL, "GpuLost", HARDWARE, "GpuLost"),
    (died(1, "CUDA error: uncorrectable ECC error encountered"), WELL, "GpuLost", HARDWARE, "GpuLost"),
    (
        died(1, containers=container(unhealthy_devices=("nvidia.com/gpu: GPU-1f2e",))),
        WELL,
        *("DeviceUnhealthy", HARDWARE, "DeviceUnhealthy"),
    ),
    (
        disrupted("DeletionByDeviceTaintManager"),
        WELL,
        *("DeviceTainted", HARDWARE, "DeletionByDeviceTaintManager"),
    ),
    (disrupted("PreemptionByScheduler"), WELL, "Preempted", "PodDisrupted", "PreemptionByScheduler"),
    (disrupted("DeletionByPodGC"), WELL, "NodeDeleted", "NodeLost", "DeletionByPodGC"),
    (disrupted("DeletionByTaintManager"), around(ready=False), "NodeNotReady", "NodeLost", "DeletionByTaintManager"),
    (disrupted("DeletionByTaintManager"), around(gone=True), "NodeNotReady", "NodeLost", "DeletionByTaintManager"),
    (deleted(), around(ready=False, reachable=False), "NodeSilent", "NodeLost", "NodeSilent"),
    (deleted(), around(gone=True), "NodeSilent", "NodeLost", "NodeSilent"),
    (died(255, reason="Unknown"), WELL, "NodeRestarted", "NodeLost", "Exit255"),
    (died(137, reason="ContainerStatusUnknown"), WELL, "NodeRestarted", "NodeLost", "Exit137"),
    (
        disrupted("TerminationByKubelet", reason="Evicted", message="The node was low on resource: memory. "),
        WELL,
        *("EvictedForMemory", "OutOfMemory", "EvictedForMemory"),
    ),
    (
        disrupted("TerminationByKubelet", reason="Evicted", message="The node was low on resource: ephemeral-storage."),
        WELL,
        *("Evicted", "PodDisrupted", "Evicted"),
    ),
    (disrupted("TerminationByKubelet", reason="Preempting"), WELL, "Evicted", "PodDisrupted", "Evicted"),
    (disrupted("TerminationByKubelet", reason="Terminated"), WELL, "NodeShutdown", "PodDisrupted", "NodeShutdown"),
    (died(137, reason="OOMKilled"), WELL, "HostOutOfMemory", "OutOfMemory", "OOMKilled"),
    (
        died(1, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Killed."),
        WELL,
        *("WorkerOutOfMemory", "OutOfMemory", "WorkerOutOfMemory"),
    ),
    (
        died(1, "RuntimeError: DataLoader worker (pid 4711) is killed by signal: Bus error. It is possible that"),
        WELL,
        *("SharedMemory", "UserError", "SharedMemory"),
    ),
    (
        died(1, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"),
        WELL,
        *("CudaOutOfMemory", "OutOfMemory", "CudaOutOfMemory"),
    ),
    *(
        (died(1, f"{TRACEBACK}{line}"), WELL, name, "UserError", name)
        for line, name in (
            ("ModuleNotFoundError: No module named 'flash_attn'", "ImportError"),
            ("ImportError: libcudart.so.11.0: cannot open shared object file", "ImportError"),
            ("SyntaxError: invalid syntax", "SyntaxError"),
            ("FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'", "FileNotFoundError"),
            ("PermissionError: [Errno 13] Permission denied: '/ckpt'", "PermissionError"),
            ("TypeError: forward() missing 1 required positional argument", "TypeError"),
            ("[rank3]: TypeError: forward() missing 1 required positional argument", "TypeError"),
            ("AttributeError: 'NoneType' object has no attribute 'shape'", "AttributeError"),
            ("UnboundLocalError: cannot access local variable 'loss'", "NameError"),
            ("KeyError: 'labels'", "LookupError"),
            ("json.decoder.JSONDecodeError: Expecting value: line 1 column 1", "ValueError"),
            ("AssertionError", "AssertionError"),
            ("NotImplementedError: no such optimizer", "NotImplementedError"),
            ("yaml.scanner.ScannerError: mapping values are not allowed here", "Configuration"),
            ("hydra.errors.MissingConfigException: Cannot find primary config 'llama'", "Configuration"),
            ("omegaconf.errors.ConfigKeyError: Key 'lr' is not in struct", "Configuration"),
            ("RuntimeError: CUDA error: device-side assert triggered", "DeviceSideAssert"),
        )
    ),
    (
        died(2, "usage: train.py [-h] --data DATA\ntrain.py: error: unrecognized arguments: --foo"),
        WELL,
        *("Usage", "UserError", "Usage"),
    ),
    (
        died(128, "nvidia-container-cli: device error: GPU-1f2e: unknown device", reason="StartError"),
        WELL,
        *("CannotRunDevice", HARDWARE, "CannotRunDevice"),
    ),
    (died(128, 'exec: "trian": not found', reason="StartError"), WELL, "CannotRun", "UserError", "Exit128"),
    (died(127), WELL, "CommandNotFound", "UserError", "Exit127"),
    *(
        (died(1), around(conditions={type_: status}), "GpuFaultOnNode", HARDWARE, "GpuFaultOnNode")
        for type_, status in (
            *(("GpuMemWatch", "True"), ("GpuNvlinkWatch", "True"), ("SysLogsXIDError", "True")),
            *(("NVLinkStatusInactive", "True"), ("GPUMissing", "True")),
            *(("NebiusGPUError", "True"), ("GpuUnhealthy", "True")),
        )
    ),
    (
        died(1),
        around(taints=("nvidia.com/gpu-xid-error",)),
        *("GpuTaintOnNode", HARDWARE, "GpuTaintOnNode"),
    ),
    (died(1), around(conditions={"KernelDeadlock": "True"}), "NodeBroken", HARDWARE, "NodeBroken"),
    (died(1), around(conditions={"IBLinkFlapping": "True"}), "NodeDegraded", HARDWARE, "NodeDegraded"),
    (deleted(), around(taints=("karpenter.sh/disrupted",)), "NodeLeaving", "PodDisrupted", "NodeLeaving"),
    (
        died(143),
        around(taints=("aws-node-termination-handler/spot-itn",)),
        *("SpotEnded", "PodDisrupted", "SpotEnded"),
    ),
    (deleted(), around(unschedulable=True), "Drained", "PodDisrupted", "Drained"),
    (
        lost(
            LossKind.POD_FAILED,
            reason="UnexpectedAdmissionError",
            message="Pod was rejected: Allocate failed due to device plugin GetPreferredAllocation rpc failed",
        ),
        WELL,
        *("DeviceAllocation", HARDWARE, "DeviceAllocation"),
    ),
    (
        died(1, "torch.distributed.elastic.multiprocessing.api.SignalException: Process 1 got signal: 15"),
        WELL,
        *("LauncherStopped", "Killed", "LauncherStopped"),
    ),
    (died(1, TORCHRUN_REPORT.format(exitcode=-9, signal="9 (SIGKILL)")), WELL, "RankKilled", "Killed", "RankKilled"),
    (died(1, TORCHRUN_REPORT.format(exitcode=-15, signal="15 (SIGTERM)")), WELL, "RankKilled", "Killed", "RankKilled"),
    (
        died(134, "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=48211)"),
        WELL,
        *("NcclWatchdog", "CommunicationFailure", "NcclWatchdog"),
    ),
    (
        died(1, "[Errno 104] Connection reset by peer"),
        WELL,
        *("ConnectionReset", "CommunicationFailure", "ConnectionReset"),
    ),
    (
        died(1, "rendezvous timed out: not all ranks joined"),
        WELL,
        *("RendezvousTimeout", "CommunicationFailure", "RendezvousTimeout"),
    ),
    (
        died(1, "ncclInternalError: Internal check failed."),
        WELL,
        *("NcclError", "CommunicationFailure", "NcclError"),
    ),
    (
        died(1, "CUDA error: an illegal memory access was encountered"),
        WELL,
        *("IllegalMemoryAccess", "Crashed", "IllegalMemoryAccess"),
    ),
    *((died(1, xid(n)), WELL, "XidApplication", "Crashed", f"Xid{n}") for n in (13, 31, 94)),
    (died(1, "RuntimeError: No CUDA GPUs are available"), WELL, "NoCudaDevice", HARDWARE, "NoCudaDevice"),
    (died(1, "OSError: [Errno 28] No space left on device"), WELL, "NoSpaceLeft", "Unknown", "NoSpaceLeft"),
    (
        died(1, "OSError: [Errno 5] Input/output error: '/ckpt'"),
        WELL,
        *("FileSystemError", "Unknown", "FileSystemError"),
    ),
    (died(1, "RuntimeError: loss is nan at step 1200"), WELL, "NotANumber", "Unknown", "NotANumber"),
    (
        died(1, f"{TRACEBACK}RuntimeError: mat1 and mat2 shapes cannot be multiplied"),
        WELL,
        *("PythonError", "Unknown", "PythonError"),
    ),
    *((died(n), WELL, "GpuExitCode", HARDWARE, f"Exit{n}") for n in (14, 128, 201, 202)),
    (died(247), WELL, "ChildKilled", "OutOfMemory", "Exit247"),
    *((died(n), WELL, "SignalFromOutside", "Killed", f"Exit{n}") for n in (137, 143)),
    *((died(n), WELL, "OwnSignal", "Crashed", f"Exit{n}") for n in (134, 139)),
)


@pytest.mark.parametrize(("evidence", "snapshot", "name", "class_", "cause"), TABLE, ids=lambda v: str(v)[:40])
def test_each_sign_has_its_meaning(evidence: Evidence, snapshot: Snapshot, name: str, class_: str, cause: str) -> None:
    disruption = classify((evidence,), snapshot)
    assert (disruption.root.signature, disruption.disruption_class, disruption.cause) == (name, class_, cause)
    assert not disruption.root.cascade  # evidence that stands alone is the root, whatever it is
    assert [suspect.node for suspect in disruption.suspects] == ["gpu-3"]


@pytest.mark.parametrize("row", SIGNATURES, ids=lambda row: row.name)
def test_every_row_of_the_table_is_exercised(row: object) -> None:
    assert row in [signature_of(evidence, snapshot) for evidence, snapshot, *_ in TABLE]


PROOF = {
    *("XidOffTheBus", "XidEcc", "XidNvlink", "XidGpuFatal", "GpuLost", "DeviceUnhealthy", "DeviceTainted"),
    *("GpuFaultOnNode", "GpuTaintOnNode", "NodeBroken"),
}


def test_only_what_proves_a_fault_of_the_node_blames_it() -> None:
    """Exit codes prove nothing, nor do conditions that may be unrelated. They only make the node suspect."""
    blamed = {name for evidence, snapshot, name, *_ in TABLE if classify((evidence,), snapshot).root.blames_node}
    assert blamed == PROOF
    assert {row.name for row in SIGNATURES if row.blames_node} == PROOF


def test_names_are_stable_words_and_none_comes_twice() -> None:
    names = [row.name for row in SIGNATURES]
    assert len(set(names)) == len(names)
    assert all(name.isalnum() and name[0].isupper() for name in names)


# --- what shows nothing ---------------------------------------------------------------------------------------------

NOTHING: dict[str, tuple[Evidence, Snapshot]] = {
    "a bare exit": (died(1), WELL),
    "informational XIDs": (died(1, "; ".join(xid(n) for n in (43, 45, 63, 92, 154))), WELL),
    "another number that begins like an XID": (died(1, xid(790)), WELL),
    "the good state of a health condition": (died(1), around(conditions={"GpuMemWatch": "False"})),
    "the ordinary taint of GPU nodes": (died(1), around(taints=("nvidia.com/gpu",))),
    "a fault of another node": (died(1), around(node="gpu-4", conditions={"GPUMissing": "True"})),
    "a name of an exception within a sentence": (died(1, "no TypeError: here"), WELL),
    "a pod deleted from a good node": (deleted(), WELL),
    "how a deleted pod's processes ended": (deleted(message="torch.OutOfMemoryError"), WELL),
    "a node that is not Ready, but answers": (deleted(), around(ready=False)),
    "a node that nothing is known of": (died(1, node=""), WELL),
    "our own quarantine": (deleted(), around(unschedulable=True, taints=(QUARANTINE_TAINT,))),
    "the node of a replacement": (
        lost(LossKind.POD_DELETED, inferred=True),
        around(conditions={"GPUMissing": "True"}, unschedulable=True),
    ),
}


@pytest.mark.parametrize(("evidence", "snapshot"), NOTHING.values(), ids=NOTHING)
def test_what_tells_nothing_fits_no_row(evidence: Evidence, snapshot: Snapshot) -> None:
    assert signature_of(evidence, snapshot) is None


@pytest.mark.parametrize("kind", [LossKind.NODE_LOST, LossKind.JOB_FAILING, LossKind.JOB_SET_FAILED, LossKind.MANUAL])
def test_a_loss_that_says_itself_what_it_is_needs_no_sign(kind: LossKind) -> None:
    assert signature_of(lost(kind), around(conditions={"GPUMissing": "True"})) is None


@pytest.mark.parametrize(
    ("evidence", "class_", "cause"),
    [
        (deleted(), "PodDeleted", "PodDeleted"),
        (disrupted("EvictionByEvictionAPI"), "PodDisrupted", "EvictionByEvictionAPI"),
        (disrupted("DeletionByTaintManager"), "PodDisrupted", "DeletionByTaintManager"),
        (disrupted(""), "PodDisrupted", "PodDisrupted"),
        (lost(LossKind.NODE_LOST), "NodeLost", "NodeLost"),
        (lost(LossKind.NODE_FAULT), "HardwareFault", "NodeFault"),
        (lost(LossKind.JOB_FAILING), "JobFailed", "JobFailing"),
        (lost(LossKind.JOB_SET_FAILED), "JobFailed", "JobSetFailed"),
        (lost(LossKind.MANUAL), "Manual", "Manual"),
        (died(1), "Unknown", "Exit1"),
        (lost(LossKind.CONTAINER_RESTARTED), "Unknown", "ContainerRestarted"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_without_a_sign_the_kind_of_loss_decides(evidence: Evidence, class_: str, cause: str) -> None:
    disruption = classify((evidence,), WELL)
    assert (disruption.root.signature, disruption.disruption_class, disruption.cause) == ("", class_, cause)


def test_a_node_that_a_rule_calls_faulty_is_named_by_the_fault_alone() -> None:
    """The member still runs, so an earlier exit or a cordon says nothing about the fault."""
    fault = lost(LossKind.NODE_FAULT)
    named = classify((fault,), around(conditions={"GPUMissing": "True"}, unschedulable=True)).root
    assert (named.signature, named.disruption_class) == ("GpuFaultOnNode", DisruptionClass.HARDWARE_FAULT)
    other = classify((fault,), around(conditions={"MyOwnCondition": "True"}, unschedulable=True)).root
    assert (other.signature, other.disruption_class) == ("", DisruptionClass.HARDWARE_FAULT)
    assert cause_of(other) == "NodeFault"


# --- which of several signs counts ----------------------------------------------------------------------------------

FIRST: dict[str, tuple[Evidence, Snapshot, str]] = {
    "an XID goes before what the script makes of it": (
        died(1, f"{xid(79)}\n{TRACEBACK}ValueError: bad tensor"),
        WELL,
        "XidOffTheBus",
    ),
    "an error of the script goes before a fault that the node has had for long": (
        died(1, f"{TRACEBACK}KeyError: 'labels'"),
        around(conditions={"GPUMissing": "True"}),
        "LookupError",
    ),
    "one rank's error goes before the broken connections of its neighbours in the pod": (
        died(1, "[rank1]: KeyError: 'labels'\n[rank2]: Connection reset by peer"),
        WELL,
        "LookupError",
    ),
    "a faulty node goes before a time-out: its rank is the missing one": (
        died(134, "Watchdog caught collective operation timeout"),
        around(conditions={"GpuNvlinkWatch": "True"}),
        "GpuFaultOnNode",
    ),
    "a node that its own agent drains is faulty, not drained": (
        disrupted("EvictionByEvictionAPI"),
        around(unschedulable=True, conditions={"GpuMemWatch": "True"}),
        "GpuFaultOnNode",
    ),
    "a preemption stays one": (
        disrupted("PreemptionByScheduler"),
        around(conditions={"GpuMemWatch": "True"}),
        "Preempted",
    ),
    "the memory killer goes before the signal that it sends": (died(137, reason="OOMKilled"), WELL, "HostOutOfMemory"),
}


@pytest.mark.parametrize(("evidence", "snapshot", "name"), FIRST.values(), ids=FIRST)
def test_the_first_row_that_fits_counts(evidence: Evidence, snapshot: Snapshot, name: str) -> None:
    found = signature_of(evidence, snapshot)
    assert found is not None
    assert found.name == name


# --- bounds ---------------------------------------------------------------------------------------------------------


def test_only_the_end_of_a_message_is_read() -> None:
    end = "\n" + "x" * 4000
    assert signature_of(died(1, f"KeyError: 1{end}"), WELL) is not None
    assert signature_of(died(1, f"KeyError: 1{end}{end}"), WELL) is None


def test_half_a_surrogate_pair_is_no_error() -> None:
    found = signature_of(died(1, "\ud800\nKeyError: 'labels'"), WELL)
    assert found is not None
    assert found.name == "LookupError"


class CountingPattern:
    """Counts how often its pattern is searched."""

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern
        self.searches = 0

    def search(self, text: str) -> object:
        self.searches += 1
        return self.pattern.search(text)


def test_no_message_takes_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has 4 KiB and nearly matches many rows. Each row reads it once, and RE2 does not backtrack."""
    rows = {name: CountingPattern(pattern) for name, pattern in signature_table._COMPILED.items()}
    assert {type(row.pattern) for row in rows.values()} == {type(compiled("a user's pattern"))}
    monkeypatch.setattr(signature_table, "_COMPILED", rows)
    for _ in range(3):
        assert signature_of(died(1, "[rank1]: a.a.a.a.a.Type" * 170), WELL) is None
    assert {row.searches for row in rows.values()} == {1}


PAGE = (Path(__file__).parents[4] / "docs/classes.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("class_", DisruptionClass)
def test_every_class_is_in_the_docs(class_: DisruptionClass) -> None:
    assert f"\n| {class_} | " in PAGE


def test_the_table_in_the_docs_is_the_table() -> None:
    rows = [f"| {row.name} | {row.disruption_class} | {row.means} |" for row in SIGNATURES]
    assert "\n".join(rows) in PAGE


def test_the_docs_name_the_signs_that_blame_the_node_and_those_of_a_cascade() -> None:
    assert signs_after("- **Blames the node**: ") == [row.name for row in SIGNATURES if row.blames_node]
    assert signs_after("- **Cascade**: ") == [row.name for row in SIGNATURES if row.cascade]


def test_the_docs_name_the_source_of_each_sign() -> None:
    listed = " ".join(PAGE.split("\n### Sources\n")[1].split())
    named: dict[str, list[str]] = {}
    for row in SIGNATURES:
        named.setdefault(row.source, []).append(row.name)
    assert [f"- {source}: {', '.join(names)}." for source, names in named.items() if source] == [
        f"- {each}" for each in listed.removeprefix("Where each sign is documented or defined: - ").split(" - ")
    ]


def signs_after(mark: str) -> list[str]:
    """The names in the first sentence after `mark` on the page."""
    return re.findall(r"`(\w+)`", PAGE.split(mark)[1].split(".")[0])
