"""out= and error messages of get_indice_pairs; a rejected call writes nothing."""

import numpy as np
import pytest
from conftest import same_bits

import turnout
from turnout import check

NAMES = "out_indices, indice_pairs, indice_num"


def arguments_and_out():
    """Returns arguments of a call with 5 outputs, and arrays for its results."""
    return {
        "indices": np.array([[0, 1, 1], [1, 0, 3], [0, 0, 2]], np.int32),
        "batch_size": 2,
        "spatial_shape": (3, 4),
        "kernel_size": (1, 3),
        "out": (
            np.full((5, 3), 77, np.int32),
            np.full((3, 2, 3), 77, np.int32),
            np.full(3, 77, np.int32),
        ),
    }


def expected_results():
    arguments = arguments_and_out()
    del arguments["out"]
    return check.get_indice_pairs(**arguments)


def test_out():
    expected = expected_results()
    assert expected[0].shape == (5, 3)
    for used in [(True,) * 3, *np.eye(3, dtype=bool)]:
        arguments = arguments_and_out()
        out = tuple(o if use else None for o, use in zip(arguments["out"], used, strict=True))
        results = turnout.get_indice_pairs(**{**arguments, "out": out})
        for actual, wanted, o in zip(results, expected, out, strict=True):
            assert o is None or actual is o
            assert same_bits(actual, wanted)


def test_out_with_more_room():
    arguments = arguments_and_out()
    roomy = np.full((9, 3), 77, np.int32)
    results = turnout.get_indice_pairs(**{**arguments, "out": (roomy, None, None)})
    assert results[0] is roomy
    assert same_bits(roomy[:5], expected_results()[0])
    assert (roomy[5:] == -1).all()


def refusal(arguments, untouched, kind=ValueError):
    """Returns the message of a rejected call, which must not change the arrays in `untouched`."""
    before = [a.tobytes() for a in untouched]
    with pytest.raises(kind) as caught:
        turnout.get_indice_pairs(**arguments)
    assert [a.tobytes() for a in untouched] == before
    op, _, message = str(caught.value).partition(": ")
    assert op == "get_indice_pairs"
    return message


def with_entry(tensors, i, value):
    return (*tensors[:i], value, *tensors[i + 1 :])


def read_only(array):
    array.flags.writeable = False
    return array


def out_of(i, value):
    return lambda a: with_entry(a["out"], i, value(a["out"][i]))


