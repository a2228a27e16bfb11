"""Wordings of the Linux kernel and of NVIDIA's kernel module."""

from __future__ import annotations

from features.parsers.logwording import Wording, wording

# Codes by NVIDIA's Xid catalogue: stopped accesses of the application, and lines that only follow another Xid.
APPLICATION = "13|31|32|43|68|69|80|94"
FOLLOWUP = "45|63|93|137|154|160|171|172"
_XID = r"\bXid \((?:PCI:)?(?P<gpu>[\w:.]+)\): (?P<xid>{codes}),(?P<detail>.*)"
_VICTIM = r"Kill(?:ed)? process (?P<pid>\d+),?(?: UID \d+,)? \((?P<process>[^)]*)\)"
_PORT = r"(?P<interface>mlx\S+|ib\d+|e\w+): (?:Port: \d+ )?"

KERNEL_WORDINGS: tuple[Wording, ...] = (
    wording("sxid", "SXid", r"SXid \((?:PCI:)?(?P<switch>[\w:.]+)\): (?P<sxid>\d+), (?P<detail>(?!Data).*)"),
    wording("xid_application", "Xid", _XID.format(codes=APPLICATION)),
    wording("xid_followup", "Xid", _XID.format(codes=FOLLOWUP)),
    wording("xid", "Xid", _XID.format(codes=r"\d+")),
    wording("gpu_lost", "GPU has fallen off the bus"),
    wording("gpu_lost", "GPU is lost"),
    wording("gpu_lost", "Unable to determine the device handle"),
    wording("cgroup_oom", "oom-kill:constraint=CONSTRAINT_MEMCG"),
    wording("cgroup_oom", "Memory cgroup out of memory", r"Memory cgroup out of memory: " + _VICTIM),
    wording("host_oom", "Out of memory", r"Out of memory: " + _VICTIM),
    wording("host_oom", "oom_reaper", r"oom_reaper: reaped process (?P<pid>\d+) \((?P<process>[^)]*)\)"),
    wording("host_oom", "oom-kill:", r"oom-kill:constraint=(?P<constraint>\w+)"),
    wording("link_down", "ink is", r"(?P<interface>[\w.-]+): .*?\b[Ll]ink is [Dd]own"),
    wording("link_up", "ink is", r"(?P<interface>[\w.-]+): .*?\b[Ll]ink is [Uu]p"),
    wording("link_down", "link down", _PORT + "link down"),
    wording("link_down", "Link down", _PORT + "Link down"),
    wording("link_up", "Link up", _PORT + "Link up"),
    wording("pcie_error", "PCIe Bus Error", r"PCIe Bus Error: severity=(?P<severity>[\w -]+)"),
    wording("hardware_error", "[Hardware Error]", r"\[Hardware Error\]: (?P<detail>.*)"),
    wording("hardware_error", "Machine check events logged"),
    wording("hardware_error", "EDAC", r"EDAC \S+: (?P<detail>\d+ (?:CE|UE) .*)"),
    wording("thermal_throttle", "cpu clock throttled", r"temperature above threshold, cpu clock throttled"),
    wording(
        "hung_task",
        "blocked for more than",
        r"task (?P<process>\S+):(?P<pid>\d+) blocked for more than (?P<seconds>\d+) seconds",
    ),
    wording("hung_task", "stuck for", r"soft lockup - CPU#\d+ stuck for (?P<seconds>\d+)s"),
    wording("storage_error", "not responding", r"nfs: server (?P<server>\S+) not responding"),
    wording("storage_error", "I/O error, dev", r"I/O error, dev (?P<device>\w+)"),
    wording("storage_error", "Buffer I/O error", r"Buffer I/O error on dev(?:ice)? (?P<device>\w+)"),
    wording("storage_error", "EXT4-fs error", r"EXT4-fs error \(device (?P<device>\w+)\)"),
    wording("storage_error", "tale file handle"),
    wording("storage_error", "Input/output error"),
)
