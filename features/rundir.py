"""Reads an archived run: finds what is readable in a directory (or one file), parses it, and says what it could not use."""

from __future__ import annotations

import gzip
import hashlib
import io
import stat
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from features.clock import align
from features.errors import SettingsError, UnreadableRun
from features.notices import Notices
from features.optrace import OpTable
from features.parsers import PARSERS, parsers_for
from features.parsers.protocol import ParserRow
from features.parsers.steptable_map import StepMap
from features.records import Record, RunInfo, Step
from features.snapshots import join_snapshots
from features.windows import order_key

CHUNK_BYTES = 1 << 20
SNIFF_BYTES = 1 << 16
GZIP_MAGIC = b"\x1f\x8b"
NEVER_READ = frozenset({"truth.json"})
"""Labels of recorded runs. Detection must not see them, whatever a parser could make of them."""
DEEPEST = 3
"""Folders below the run's own that are looked into."""


class SourceFile(msgspec.Struct):
    """One readable file: its name below the run, what it is, its checksum and its records in file order."""

    name: str
    kind: str
    sha256: str
    records: list[Record]
    absolute: bool = True  # False: its times do not start at the epoch
    ops: OpTable | None = None  # the operations of a trace, which say more than the records made of them


class RunData(msgspec.Struct):
    """Everything read from one run; `records` are in event order on one UTC clock."""

    id: str
    path: str
    files: list[SourceFile]
    records: list[Record]
    notices: Notices

    @property
    def sources(self) -> list[str]:
        """Kinds of source that were readable, in a fixed order."""
        return sorted({f.kind for f in self.files})


Progress = Callable[[str], None]


def load_run(path: Path, progress: Progress = lambda _: None, step_map: StepMap | None = None) -> RunData:
    """Read a run directory, or a single file as a run of its own. `step_map` says what the columns of its tables are.

    Raises UnreadableRun where nothing in it can be used, SettingsError where no table has the map's columns; whatever else is
    wrong becomes a counted notice.
    """
    notices = Notices()
    root = root_of(path)
    rows = parsers_for(step_map)
    found = [f for p in candidates(path) if (f := read_source(p, root, notices, progress, rows)) is not None]
    files = _without_copies(found, notices)
    if step_map is not None and all(f.kind != "table" for f in files):
        raise SettingsError(
            "--map",
            expected=f"a CSV, JSON-lines or Parquet table with a column of {step_map}",
            found=f"none in {printable(path)}",
            remedy="name the table's own columns, as in --map rank=worker,duration_s=batch_time",
        )
    if not files:
        raise UnreadableRun(
            printable(path),
            expected="a Horovod timeline, training or launcher logs, or telemetry",
            found=_what_is_there(path, notices),
            remedy="point at the directory a run wrote, or at one of its files; see docs/inputs.md for what is read",
        )
    join_snapshots(files, notices)
    align(files, notices)
    name = printable(Path(path.resolve().name))
    return RunData(id=name, path=printable(path), files=files, records=merge_records(files), notices=notices)


def merge_records(files: list[SourceFile]) -> list[Record]:
    """The records of these files, each event once, in event order."""
    return sorted(_without_repeats(files), key=order_key)


def _without_copies(files: list[SourceFile], notices: Notices) -> list[SourceFile]:
    """Each timeline and telemetry file once. Logs may be alike: the rank, or the order, is then in their names."""
    first: dict[str, str] = {}
    kept = []
    for f in files:
        if f.kind in ("timeline", "telemetry") and first.setdefault(f.sha256, f.name) != f.name:
            notices.add("info", f"copy of {first[f.sha256]}: read once", file=f.name)
        else:
            kept.append(f)
    return kept


def root_of(path: Path) -> Path:
    """The directory below which files are named. Raises UnreadableRun where there is nothing at `path`."""
    try:
        return path if stat.S_ISDIR(path.stat().st_mode) else path.parent
    except OSError as error:
        found = "nothing" if isinstance(error, FileNotFoundError) else str(error.strerror)
        raise UnreadableRun(
            printable(path), expected="a run directory or a file", found=found, remedy="check the path"
        ) from error


