"""Runs calls from files: an operator on the arrays of an .npz file, or calls recorded with TURNOUT_RECORD.

src/runtime/record.h describes the files of a recorded call.
"""

from __future__ import annotations

import inspect
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import turnout
from turnout import _core
from turnout.check.measures import differences

# Types that NumPy lacks. A file stores their bits; the array's name ends in the name of the type.
_STAND_INS = {
    "bf16": "bfloat16",
    "f8_e4m3fn": "float8_e4m3fn",
    "f8_e5m2": "float8_e5m2",
    "f8_e8m0": "float8_e8m0fnu",
}


def read(path: str | Path) -> dict[str, np.ndarray]:
    """Returns the arrays of an .npz file. Raises ValueError if the file cannot be read as one."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if isinstance(file, np.ndarray):
                raise ValueError("it is a single array without a name")
            return dict(file)
    except Exception as error:  # from the file system, zip or NumPy
        raise ValueError(f"{path} cannot be read as .npz: {error}") from None


# -- run -----------------------------------------------------------------------------------------------------


def _argument(name: str, array: np.ndarray) -> tuple[str, Any]:
    """Converts an array to an argument: 0-d arrays become scalars or strings, bits get their own type."""
    stem, _, suffix = name.rpartition(".")
    if suffix in _STAND_INS and stem:
        try:
            import ml_dtypes
        except ImportError:
            raise ValueError(f"{name} has a type that needs the package ml_dtypes") from None
        return stem, array.view(getattr(ml_dtypes, _STAND_INS[suffix]))
    if array.ndim == 0:
        value = array.item()
        return name, value.decode() if isinstance(value, bytes) else value
    return name, array


def _saved(name: str, array: np.ndarray) -> tuple[str, np.ndarray]:
    """Converts a result for saving: the inverse of _argument."""
    for suffix, dtype in _STAND_INS.items():
        if array.dtype.name == dtype:
            return f"{name}.{suffix}", array.view(np.uint16 if suffix == "bf16" else np.uint8)
    return name, array


def run(op: str, source: str | Path, target: str | Path) -> list[str]:
    """Calls turnout.<op> with the named arrays of one file and writes the results to another.

    Results have the names that ``turnout ops`` shows. Arguments that the function modifies are saved as
    results, too. Returns one line per saved array, for display.
    """
    listed = [entry for entry in _core.functions() if entry["op"] == op]
    function: Any = getattr(turnout, op, None)
    if not listed or inspect.isclass(function):
        raise ValueError(f"run: op is {op!r}, expected an operator listed by `turnout ops`")
    arguments = dict(_argument(*item) for item in read(source).items())
    parameters = set(inspect.signature(function).parameters)
    for name in arguments:
        if name not in parameters:
            raise ValueError(
                f"{source} has an array {name!r}, which is not an argument of {op}; `turnout ops` lists them"
            )
    try:
        results = function(**arguments)
    except TypeError as error:
        raise ValueError(str(error)) from None
    results = results if isinstance(results, tuple) else (results,)
    rows = [[row["name"] for row in entry["arguments"] if row["role"] != "in"] for entry in listed]
    names = [[name for name in row if name == "out" or name not in parameters] for row in rows]
    chosen = next((row for row in names if len(row) >= len(results)), [])
    written = {
        name: np.asarray(result) for name, result in zip(chosen, results, strict=False) if result is not None
    }
    written |= {name: arguments[name] for row in rows for name in row if name in arguments and name != "out"}
    saved: dict[str, Any] = dict(_saved(*item) for item in written.items())
    np.savez(target, **saved)
    return [f"{name} {x.dtype}{list(x.shape)}" for name, x in written.items()]


# -- replay --------------------------------------------------------------------------------------------------


@dataclass
class Argument:
    """One argument of a recorded call."""

    dtype: str
    shape: tuple[int, ...]
    before: np.ndarray | None = None  # the elements in row-major order; None if no data was recorded
    after: np.ndarray | None = None
    strides: tuple[int, ...] | None = None

    @classmethod
    def load(
        cls,
        folder: Path,
        name: str,
        dtype: str,
        rank: int,
        shape: list[int],
        strides: list[int] | None = None,
    ) -> Argument:
        before, after = (_array(folder / f"{when}.{name}.npy") for when in ("in", "out"))
        # At most eight extents are recorded, whatever the rank; a call with more dimensions was rejected.
        extents = (*shape, *[1] * (min(rank, 100) - len(shape)))
        return cls(dtype, extents, before, after, None if strides is None else tuple(strides))


def _array(path: Path) -> np.ndarray | None:
    return np.load(path, allow_pickle=False) if path.exists() else None


@dataclass
class RecordedCall:
    op: str
    function: str
    version: str
    isa: str
    error: str = ""
    arguments: dict[str, Argument] = field(default_factory=dict)
    scalars: dict[str, int | list[int]] = field(default_factory=dict)

    @classmethod
    def load(cls, path: str | Path) -> RecordedCall:
        folder = Path(path)
        try:
            fields = json.loads((folder / "call.json").read_text(encoding="utf-8", errors="replace"))
            arguments = {row["name"]: Argument.load(folder, **row) for row in fields.pop("arguments")}
            return cls(**fields, arguments=arguments)
        except Exception as error:  # from the file system, JSON or NumPy
            raise ValueError(f"{path} is not the folder of a recorded call: {error}") from None

    def describe(self) -> str:
        values = [f"{name} {x.dtype}{list(x.shape)}" for name, x in self.arguments.items()]
        values += [f"{name} {value}" for name, value in self.scalars.items()]
        return f"{self.function}({', '.join(values)})"


def _memory(argument: Argument) -> np.ndarray | None:
    """Returns the memory of an argument as it was before the call. Outputs start as the complement of their
    recorded bits, so that elements the call does not write can be recognized."""
    if argument.before is None:
        return None if argument.after is None else _bits(np.array(argument.after, order="C")) ^ 0xFF
    if argument.strides is None or argument.before.size == 0:
        return np.array(argument.before, order="C")
    extent = 1 + sum((n - 1) * abs(s) for n, s in zip(argument.shape, argument.strides, strict=True))
    if min(argument.strides) < 0:
        raise ValueError("a recorded argument has negative strides, which replay does not support")
    memory = np.zeros(extent, argument.before.dtype)
    size = memory.itemsize
    view = np.lib.stride_tricks.as_strided(memory, argument.shape, [size * s for s in argument.strides])
    view[...] = argument.before
    return memory


def _bits(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(array.tobytes(), np.uint8)


@dataclass(frozen=True)
class Replay:
    call: RecordedCall
    seconds: float
    lines: list[str]  # the outcome for each argument
    same: bool | None  # None if the call cannot be replayed


def replay(path: str | Path) -> Replay:
    """Runs a recorded call again and compares its results, or its error, with the recorded ones."""
    call = RecordedCall.load(path)
    signature = next((entry for entry in _core.signatures() if entry["op"] == call.op), None)
    # A binding may reject a call before it reaches an operator.
    if (
        signature is None
        or any(row["name"] not in call.scalars for row in signature["scalars"])
        or (not call.error and _is_step(call, signature))
    ):
        return Replay(call, 0.0, [_reason(call)], None)
    memory = {name: _memory(argument) for name, argument in call.arguments.items()}
    arguments: list[tuple[Any, ...] | None] = []
    for row in signature["arguments"]:
        name, one = row["name"], call.arguments.get(row["name"])
        arguments.append(None if one is None else (memory[name], one.dtype, one.shape, one.strides))
    error, start = "", time.perf_counter()
    try:
        _core.invoke(call.op, arguments, [call.scalars[row["name"]] for row in signature["scalars"]])
    except (ValueError, NotImplementedError, MemoryError, RuntimeError) as raised:
        error = str(raised)
    seconds = time.perf_counter() - start
    if call.error or error:
        return Replay(call, seconds, *_compare_errors(call, error))
    compared = {
        name: _compare(argument, memory[name])
        for name, argument in call.arguments.items()
        if argument.after is not None
    }
    lines = [f"{name}: {text}" for name, (text, _) in compared.items()]
    if not compared:
        lines = ["no results were recorded: the process ended during the call"]
    return Replay(call, seconds, lines, all(same for _, same in compared.values()))


def _is_step(call: RecordedCall, signature: _core.SignatureRow) -> bool:
    """Whether the call is the first of two steps: functions with data-dependent sizes make an index first."""
    return any(not row["optional"] and row["name"] not in call.arguments for row in signature["arguments"])


def _reason(call: RecordedCall) -> str:
    if call.error:
        return f"cannot be replayed, because it was rejected before it reached an operator: {call.error}"
    return "cannot be replayed: it is one step of a call, or needs an object that an earlier call made"


def _compare_errors(call: RecordedCall, error: str) -> tuple[list[str], bool]:
    """Compares messages only if the operator itself was called: other functions rename its arguments."""
    lines = [f"recorded: {call.error or 'no error'}", f"now: {error or 'no error'}"]
    return lines, bool(call.error) == bool(error) and (call.function != call.op or call.error == error)


def _compare(argument: Argument, memory: np.ndarray | None) -> tuple[str, bool]:
    assert memory is not None  # the call wrote to this argument
    recorded = np.ascontiguousarray(argument.after)
    size = max(recorded.itemsize, 1)
    was, now = _bits(recorded).reshape(-1, size), _bits(memory).reshape(-1, size)
    equal = (was == now).all(axis=1)
    kept = np.zeros_like(equal) if argument.before is not None else (was ^ 0xFF == now).all(axis=1)
    wrong = int((~equal & ~kept).sum())
    note = f", {int(kept.sum())} not written" if kept.any() else ""
    if wrong == 0:
        return f"same bits in {len(equal)} elements{note}", True
    text = f"{wrong} of {len(equal)} elements differ{note}"
    if argument.dtype in ("f32", "f64", "f16"):
        values = now.reshape(-1).view(recorded.dtype)[~kept]
        text += f", diff3 {differences(values, recorded.reshape(-1)[~kept]).diff3:.1e}"
    return text, False
