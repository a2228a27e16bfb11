"""The table of known messages, and the wordings that lead to it."""

from __future__ import annotations

import pytest

from features.events import EVENT_KINDS, EVENTS
from features.parsers.textevents import COARSE, WORDINGS, find, promising
from features.parsers.textline import TEXT_KEPT
from features.parsers.texttraceback import CASCADE_TYPES

FROM_BLOCKS = {"stall", "stall_shutdown", "exception"}  # messages of several lines, recognised without a wording


def test_names_are_unique_and_every_kind_is_described() -> None:
    assert len(EVENT_KINDS) == len(EVENTS)
    assert all(kind.meaning and kind.source and kind.name == kind.name.lower() for kind in EVENTS)
    assert {kind.role for kind in EVENTS} == {"root", "cascade", "context"}


def test_every_wording_means_a_known_event_and_every_event_has_a_wording() -> None:
    assert {wording.event for wording in WORDINGS} | FROM_BLOCKS == set(EVENT_KINDS)
    assert set(CASCADE_TYPES.values()) <= {kind.name for kind in EVENTS if kind.role == "cascade"}


def test_the_cheap_check_never_refuses_a_wording() -> None:
    assert [wording.needle for wording in WORDINGS if not any(part in wording.needle for part in COARSE)] == []


def test_context_is_never_proof() -> None:
    assert [kind.name for kind in EVENTS if kind.role == "context" and kind.hard] == []