def site(row, column, value, dtype=np.int32):
    def change(arguments):
        indices = arguments["indices"].astype(dtype)
        indices[row, column] = value
        return indices

    return change


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"indices": site(1, 0, 2)}, "indices[1, 0] is 2, expected 0 .. 1"),
        ({"indices": site(2, 0, -1)}, "indices[2, 0] is -1, expected 0 .. 1"),
        ({"indices": site(0, 1, 3)}, "indices[0, 1] is 3, expected 0 .. 2"),
        ({"indices": site(2, 2, -(2**31))}, "indices[2, 2] is -2147483648, expected 0 .. 3"),
        (
            {"indices": site(2, 2, 2**32, np.int64), "out": lambda a: None},
            "indices[2, 2] is 4294967296, expected 0 .. 3",
        ),
        ({"indices": lambda a: a["indices"][0]}, "indices has 1 dimensions, expected [rows, dims + 1]"),
        (
            {"indices": lambda a: np.zeros((3, 6), np.int32)},
            "spatial_shape has 2 elements, expected 5 = indices.shape[1] - 1",
        ),
        (
            {"indices": lambda a: np.zeros((3, 6), np.int32), "spatial_shape": (3,) * 5, "kernel_size": 1},
            "indices.shape[1] is 6, expected at most 5",
        ),
        (
            {"indices": lambda a: np.zeros((3, 1), np.int32), "spatial_shape": (), "kernel_size": 3},
            "indices.shape[1] is 1, expected 2 or more",
        ),
        (
            {"indices": lambda a: a["indices"].astype(np.int16)},
            "indices has dtype int16, expected int32, int64",
        ),
        ({"batch_size": 0}, "batch_size is 0, expected 1 .. 2147483647"),
        ({"spatial_shape": (3, 4, 5)}, "spatial_shape has 3 elements, expected 2 = indices.shape[1] - 1"),
        ({"spatial_shape": ()}, "spatial_shape has 0 elements, expected 2 = indices.shape[1] - 1"),
        ({"spatial_shape": (3, 0)}, "spatial_shape[1] is 0, expected 1 .. 2147483647"),
        ({"kernel_size": (3,)}, "kernel_size has 1 elements, expected 2 = indices.shape[1] - 1"),
        ({"kernel_size": -2}, "kernel_size[0] is -2, expected -1 .. 2147483647"),
        ({"stride": (1, 2, 1)}, "stride has 3 elements, expected 2 = indices.shape[1] - 1"),
        ({"stride": ()}, "stride has 0 elements, expected 2 = indices.shape[1] - 1"),
        ({"stride": (1, 0)}, "stride[1] is 0, expected 1 .. 2147483647"),
        ({"stride": 2**64}, "stride is 18446744073709551616, expected an integer of 64 bits"),
        ({"padding": -1}, "padding[0] is -1, expected 0 .. 2147483647"),
        ({"dilation": (1, 0)}, "dilation[1] is 0, expected 1 .. 2147483647"),
        ({"output_padding": (0, -1)}, "output_padding[1] is -1, expected 0 or more"),
        ({"kernel_size": (1, 9)}, "output_shape[1] is -4, expected 1 .. 2147483647"),
        (
            {"subm": True, "kernel_size": (3, 2)},
            "kernel_size[1] is 2, expected an odd number in submanifold mode",
        ),
        (
            {"subm": True, "kernel_size": -1},
            "kernel_size[0] is -1, expected an odd number in submanifold mode",
        ),
        ({"subm": True, "stride": (1, 2)}, "stride[1] is 2, expected 1 in submanifold mode"),
        (
            {"transpose": True, "kernel_size": (3, -1)},
            "kernel_size[1] is -1, expected 1 or more in transposed mode",
        ),
        ({"subm": True, "transpose": True}, "subm and transpose are both True, expected at most one of them"),
        ({"subm": 2}, "subm is 2, expected True or False"),
        (
            {"out": out_of(0, lambda o: o[:4])},
            "out_indices.shape[0] is 4, expected at least 5 = num_act_out",
        ),
        (
            {"out": out_of(0, lambda o: o.astype(np.int64))},
            "out_indices has dtype int64, expected that of indices",
        ),
        (
            {"out": out_of(0, lambda o: o[:, :2].copy())},
            "out_indices.shape[1] is 2, expected 3 = indices.shape[1]",
        ),
        ({"out": out_of(0, read_only)}, "out_indices is read-only, expected memory that can be written to"),
        (
            {"out": out_of(1, lambda o: o[:2])},
            "indice_pairs.shape[0] is 2, expected 3 = kernel_volume",
        ),
        ({"out": out_of(1, lambda o: o[:, :1].copy())}, "indice_pairs.shape[1] is 1, expected 2"),
        (
            {"out": out_of(1, lambda o: o[:, :, :2].copy())},
            "indice_pairs.shape[2] is 2, expected 3 = indices.shape[0]",
        ),
        ({"out": out_of(2, lambda o: o.astype(np.int64))}, "indice_num has dtype int64, expected int32"),
        (
            {"out": out_of(2, lambda o: np.zeros(6, np.int32)[::2])},
            "indice_num is strided, expected contiguous row-major memory for shape [3]: it is written in "
            "place, and not by way of a copy",
        ),
        (
            {"out": lambda a: with_entry(a["out"], 2, a["out"][1][0, 0])},
            "indice_pairs overlaps indice_num in memory, expected separate buffers",
        ),
        ({"out": lambda a: a["out"][:2]}, f"out has 2 entries, expected a tuple of {NAMES}; None allocates"),
    ],
)
def test_messages(changes, message):
    arguments = arguments_and_out()
    out = arguments["out"]
    arguments.update({n: change(arguments) if callable(change) else change for n, change in changes.items()})
    everything = (*out, *(arguments["out"] or ()), arguments["indices"])
    assert refusal(arguments, everything) == message


