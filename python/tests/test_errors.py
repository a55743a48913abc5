"""Error messages of moe_dispatch_forward; a rejected call writes nothing."""

import ml_dtypes
import numpy as np
import pytest
from conftest import dispatch_arguments
from test_moe_dispatch import Producer

import turnout

NAMES = ("gates", "indices", "locations", "input", "capacity", "num_experts", "out")


def broken_call(rng, **changes):
    """Returns the message of a call with some arguments replaced; `out` must be unchanged."""
    arguments = dict(zip(NAMES, dispatch_arguments(rng), strict=False))
    arguments["out"] = np.full((15, 17), 5, np.float32)
    arguments.update({name: change(arguments) for name, change in changes.items()})
    out = arguments["out"]
    before = out.tobytes() if isinstance(out, np.ndarray) else None
    with pytest.raises((ValueError, TypeError, NotImplementedError, MemoryError)) as caught:
        turnout.moe_dispatch_forward(**arguments)
    if before is not None:
        assert out.tobytes() == before
    op, _, message = str(caught.value).partition(": ")
    assert op == "moe_dispatch_forward"
    return caught.type, message


def unaligned(array):
    memory = np.empty(array.nbytes + 1, np.uint8)
    view = memory[1:].view(array.dtype).reshape(array.shape)
    view[:] = array
    return view


def read_only(array):
    array.flags.writeable = False
    return array


def swapped(array):
    return array.astype(array.dtype.newbyteorder())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gates": lambda a: a["gates"][:5]}, "gates.shape[0] is 5, expected 23 = indices.shape[0]"),
        (
            {"gates": lambda a: np.ones((1, 2, 23), np.float32)},
            "gates has 3 dimensions, expected [choices?, samples]",
        ),
        (
            {"gates": lambda a: np.ones((1,) * 12, np.float32)},
            "gates has 12 dimensions, expected [choices?, samples]",
        ),
        (
            {"gates": lambda a: a["gates"].astype(np.float16)},
            "gates has dtype float16, expected that of input, or float32",
        ),
        (
            {"indices": lambda a: a["indices"].astype(np.int16)},
            "indices has dtype int16, expected int32, int64",
        ),
        (
            {"input": lambda a: a["input"].astype(np.complex64)},
            "input has dtype complex64, expected float32, float64, float16, bfloat16",
        ),
        (
            {"input": lambda a: a["input"].astype(object)},
            "input has dtype object, expected float32, float64, float16, bfloat16",
        ),
        (
            {"input": lambda a: a["input"].astype(np.longdouble)},
            "input has dtype float128, expected float32, float64, float16, bfloat16",
        ),
        (
            {"input": lambda a: a["input"].astype(ml_dtypes.float8_e5m2)},
            "input has dtype float8_e5m2, expected float32, float64, float16, bfloat16",
        ),
        (
            {"input": lambda a: a["input"].astype(ml_dtypes.float8_e3m4)},
            "input has dtype float8_e3m4, expected float32, float64, float16, bfloat16",
        ),
        ({"capacity": lambda a: -1}, "capacity is -1, expected 0 or more"),
        ({"capacity": lambda a: 6}, "out.shape[0] is 15, expected 18 = num_experts * capacity"),
        ({"capacity": lambda a: 2**64}, "capacity is 18446744073709551616, expected an integer of 64 bits"),
        ({"out": lambda a: a["out"][:, :4].copy()}, "out.shape[1] is 4, expected 17 = input.shape[1]"),
        ({"out": lambda a: a["out"].astype(np.float64)}, "out has dtype float64, expected that of input"),
        (
            {"out": lambda a: read_only(a["out"])},
            "out is read-only, expected memory that can be written to",
        ),
        (
            {"out": lambda a: Producer(read_only(a["out"]))},
            "out is read-only, expected memory that can be written to",
        ),
        (
            {"out": lambda a: np.zeros((17, 15), np.float32).T},
            "out is strided, expected contiguous row-major memory for shape [15, 17]: it is written in "
            "place, and not by way of a copy",
        ),
        (
            {"out": lambda a: unaligned(a["out"])},
            "out.data is not aligned to its element size, expected contiguous row-major memory for shape "
            "[15, 17]: it is written in place, and not by way of a copy",
        ),
        (
            {"gates": lambda a: swapped(a["gates"])},
            "gates has the byte order of another kind of machine, expected this machine's; pass "
            "gates.astype(gates.dtype.newbyteorder('='))",
        ),
    ],
)
def test_messages(rng, changes, message):
    assert broken_call(rng, **changes) == (ValueError, message)


