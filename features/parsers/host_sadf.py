"""Reads `sadf -j`, the history of a host that sar keeps, as JSON: rates over intervals, worked out by sar already."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

from features.counters import TCP
from features.notices import Notices
from features.parsers.clocks import find_iso
from features.parsers.hostcounters import VIRTUAL_INTERFACES, number, table
from features.parsers.protocol import ParserRow
from features.records import Host, Net, Record

KILOBYTE = 1024.0  # bytes; sar divides by that
SECTOR = 512.0  # bytes
LARGEST = 256 << 20  # bytes; a day of a host with 256 CPUs, all activities, minute by minute, takes some 100 MiB
LONGEST_INTERVAL_S = 7 * 86400.0
"""The first sample after boot carries a nonsense interval."""

CUT = "document is cut or damaged: samples before that place are used"
TOO_LARGE = "file is larger than 256 MiB, its end left out"
NO_TIME = "sample without a readable time left out"
LOCAL = "times are local and have no zone: taken as UTC"

_DEV_ERRORS = {
    "rxerr": "rx_errors",
    "txerr": "tx_errors",
    "rxdrop": "rx_dropped",
    "txdrop": "tx_dropped",
    "rxfram": "rx_frame_errors",
    "txcarr": "tx_carrier_errors",
    "rxfifo": "rx_fifo_errors",
    "txfifo": "tx_fifo_errors",
}
_SAMPLE_START = re.compile(r'\{\s*"timestamp"\s*:')
_HOST = re.compile(r'"nodename"\s*:\s*"([^"\\]{1,255})"|"number-of-cpus"\s*:\s*(\d{1,6})')


class Sadf:
    """The document is read when it is complete; of one that is cut, all samples that are whole."""

    absolute = True

    def __init__(self, file: str, notices: Notices) -> None:
        """`file` is the name to show in notices and in `source`."""
        self._file, self._notices = file, notices
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[Record]:
        """Keep the bytes: JSON says nothing before its end."""
        room = LARGEST - self._size
        if len(data) > room:
            self._note("warning", TOO_LARGE)
        self._parts.append(data[:room])
        self._size += len(self._parts[-1])
        return []

    def finish(self) -> list[Record]:
        """Records of all samples, in the order of the file."""
        text = b"".join(self._parts).decode("utf-8", errors="replace")
        self._parts = []
        try:
            document = json.loads(text)
        except (ValueError, RecursionError):
            self._note("warning", CUT)
            return self._salvage(text)
        hosts = table(table(document).get("sysstat")).get("hosts")
        records: list[Record] = []
        for host in hosts if isinstance(hosts, list) else []:
            samples = table(host).get("statistics")
            for sample in samples if isinstance(samples, list) else []:
                records += self._sample(table(sample), _node(table(host)), number(table(host).get("number-of-cpus")))
        return records

    def _salvage(self, text: str) -> list[Record]:
        """Samples that are whole although the document is not."""
        decoder, records, at = json.JSONDecoder(), list[Record](), 0
        node, cpus = "localhost", None
        while start := _SAMPLE_START.search(text, at):
            for told in _HOST.finditer(text, at, start.start()):
                node, cpus = (told[1], None) if told[1] is not None else (node, float(told[2]))
            at = start.end()
            try:
                sample, at = decoder.raw_decode(text, start.start())
            except (ValueError, RecursionError):
                continue
            records += self._sample(table(sample), node, cpus)
        return records

    def _sample(self, sample: dict[str, Any], node: str, cpus: float | None) -> list[Record]:
        ts, interval = self._time(table(sample.get("timestamp")))
        if ts is None:
            self._note("warning", NO_TIME)
            return []
        source = f"{self._file}:{node}"
        told = _cpu(sample) | _memory(sample) | _disk(sample) | _traffic(sample)
        records: list[Record] = []
        if told:
            whole = None if cpus is None else int(cpus)
            records.append(Host(ts=ts, node=node, interval_s=interval, cpus=whole, source=source, **told))
        return records + _nets(sample, ts, node, interval, source)

    def _time(self, stamp: dict[str, Any]) -> tuple[float | None, float | None]:
        found = find_iso(f"{stamp.get('date')} {stamp.get('time')}")
        if found is None:
            return None, None
        if stamp.get("utc") not in (1, "1") and stamp.get("tz") != "UTC":
            self._note("info", LOCAL)
        interval = number(stamp.get("interval"))
        good = interval is not None and 0 < interval <= LONGEST_INTERVAL_S
        return found.ts, interval if good else None

    def _note(self, level: Literal["info", "warning"], text: str) -> None:
        self._notices.add(level, text, file=self._file)


def _node(host: dict[str, Any]) -> str:
    name = host.get("nodename")
    return name if isinstance(name, str) and name else "localhost"


def _rows(value: Any) -> list[dict[str, Any]]:
    return [table(row) for row in value] if isinstance(value, list) else []


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _scaled(value: Any, factor: float) -> float | None:
    plain = number(value)
    return None if plain is None else plain * factor


def _first(row: dict[str, Any], *choices: tuple[str, float]) -> float | None:
    """The first of several spellings that is there, in its unit."""
    return next((value for name, factor in choices if (value := _scaled(row.get(name), factor)) is not None), None)


def _cpu(sample: dict[str, Any]) -> dict[str, float]:
    rows = _rows(sample.get("cpu-load")) or _rows(sample.get("cpu-load-all"))
    whole = next((row for row in rows if row.get("cpu") in ("all", "-1", -1)), {})
    idle, iowait, steal = (_scaled(whole.get(name), 0.01) for name in ("idle", "iowait", "steal"))
    system = _first(whole, ("system", 0.01), ("sys", 0.01))
    if system is not None:
        system += sum(_scaled(whole.get(name), 0.01) or 0.0 for name in ("irq", "soft"))
    busy = None if idle is None else max(0.0, 1.0 - idle - (iowait or 0.0) - (steal or 0.0))
    load = number(table(sample.get("queue")).get("ldavg-1"))
    return _known({"cpu_ratio": busy, "system_ratio": system, "iowait_ratio": iowait, "steal_ratio": steal, "load1": load})


def _memory(sample: dict[str, Any]) -> dict[str, float]:
    row = table(sample.get("memory"))
    free, used, available = (_scaled(row.get(name), KILOBYTE) for name in ("memfree", "memused", "avail"))
    caches = sum(_scaled(row.get(name), KILOBYTE) or 0.0 for name in ("buffers", "cached"))
    if available is None and free is not None and used is not None:
        # Without `avail` it is an old sar, whose `memused` holds the caches: those would be given back.
        available, used = free + caches, max(0.0, used - caches)
    return _known(
        {
            "memory_available_bytes": available,
            "memory_used_bytes": used,
            "swap_used_bytes": _scaled(row.get("swpused"), KILOBYTE),
        }
    )


def _disk(sample: dict[str, Any]) -> dict[str, float]:
    io = table(sample.get("io"))
    reads, writes = (table(io.get(name)) for name in ("io-reads", "io-writes"))
    disks = [row for row in _rows(sample.get("disk")) if not str(row.get("disk-device", "")).startswith(("dm-", "md", "loop"))]
    busy = [value for row in disks if (value := _first(row, ("util-percent", 0.01), ("util", 0.01))) is not None]
    return _known(
        {
            "disk_read_bytes_per_s": _sum(disks, ("rd_sec", SECTOR), ("rkB", KILOBYTE))
            if disks
            else _scaled(reads.get("bread"), SECTOR),
            "disk_write_bytes_per_s": _sum(disks, ("wr_sec", SECTOR), ("wkB", KILOBYTE))
            if disks
            else _scaled(writes.get("bwrtn"), SECTOR),
            "disk_busy_ratio": min(1.0, max(busy)) if busy else None,
        }
    )


def _sum(rows: list[dict[str, Any]], *choices: tuple[str, float]) -> float | None:
    parts = [value for row in rows if (value := _first(row, *choices)) is not None]
    return sum(parts) if parts else None


def _interfaces(sample: dict[str, Any], kind: str) -> list[tuple[str, dict[str, Any]]]:
    rows = _rows(table(sample.get("network")).get(kind))
    return [(name, row) for row in rows if isinstance(name := row.get("iface"), str) and name]


def _traffic(sample: dict[str, Any]) -> dict[str, float]:
    own = [row for name, row in _interfaces(sample, "net-dev") if not name.startswith(VIRTUAL_INTERFACES)]
    lost = [row for name, row in _interfaces(sample, "net-edev") if not name.startswith(VIRTUAL_INTERFACES)]
    drops = [value for row in lost for name in ("rxdrop", "txdrop") if (value := number(row.get(name))) is not None]
    return _known(
        {
            "net_rx_bytes_per_s": _sum(own, ("rxkB", KILOBYTE)),
            "net_tx_bytes_per_s": _sum(own, ("txkB", KILOBYTE)),
            "net_drops_per_s": sum(drops) if drops else None,
        }
    )


def _nets(sample: dict[str, Any], ts: float, node: str, interval: float | None, source: str) -> list[Record]:
    traffic, errors = dict(_interfaces(sample, "net-dev")), dict(_interfaces(sample, "net-edev"))
    records: list[Record] = []
    for device in sorted(traffic.keys() | errors.keys()):
        row = errors.get(device, {})
        grown = _known({ours: number(row.get(theirs)) for theirs, ours in _DEV_ERRORS.items()})
        drops = [value for name, value in grown.items() if name.endswith("_dropped")]
        records.append(
            Net(
                ts=ts,
                node=node,
                device=device,
                interval_s=interval,
                rx_bytes_per_s=_scaled(traffic.get(device, {}).get("rxkB"), KILOBYTE),
                tx_bytes_per_s=_scaled(traffic.get(device, {}).get("txkB"), KILOBYTE),
                drops_per_s=sum(drops) if drops else None,
                errors=grown,
                source=source,
            )
        )
    again = number(table(table(sample.get("network")).get("net-etcp")).get("retrans"))
    if again is not None:
        records.append(Net(ts=ts, node=node, device=TCP, interval_s=interval, errors={"retrans_segs": again}, source=source))
    return records


def sniff(head: bytes) -> bool:
    """Whether these first bytes are a document of sadf."""
    start = head.lstrip()[:512]
    return start.startswith(b"{") and b'"sysstat"' in start and b'"hosts"' in head


SADF = ParserRow("host", sniff, Sadf)
