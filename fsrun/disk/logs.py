"""Scalar logs into columns (protocol.md 6, "Scalar lines"; 8, "Reading").

Does: reads the complete lines of a log from byte a up to b, never past the first NUL, in pieces; turns pieces into
columns, by pyarrow where a piece is plain and line by line where it is not (repeated keys, bad lines, tags without
number); skips what is no scalar line and says where.

Leaves to others: how many bytes count and which points count (``core.scalars``), other files.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
from array import array
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from fsrun.core.codec import nests_too_deep
from fsrun.core.scalars import as_step, as_value
from fsrun.disk.fs import FileSystem, require_file

PIECE = 1 << 20
_THREADS = 2
_SMALL = 8 << 10
"""Below this, line by line is faster than setting up pyarrow's reader."""
_SAMPLES = (32, 256)
"""Lines of a piece that are looked at: the first number where all have the same tags, else the second."""
_STACKED = 1 << 20
"""Rows that are made of columns at once."""
_MAX_CELLS = 8 << 20
"""Estimated lines x tags of a piece above which its columns would hold mostly nothing: read line by line."""
_MAX_COLUMNS = 4096
"""Tags of lines that differ above which a column each costs more than reading line by line."""
_BOM = b"\xef\xbb\xbf"
_RESERVED = frozenset({"step", "time", "entry"})
_NESTED = re.compile(rb":[ \t\r]*[\[{]|(?:^|\n)[ \t\r]*\[")
"""Where an array or an object begins that is no line. Pyarrow goes down into these until its stack ends."""
_BRACKETS = (b":[", b" [", b"\n[", b"\t[", b"\r[")
_LOOSE = re.compile(rb"[: \t\r]-?Inf(?!inity)|[: \t\r]-NaN")
"""Words that pyarrow takes for numbers, and no other reader does."""
_BARE = ((b':"NaN"', b":NaN"), (b':"Infinity"', b":Infinity"), (b':"-Infinity"', b":-Infinity"))

_FIXED = [("step", pa.int64()), ("time", pa.float64()), ("entry", pa.string())]

CODES = pa.dictionary(pa.int32(), pa.string())
POINTS = pa.schema(
    [
        ("job", CODES),
        ("tag", CODES),
        ("step", pa.int64()),
        ("time", pa.float64()),
        ("value", pa.float64()),
        ("session", pa.int32()),
        ("entry", CODES),
    ]
)
"""Points in long form. ``entry``: the outcome's key where the point is one of an outcome, else null."""


def read_pieces(fs: FileSystem, path: str, start: int, stop: int | None, size: int = PIECE) -> Iterator[bytes]:
    """Yield the complete lines of a log from byte ``start`` (a line's begin) on, in pieces of about ``size`` bytes.

    Ends at ``stop``, at the first NUL, or at the last newline that is there. Reads through one fresh descriptor; the
    caller has listed the folder just before, which drops what a network client had cached of it. A log that is not
    there, or goes away meanwhile, has no lines (more).
    """
    try:
        descriptor = fs.open(path)
    except FileNotFoundError:
        return
    try:
        require_file(descriptor, path)
        rest: list[bytes] = []
        at = start
        while want := size if stop is None else min(size, stop - at):
            try:
                chunk = os.pread(descriptor, max(want, 0), at)
            except OSError as error:
                if error.errno != errno.ESTALE:
                    raise
                return
            if not chunk:
                return
            at += len(chunk)
            nul = chunk.find(b"\0")
            if nul >= 0:
                chunk = chunk[:nul]
            end = chunk.rfind(b"\n") + 1
            if end:
                yield b"".join((*rest, chunk[:end]))
                rest = [chunk[end:]]
            else:
                rest.append(chunk)
            if nul >= 0:
                return
    finally:
        os.close(descriptor)


def line_numbers(fs: FileSystem, path: str, begins: Sequence[int]) -> list[int]:
    """Numbers, from 1, of the lines that begin at these bytes (rising)."""
    numbers: list[int] = []
    at, lines = 0, 1
    for data in read_pieces(fs, path, 0, None):
        while len(numbers) < len(begins) and begins[len(numbers)] < at + len(data):
            numbers.append(lines + data.count(b"\n", 0, begins[len(numbers)] - at))
        if len(numbers) == len(begins):
            break
        at += len(data)
        lines += data.count(b"\n")
    return numbers