def test_result_beyond_memory():
    """Rejected before the computation, which would take hours."""
    arguments = {"indices": np.zeros((10**6, 4), np.int32), "batch_size": 1, "spatial_shape": (255, 256, 256)}
    message = refusal({**arguments, "kernel_size": -1}, (), MemoryError)
    assert message == f"indice_pairs needs {255 * 256 * 256 * 2 * 10**6 * 4} bytes, which are not available"


def test_overlap_with_indices():
    arguments = arguments_and_out()
    arguments.update(subm=True, out=(arguments["indices"], None, None))
    message = refusal(arguments, [arguments["indices"]])
    assert message == "out_indices overlaps indices in memory, expected separate buffers"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"indices": [[0, 1, 1]]},
            "indices is of type list, expected an array of NumPy or one with __dlpack__",
        ),
        ({"batch_size": 2.0}, "batch_size is of type float, expected an integer"),
        ({"spatial_shape": 4}, "spatial_shape is of type int, expected a sequence of integers"),
        ({"spatial_shape": None}, "spatial_shape is of type NoneType, expected a sequence of integers"),
        ({"spatial_shape": (3, 4.0)}, "spatial_shape[1] is of type float, expected an integer"),
        ({"spatial_shape": np.array([3.0, 4.0])}, "spatial_shape[0] is of type float64, expected an integer"),
        ({"kernel_size": 3.0}, "kernel_size is of type float, expected an integer or a sequence of them"),
        ({"stride": True}, "stride is of type bool, expected an integer or a sequence of them"),
        ({"padding": (0, False)}, "padding[1] is of type bool, expected an integer"),
        ({"dilation": "11"}, "dilation[0] is of type str, expected an integer"),
        ({"dilation": {1, 2}}, "dilation is of type set, expected an integer or a sequence of them"),
        (
            {"output_padding": None},
            "output_padding is of type NoneType, expected an integer or a sequence of them",
        ),
        ({"subm": "yes"}, "subm is of type str, expected True or False"),
        ({"transpose": None}, "transpose is of type NoneType, expected True or False"),
        (
            {"out": np.zeros((5, 3), np.int32)},
            f"out is of type ndarray, expected a tuple of {NAMES}; None allocates",
        ),
    ],
)
def test_wrong_types(changes, message):
    arguments = arguments_and_out()
    out = arguments["out"]
    assert refusal({**arguments, **changes}, out, TypeError) == message


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        (((2, 3, 4, 5, 6),), {}, "spatial_shape has 5 elements, expected 1 .. 4"),
        (((),), {}, "spatial_shape has 0 elements, expected 1 .. 4"),
        (((5, 6), (3, 3, 3)), {}, "kernel_size has 3 elements, expected 2 = len(spatial_shape)"),
        (((5, 6), 3, 0), {}, "stride[0] is 0, expected 1 .. 2147483647"),
        (((5, 6), (3, 7)), {}, "output_shape[1] is 0, expected 1 .. 2147483647"),
        (((5, 6), 2), {"subm": True}, "kernel_size[0] is 2, expected an odd number in submanifold mode"),
    ],
)
def test_messages_of_output_shape(arguments, options, message):
    with pytest.raises(ValueError) as caught:
        turnout.indice_pairs_output_shape(*arguments, **options)
    assert str(caught.value) == f"indice_pairs_output_shape: {message}"