def test_transposed_routing(rng):
    """[samples, choices], as topk over experts returns it."""
    gates, indices, locations, tokens, *sizes = dispatch_arguments(rng, choices=2)
    ending = "with samples = 23: its dimensions are the other way round, transpose it"
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(gates.T, indices.T, locations.T, tokens, *sizes)
    assert str(caught.value) == (
        f"moe_dispatch_forward: gates has shape [23, 2], expected [choices?, samples] {ending}"
    )
    with pytest.raises(ValueError) as caught:
        turnout.moe_dispatch_forward(gates, indices.T, locations, tokens, *sizes)
    assert str(caught.value) == (
        "moe_dispatch_forward: indices has shape [23, 2], expected [choices?, samples] with choices = 2: "
        "its dimensions are the other way round, transpose it"
    )


@pytest.mark.parametrize("name", ["gates", "indices", "locations", "input"])
def test_the_deviating_argument_is_named(rng, name):
    other = "indices" if name == "gates" else "gates"
    message = f"{name}.shape[0] is 5, expected 23 = {other}.shape[0]"
    assert broken_call(rng, **{name: lambda a: a[name][:5]}) == (ValueError, message)


def test_overlap(rng):
    memory = np.ones((15, 17), np.float32)
    same = np.zeros(15, np.int32)
    with pytest.raises(ValueError, match="out overlaps gates in memory, expected separate buffers"):
        turnout.moe_dispatch_forward(memory.ravel()[:15], same, same, memory.copy(), 5, 3, out=memory)
    assert (memory == 1).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"gates": lambda a: None},
            "gates is of type NoneType, expected an array of NumPy or one with __dlpack__",
        ),
        (
            {"indices": lambda a: a["indices"].tolist()},
            "indices is of type list, expected an array of NumPy or one with __dlpack__",
        ),
        (
            {"out": lambda a: "here"},
            "out is of type str, expected an array of NumPy or one with __dlpack__",
        ),
        ({"capacity": lambda a: 5.0}, "capacity is of type float, expected an integer"),
    ],
)
def test_wrong_types(rng, changes, message):
    assert broken_call(rng, **changes) == (TypeError, message)


def test_result_beyond_memory(rng):
    kind, message = broken_call(rng, out=lambda a: None, capacity=lambda a: 2**50)
    assert (kind, message) == (
        MemoryError,
        f"the result needs {2**50 * 3 * 17 * 4} bytes, which are not available",
    )
    kind, message = broken_call(rng, out=lambda a: None, capacity=lambda a: 2**62)
    assert (kind, message) == (MemoryError, "the result is larger than the address space")


def test_producer_that_fails(rng):
    class Failing:
        def __dlpack__(self, **options):
            raise BufferError("not today")

    assert broken_call(rng, input=lambda a: Failing()) == (
        ValueError,
        "input does not give access to its memory: not today",
    )


def test_producer_of_something_else(rng):
    class Strange:
        def __dlpack__(self, **options):
            return 3

    assert broken_call(rng, input=lambda a: Strange()) == (
        ValueError,
        "input.__dlpack__() returned something else than a DLPack capsule",
    )


def test_threads_out_of_range():
    with pytest.raises(ValueError, match=r"^set_num_threads: threads is -1, expected 0 \.\. 1024$"):
        turnout.set_num_threads(-1)