class Names:
    """The first ``most`` tags of some logs, as they come; no more of them are read."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.is_short = False
        """Whether tags were left out."""
        self._known: set[str] = set()

    def admit(self, tag: str) -> bool:
        """Whether a tag is one of them."""
        if tag in self._known:
            return True
        if len(self._known) >= self.most:
            self.is_short = True
            return False
        self._known.add(tag)
        return True


class LogReader:
    """Turns the pieces of one log into tables of ``POINTS``.

    ``names``: which tags are taken of all that there are, where memory has a bound; None for no bound.

    ``tags``: the tags that are wanted, None for all. ``position``: the byte after the last line that was read.
    ``keys``: the outcomes that have a line, whatever tags are wanted. ``faults``: the first ``MAX_FAULTS`` faults, as
    (begin of the line in bytes, reason); ``skipped`` counts all of them.
    """

    MAX_FAULTS = 100

    def __init__(
        self,
        job: str,
        session: int,
        tags: frozenset[str] | None = None,
        start: int = 0,
        names: Names | None = None,
    ) -> None:
        self._names = names
        self.job = job
        self.session = session
        self.tags = tags
        self.position = start
        self.keys: set[str] = set()
        self.faults: list[tuple[int, str]] = []
        self.skipped = 0

    def read(self, pieces: Iterable[bytes]) -> Iterator[pa.Table]:
        """Read pieces of complete lines that follow those read before; several at once, in their order."""
        waiting: deque[tuple[bytes, Future[pa.Table | None]]] = deque()
        with ThreadPoolExecutor(_THREADS) as pool:
            for data in pieces:
                waiting.append((data, self._begin(pool, data)))
                if len(waiting) > _THREADS:
                    yield from self._take(*waiting.popleft())
            while waiting:
                yield from self._take(*waiting.popleft())

    def _begin(self, pool: ThreadPoolExecutor, data: bytes) -> Future[pa.Table | None]:
        """Read a piece in the pool; here where it is small, or the interpreter shuts down (compaction at exit)."""
        if len(data) >= _SMALL:
            try:
                return pool.submit(self._wide, data)
            except RuntimeError:
                pass
        done: Future[pa.Table | None] = Future()
        done.set_result(self._wide(data))
        return done

    def feed(self, data: bytes) -> list[pa.Table]:
        """Read complete lines that follow those read before."""
        wide: Future[pa.Table | None] = Future()
        wide.set_result(self._wide(data))
        return self._take(data, wide)

    def _take(self, data: bytes, wide: Future[pa.Table | None]) -> list[pa.Table]:
        start, self.position = self.position, self.position + len(data)
        table = wide.result()
        return self._lines(data, start) if table is None else self._long(table)

    def _wide(self, data: bytes) -> pa.Table | None:
        """A piece with a column a tag, or None where it has to be judged line by line."""
        names = self._dense_tags(data) if len(data) >= _SMALL else None
        return None if names is None else self._columns(data, names)

    def _dense_tags(self, data: bytes) -> list[str] | None:
        """Tags of the piece, from a sample of its lines; None where columns would hold mostly nothing."""
        seen: Counter[str] = Counter()
        shapes: set[tuple[str, ...]] = set()
        begins: set[int] = set()
        count = 0
        few, many = _SAMPLES
        for i in range(many):
            if i == few and len(shapes) == 1:
                break
            # The first ``few`` samples are spread over the whole piece too: bits of i reversed would do, a stride does.
            at = (i * 97 % many) * len(data) // many
            begin = data.rfind(b"\n", max(0, at - PIECE), at) + 1
            end = data.find(b"\n", begin, begin + PIECE)
            if end < 0 or (begin == 0 and at > PIECE):
                return None  # a line longer than a piece: every sample of it would cost as much as reading it
            if begin in begins:
                continue
            begins.add(begin)
            try:
                line = orjson.loads(data[begin:end])
            except ValueError:
                continue
            if isinstance(line, dict):
                count += 1
                shapes.add(tuple(line))
                seen.update(line.keys())
        if self.tags is not None:
            return sorted(self.tags)
        lines = data.count(b"\n")
        # Good and Turing: the share of tags seen once estimates how often a line brings one that was never seen.
        once = sum(n == 1 for n in seen.values())
        if count == 0 or lines * (len(seen) + once * lines / count) > _MAX_CELLS:
            return None
        if len(shapes) > 1 and len(seen) > _MAX_COLUMNS:
            return None
        return [tag for tag in seen if tag not in _RESERVED]

    def _columns(self, data: bytes, names: list[str]) -> pa.Table | None:
        if _is_odd(data):
            return None
        options = pj.ParseOptions(
            explicit_schema=pa.schema(_FIXED + [(tag, pa.float64()) for tag in names]),
            unexpected_field_behavior="infer" if self.tags is None else "ignore",
        )
        block = pj.ReadOptions(use_threads=False, block_size=len(data) + 1)
        table = None
        try:
            if not data.isascii():
                data.decode()
            try:
                table = pj.read_json(pa.BufferReader(data), read_options=block, parse_options=options)
            except pa.ArrowInvalid:
                # A quote right after a colon can only open a value: these words are safe to replace.
                bare = data
                for word, replacement in _BARE:
                    bare = bare.replace(word, replacement)
                if len(bare) == len(data):
                    return None
                table = pj.read_json(pa.BufferReader(bare), read_options=block, parse_options=options)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        plain = all(_is_number(f.type) for f in table.schema if f.name != "entry")
        whole = table.num_rows == data.count(b"\n") and table["step"].null_count == 0
        return table if plain and whole else None

    def _long(self, wide: pa.Table) -> list[pa.Table]:
        wide = wide.combine_chunks()
        rows = wide.num_rows
        time = without_nan(wide["time"])
        entry = wide["entry"]
        if entry.null_count == rows:
            entry = _constants(rows)[1]
        else:
            entry = entry.chunk(0).dictionary_encode().cast(CODES)
            self.keys.update(k for k in wide["entry"].unique().to_pylist() if k is not None)
        names = [n for n in wide.column_names if n not in _RESERVED and wide[n].null_count < rows]
        if self._names is not None:
            names = list(filter(self._names.admit, names))
        at_once = max(1, _STACKED // rows)
        return [self._stack(wide, names[i : i + at_once], time, entry) for i in range(0, len(names), at_once)]

    def _stack(self, wide: pa.Table, names: list[str], time: pa.Array, entry: pa.Array) -> pa.Table:
        """The columns of some tags, one below the other."""
        count, rows = len(names), wide.num_rows
        value = _below([wide[name].cast(pa.float64(), safe=False) for name in names])
        columns = [wide["step"], time, value, entry]
        columns = [column if column is value else _below([column] * count) for column in columns]
        ends = pa.array(range(rows, rows * count + 1, rows), pa.int32())
        codes = pc.run_end_decode(pa.RunEndEncodedArray.from_arrays(ends, pa.array(range(count), pa.int32())))
        if value.null_count:
            there = value.is_valid()
            *columns, codes = (column.filter(there) for column in (*columns, codes))
        tag = pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()))
        step, time, value, entry = columns
        sessions = pa.repeat(pa.scalar(self.session, pa.int32()), len(step))
        job = constant(self.job, len(step))
        return pa.table([job, tag, step, time, value, sessions, entry], schema=POINTS)

    def _lines(self, data: bytes, start: int) -> list[pa.Table]:
        """Read a piece line by line."""
        if start == 0 and data.startswith(_BOM):
            data, start = data[len(_BOM) :], len(_BOM)
        codes: dict[str, int] = {}
        keys: dict[str, int] = {}
        tag_at, entry_at = array("i"), array("i")
        steps, times, values = array("q"), array("d"), array("d")
        for line in data.split(b"\n"):
            begin, start = start, start + len(line) + 1
            if not line.strip(b" \t\r"):
                continue
            found = self._line(line, begin)
            if found is None:
                continue
            step, time, entry, numbers = found
            key = -1 if entry is None else keys.setdefault(entry, len(keys))
            for tag, value in numbers:
                tag_at.append(codes.setdefault(tag, len(codes)))
                steps.append(step)
                times.append(time)
                values.append(value)
                entry_at.append(key)
        self.keys.update(keys)
        if not steps:
            return []
        entry = _ints(entry_at)
        entry = pc.if_else(pc.less(entry, 0), pa.scalar(None, pa.int32()), entry)
        rows = len(steps)
        return [
            pa.table(
                [
                    constant(self.job, rows),
                    pa.DictionaryArray.from_arrays(_ints(tag_at), pa.array(codes, pa.string())),
                    pa.Array.from_buffers(pa.int64(), rows, [None, pa.py_buffer(steps)]),
                    without_nan(_floats(times)),
                    _floats(values),
                    pa.repeat(pa.scalar(self.session, pa.int32()), rows),
                    pa.DictionaryArray.from_arrays(entry, pa.array(keys, pa.string())),
                ],
                schema=POINTS,
            )
        ]

    def _line(self, line: bytes, begin: int) -> tuple[int, float, str | None, list[tuple[str, float]]] | None:
        """Step, time (NaN: none), outcome key and numbers of one line, or None for a line that is none."""
        try:
            record = load_line(line)
        except ValueError as error:
            self._fault(begin, f"no JSON: {error}")
            return None
        step = as_step(record.get("step")) if isinstance(record, dict) else None
        entry = None if step is None else record.get("entry")
        if step is None or not (entry is None or isinstance(entry, str)):
            self._fault(begin, _why(record))
            return None
        time = record.get("time")
        if isinstance(time, bool) or not isinstance(time, int | float):
            time = math.nan
        numbers = []
        for tag, value in record.items():
            if tag in _RESERVED or value is None or (self.tags is not None and tag not in self.tags):
                continue
            if self._names is not None and not self._names.admit(tag):
                continue
            number = as_value(value)
            if number is None:
                self._fault(begin, f"{tag[:60]!r} is no number: {_shown(value)}")
            else:
                numbers.append((tag, number))
        if entry is not None:
            self.keys.add(entry)
        return step, as_value(time) or 0.0, entry, numbers

    def _fault(self, begin: int, reason: str) -> None:
        self.skipped += 1
        if len(self.faults) < self.MAX_FAULTS:
            self.faults.append((begin, reason))


def _why(record: Any) -> str:
    """What is wrong with a line that is JSON."""
    if not isinstance(record, dict):
        return "no JSON object"
    if as_step(record.get("step")) is None:
        return f"the step is no whole number of 64 bits: {_shown(record['step'])}" if "step" in record else "no step"
    return f"the entry is no text: {_shown(record['entry'])}"


def load_line(line: bytes) -> Any:
    """One line of JSON; beyond the standard, as pyarrow: bare NaN and infinities, and numbers past the floats.

    Raises ``ValueError`` for what does not parse.
    """
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        try:
            value = json.loads(line.decode(), parse_int=_whole)
            # Half of a surrogate pair is text to Python's json, and to nobody else.
            json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError):
            raise ValueError(error.msg) from None
    if nests_too_deep(line, value):
        raise ValueError("nested too deep")
    return value


def _whole(digits: str) -> int | float:
    """An integer: exact where it may be one of 64 bits; int() takes no more than some thousand digits."""
    return int(digits) if len(digits) <= 20 else float(digits)


def _shown(value: object) -> str:
    """The begin of a value in a message; what holds others is named by its kind, since it may be of any size."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "an array"
    return repr(value[:40] if isinstance(value, str) else value)[:40]