def candidates(path: Path) -> Iterator[Path]:
    """Files that may belong to a run, in order of name; raises UnreadableRun where there is nothing at all."""
    if path.is_file():
        yield from () if path.name in NEVER_READ else (path,)
        return
    found = [
        p
        for p in path.rglob("*")
        if _is_file(p) and p.name not in NEVER_READ and len(p.relative_to(path).parts) <= DEEPEST + 1
        if not any(part.startswith(".") for part in p.relative_to(path).parts)
    ]
    yield from sorted(found, key=lambda p: p.relative_to(path).as_posix())


def _is_file(path: Path) -> bool:
    """A regular file, or what cannot be told (a link to nothing): opening that one fails, and says so in a notice."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return True


def printable(path: Path) -> str:
    """A path as text that can be written anywhere: names of files need not be UTF-8."""
    return path.as_posix().encode("utf-8", "backslashreplace").decode()


def read_source(
    path: Path, root: Path, notices: Notices, progress: Progress, rows: tuple[ParserRow, ...] = PARSERS
) -> SourceFile | None:
    """One file with its records; None, and a notice that says why, where it cannot be used."""
    name = printable(path.relative_to(root))
    try:
        with opened(path) as stream:
            return _parse(stream, name, notices, progress, rows)
    except OSError as error:
        notices.add("error", f"cannot be opened: {error.strerror or type(error).__name__}", file=name)
        return None


def opened(path: Path) -> io.BufferedIOBase:
    """The file's bytes, unpacked where it is a gzip whatever its name says."""
    raw = path.open("rb")
    if raw.read(2) == GZIP_MAGIC:
        raw.close()
        return gzip.open(path, "rb")
    raw.seek(0)
    return raw


def _parse(
    stream: io.BufferedIOBase, name: str, notices: Notices, progress: Progress, rows: tuple[ParserRow, ...]
) -> SourceFile | None:
    chunks = chunks_of(stream, name, notices)
    head = next(chunks, b"")
    row = recognise(head, rows)
    if row is None:
        notices.add("warning", "empty file" if not head else "not a format that is read here", file=name)
        return None
    parser, digest, records = row.make(name, notices), hashlib.sha256(), []
    while head:
        digest.update(head)
        records += parser.feed(head)
        progress(name)
        head = next(chunks, b"")
    records += parser.finish()
    absolute = bool(getattr(parser, "absolute", True))
    ops = getattr(parser, "ops", None)
    return SourceFile(name=name, kind=row.kind, sha256=digest.hexdigest(), records=records, absolute=absolute, ops=ops)


def recognise(head: bytes, rows: tuple[ParserRow, ...] = PARSERS) -> ParserRow | None:
    """The first row that knows these first bytes; None for none."""
    return next((row for row in rows if head and row.sniff(head[:SNIFF_BYTES])), None)


def chunks_of(stream: io.BufferedIOBase, name: str, notices: Notices) -> Iterator[bytes]:
    """Chunks until the end, or until a damaged archive gives no more."""
    chunk = bytearray()
    while True:
        try:
            piece = stream.read1(CHUNK_BYTES)  # read() of a cut archive would keep back what it had before the cut
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            text = "compressed file is cut or damaged; what came before is used"
            notices.add("warning", f"{text} ({type(error).__name__})", file=name)
            piece = b""
        chunk += piece
        if chunk and (not piece or len(chunk) >= CHUNK_BYTES):
            yield bytes(chunk)
            chunk.clear()
        if not piece:
            return


def _what_is_there(path: Path, notices: Notices) -> str:
    told = "; ".join(f"{n.source}: {n.text}" for n in notices.items()[:3])
    return told or ("an empty directory" if path.is_dir() else "nothing readable")


def _without_repeats(files: list[SourceFile]) -> Iterator[Record]:
    """All records once: launchers repeat the lines that ranks also write to files of their own."""
    seen: set[object] = set()
    for record in (r for f in files for r in f.records):
        key = _identity(record)
        if key is not None:
            if key in seen:
                continue
            seen.add(key)
        yield record


def _identity(record: Record) -> object:
    """Equal for records that are the same event told twice; None where repeats cannot happen."""
    if isinstance(record, Step):
        return ("step", record.rank, record.step, record.ts)
    if isinstance(record, RunInfo):
        return None
    if hasattr(record, "rank") and type(record).__name__ in ("Phase", "Log"):
        return msgspec.json.encode(msgspec.structs.replace(record, source=""))
    return None