# One line for each wording: text, event, fields and ranks that must be read from it.
GOLDEN: list[tuple[str, str, dict[str, str], tuple[int, ...]]] = [
    ("Mismatched allreduce tensor shapes: One rank sent a tensor of shape [3], but another rank sent [4].",
     "mismatch", {"what": "allreduce tensor shapes"}, ()),
    ("Mismatched CPU/GPU device selection: One rank specified device CPU, but another rank specified device GPU.",
     "mismatch", {"what": "CPU/GPU device selection"}, ()),
    ("Requested to allreduce a tensor with the same name as another tensor that is currently being processed.",
     "mismatch", {}, ()),
    ("[2]: Horovod background loop uncaught exception: [/p.cc:5] Read error [10.9.8.7]:1234: Connection reset by peer",
     "connection_lost", {"peer": "10.9.8.7", "port": "1234", "reason": "Connection reset by peer"}, ()),
    ("Horovod background loop uncaught exception: something else", "connection_lost", {"reason": "something else"}, ()),
    ("Horovod has been shut down. This was caused by", "horovod_error", {}, ()),
    ("INFO:root:blacklist failing host: beta", "host_lost", {}, ()),
    ("INFO:root:record state: beta[1] = FAILURE", "host_lost", {"slot": "1", "state": "FAILURE"}, ()),
    ("INFO:root:reset workers: 7", "hosts_updated", {"workers": "7"}, ()),
    ("A response has been evicted from cache which may indicate reduced performance.", "cache_evicted", {}, ()),
    ("export HOROVOD_TIMELINE_MARKERS=1", "unknown_setting", {"setting": "HOROVOD_TIMELINE_MARKERS"}, ()),
    ("[PG 1 Rank 6] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, OpType=BROADCAST, NumelIn=1, "
     "NumelOut=1, Timeout(ms)=600000) ran for 600123 milliseconds before timing out.",
     "collective_timeout", {"sequence": "44", "op": "BROADCAST", "ran_ms": "600123"}, ()),
    ("[Rank 6] failure detected by watchdog at work sequence id: 45, last enqueued work: 47, last completed work: 44",
     "collective_progress", {"enqueued": "47", "completed": "44"}, ()),
    ("Received a dump signal due to a collective timeout from rank 5 and we will try our best to dump",
     "collective_progress", {"first": "5"}, ()),
    ("Heartbeat monitor timed out! Process will be terminated", "collective_timeout", {}, ()),
    ("Detected mismatch between collectives on ranks.", "collective_desync", {}, ()),
    ("Gloo connectFullMesh failed with [x] no error", "gloo_connect_failed", {"reason": "[x] no error"}, ()),
    ("Timed out waiting 30000ms for recv operation to complete", "connection_lost", {"waited_ms": "30000"}, ()),
    ("x.cc:9] Connection closed by peer [10.0.0.9]:4567", "connection_lost", {"peer": "10.0.0.9", "port": "4567"}, ()),
    ("Timed out after 61 seconds waiting for clients. 3/4 clients joined.",
     "rendezvous_failed", {"joined": "3", "expected": "4"}, ()),
    ("Received 15 death signal, shutting down workers", "death_signal", {"signal": "SIGTERM"}, ()),
    ("failed (exitcode: -9) local_rank: 2 (pid: 77) of binary: python",
     "process_exit", {"code": "-9", "signal": "SIGKILL", "local_rank": "2"}, ()),
    ("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 3 has a total capacity of 10 GiB",
     "cuda_oom", {"tried": "2.50 GiB", "gpu": "3"}, ()),
    ("OOM when allocating tensor with shape[64,3] and type float", "cuda_oom", {"shape": "[64,3]"}, ()),
    ("This might be caused by insufficient shared memory (shm).", "shm_exhausted", {}, ()),
    ("DataLoader worker (pid 9) is killed by signal: Bus error.", "shm_exhausted", {}, ()),
    ("DataLoader worker (pid 9) is killed by signal: Killed.", "dataloader_killed", {"pid": "9", "by": "Killed"}, ()),
    ("DataLoader worker (pid(s) 9, 10) exited unexpectedly", "dataloader_killed", {"pid": "9, 10"}, ()),
    ("Caught KeyError in DataLoader worker process 2.", "input_error", {"type": "KeyError"}, ()),
    ("DataLoader timed out after 120 seconds", "dataloader_timeout", {"seconds": "120"}, ()),
    ("slurmstepd-beta: error: Detected 2 oom-kill event(s) in StepId=1.0.", "cgroup_oom", {"kills": "2"}, ()),
    ("slurmstepd: error: Detected 1 oom_kill event in StepId=1.0.", "cgroup_oom", {"kills": "1"}, ()),
    ("srun: error: beta: task 4: Out Of Memory", "cgroup_oom", {}, (4,)),
    ("OSError: [Errno 12] Cannot allocate memory", "allocation_failed", {}, ()),
    ("OSError: [Errno 28] No space left on device", "disk_full", {}, ()),
    ("Process 5 exit with status code 139.", "process_exit", {"code": "139", "signal": "SIGSEGV"}, (5,)),
    ("mpirun noticed that process rank 6 with PID 0 on node beta exited on signal 11 (Segmentation fault).",
     "process_exit", {"signal": "SIGSEGV"}, (6,)),
    ("Terminating remaining workers after failure of Process 5.", "job_aborted", {}, (5,)),
    ("MPI_ABORT was invoked on rank 3 in communicator MPI_COMM_WORLD", "job_aborted", {}, (3,)),
    ("Killed", "process_killed", {}, ()),
    ("Terminated", "process_terminated", {}, ()),
    ("srun: error: beta: tasks 1,3: Exited with exit code 1", "process_exit", {"code": "1"}, (1, 3)),
    ("srun: error: beta: tasks 8-10: Killed", "process_killed", {}, (8, 9, 10)),
    ("*** JOB 17 ON beta CANCELLED AT 2031-04-05T06:07:08 DUE TO TIME LIMIT ***",
     "job_cancelled", {"job": "17", "reason": "TIME LIMIT"}, ()),
    ("*** STEP 17.0 ON beta CANCELLED AT 2031-04-05T06:07:08 ***", "job_aborted", {"job": "17.0"}, ()),
    ("srun: error: Node failure on beta", "host_lost", {}, ()),
    ("srun: error: beta: task 2: Segmentation fault (core dumped)", "process_crashed", {}, (2,)),
    ("Current loss scale already at minimum - cannot decrease", "loss_scale_exhausted", {}, ()),
    ("OVERFLOW! Rank 3 Skipping step. Attempted loss scale: 512, reducing to 256",
     "loss_scale_overflow", {"scale": "512"}, ()),
    ("Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 8.0",
     "loss_scale_overflow", {"scale": "8.0"}, ()),
    ("Loss is nan, stopping training", "loss_nonfinite", {}, ()),
    ("Function 'MulBackward0' returned nan values in its 0th output.", "loss_nonfinite", {}, ()),
    ("NVRM: Xid (PCI:0000:9b:00): 79, pid=7, GPU has fallen off the bus.", "xid", {"xid": "79",
     "gpu": "0000:9b:00"}, ()),
    ("NVRM: Xid (PCI:0000:9b:00): 31, pid=7, MMU Fault", "xid_application", {"xid": "31"}, ()),
    ("NVRM: Xid (PCI:0000:9b:00): 45, pid=7, Ch 00000010", "xid_followup", {"xid": "45"}, ()),
    ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress", "sxid", {"sxid": "12028"}, ()),
    ("Memory cgroup out of memory: Killed process 7 (python) total-vm:1kB", "cgroup_oom", {"process": "python"}, ()),
    ("Out of memory: Killed process 7 (python) total-vm:1kB", "host_oom", {"pid": "7", "process": "python"}, ()),
    ("mlx5_core 0000:1a:00.0 ens1: Link is Down", "link_down", {"interface": "ens1"}, ()),
    ("igb 0000:01:00.0 eth0: igb: eth0 NIC Link is Up 1000 Mbps", "link_up", {}, ()),
    ("pcieport 0000:00:1c.0: PCIe Bus Error: severity=Uncorrected, type=Transaction Layer",
     "pcie_error", {"severity": "Uncorrected"}, ()),
    ("INFO: task python:77 blocked for more than 120 seconds.", "hung_task", {"process": "python",
     "seconds": "120"}, ()),
    ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:7]", "hung_task", {"seconds": "22"}, ()),
    ("nfs: server filer not responding, still trying", "storage_error", {"server": "filer"}, ()),
    ("CPU5: Package temperature above threshold, cpu clock throttled (total events = 3)", "thermal_throttle", {}, ()),
    ("alpha:7:8 [2] net_ib.cc:9 NCCL WARN NET/IB : Got completion from peer 10.0.0.9<1> with status=12 opcode=0",
     "nccl_ib_error", {"error": "12", "peer": "10.0.0.9<1>", "device": "2"}, ()),
    ("alpha:7:8 [2] NCCL WARN NET/IB : mlx5_1:1 Got async error event: port error",
     "nccl_ib_error", {"error": "port error"}, ()),
    ("alpha:7:8 [0] NCCL INFO NET/IB : No device found.", "nccl_no_rdma", {"device": "0"}, ()),
    ("alpha:7:8 [0] misc/socket.cc:4 NCCL WARN socketStartConnect: Connect to 10.0.0.9<1> failed : No route to host",
     "nccl_connect_failed", {"address": "10.0.0.9<1>", "reason": "No route to host"}, ()),
    ("alpha:7:8 [0] NCCL INFO Using network Socket", "nccl_transport", {"network": "Socket"}, ()),
    ("alpha:7:8 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.9<0>",
     "nccl_interface", {"interfaces": "[0]eth0:10.0.0.9<0>"}, ()),
    ("alpha:7:8 [0] NCCL INFO proxy.cc:5 -> 2", "nccl_error", {"result": "2", "place": "proxy.cc:5"}, ()),
    ("alpha:7:8 [0] NCCL INFO proxy.cc:5 -> 6", "nccl_remote_error", {"result": "6"}, ()),
    ("NCCL communicator was aborted on rank 3.", "nccl_error", {}, ()),
    ("alpha:7:8 [1] enqueue.cc:3 NCCL WARN Cuda failure 'out of memory'", "cuda_oom", {}, ()),
    ("alpha:7:8 [1] x.cc:3 NCCL WARN nothing known", "nccl_warn", {"reason": "nothing known"}, ()),
    ("CUDA error: an illegal memory access was encountered", "cuda_error",
     {"reason": "an illegal memory access was encountered"}, ()),
    ("Error 802: system not yet initialized", "cuda_not_ready", {}, ()),
]  # fmt: skip


@pytest.mark.parametrize(("text", "event", "fields", "ranks"), GOLDEN, ids=[text[:40] for text, *_ in GOLDEN])
def test_wording(text: str, event: str, fields: dict[str, str], ranks: tuple[int, ...]) -> None:
    assert promising(text)
    found = find(text)
    assert found is not None
    assert found.event == event
    assert found.fields | fields == found.fields
    assert found.ranks == ranks


@pytest.mark.parametrize(
    "text",
    [
        "Process 5 exit with status code 0.",
        "all ranks are ready, no errors",
        "Saved the model; killed time waiting",
        "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Data {0x0}",
        "loss scale is 1024",
        "MyMemoryErrorHandler installed",
        "x" * TEXT_KEPT,
    ],
)
def test_harmless_lines_mean_nothing(text: str) -> None:
    assert find(text) is None