def _is_odd(data: bytes) -> bool:
    """Whether a piece holds what pyarrow reads otherwise than line by line, or must not be given at all."""
    if data.startswith(_BOM):
        return True
    brackets = b"[" in data and (data.startswith(b"[") or any(sign in data for sign in _BRACKETS))
    braces = data.count(b"{") - data.count(b"\n{") > data.startswith(b"{")
    if (brackets or braces) and _NESTED.search(data) is not None:
        return True
    return (b"Inf" in data or b"-NaN" in data) and _LOOSE.search(data) is not None


def without_nan(column: Any) -> Any:
    """The column with null for NaN: a line without a time has none."""
    absent = pc.is_nan(column)
    return pc.if_else(absent, pa.scalar(None, pa.float64()), column) if pc.any(absent).as_py() else column


def _below(columns: list[Any]) -> Any:
    """Columns one below the other, each of one chunk."""
    arrays = [column.chunk(0) if isinstance(column, pa.ChunkedArray) else column for column in columns]
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind))


def _ints(numbers: array[int]) -> pa.Array:
    return pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])


def _floats(numbers: array[float]) -> pa.Array:
    return pa.Array.from_buffers(pa.float64(), len(numbers), [None, pa.py_buffer(numbers)])


def _constants(rows: int) -> tuple[pa.Array, pa.Array]:
    """``rows`` zeros and ``rows`` missing entries, of memory that all tables share."""
    global _shared
    shared = _shared
    if len(shared[0]) < rows:
        shared = _shared = pa.repeat(pa.scalar(0, pa.int32()), rows), pa.nulls(rows, CODES)
    return shared[0][:rows], shared[1][:rows]


_shared = pa.array([], pa.int32()), pa.nulls(0, CODES)


def constant(text: str, rows: int) -> pa.Array:
    """A dictionary column that holds one text."""
    return pa.DictionaryArray.from_arrays(_constants(rows)[0], pa.array([text], pa.string()))
