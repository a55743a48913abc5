"""Error messages of mutual_information; a rejected call writes nothing."""

import ml_dtypes
import numpy as np
import pytest

import turnout

FUNCTIONS = {
    "forward": turnout.mutual_information_forward,
    "backward": turnout.mutual_information_backward,
    "forward_backward": turnout.mutual_information_forward_backward,
}
RESULTS = {
    "forward": ("p", "ans"),
    "backward": ("px_grad", "py_grad"),
    "forward_backward": ("ans", "px_grad", "py_grad"),
}


def arguments_of(name):
    """Returns arguments of a call for 3 symbols and 4 frames, and arrays for its results."""
    shapes = {"px": (2, 3, 5), "py": (2, 4, 4), "p": (2, 4, 5), "ans": 2}
    shapes |= {"px_grad": shapes["px"], "py_grad": shapes["py"]}
    arguments = {"px": np.zeros(shapes["px"], np.float32), "py": np.zeros(shapes["py"], np.float32)}
    if name == "backward":
        arguments |= {"p": np.zeros(shapes["p"], np.float32), "ans_grad": np.ones(2, np.float32)}
        arguments["overwrite_ans_grad"] = True
    arguments["boundary"] = np.array([(0, 0, 3, 4), (1, 1, 2, 3)])
    arguments["out"] = tuple(np.full(shapes[result], 77, np.float32) for result in RESULTS[name])
    return arguments


def refusal(name, changes, kind=ValueError):
    """Returns the message of a rejected call, which must not change any array."""
    arguments = arguments_of(name)
    arrays = [*arguments.values(), *arguments["out"]]
    for key, change in changes.items():
        if key in arguments:
            arguments[key] = change(arguments[key]) if callable(change) else change
        else:  # one of the results
            i = RESULTS[name].index(key)
            out = arguments["out"]
            arguments["out"] = (*out[:i], change(out[i]) if callable(change) else change, *out[i + 1 :])
    arrays += [*arguments.values(), *arguments["out"]]
    arrays = [x for x in arrays if isinstance(x, np.ndarray)]
    before = [x.tobytes() for x in arrays]
    with pytest.raises(kind) as caught:
        FUNCTIONS[name](**arguments)
    assert [x.tobytes() for x in arrays] == before
    op, _, message = str(caught.value).partition(": ")
    assert op == f"mutual_information_{name}"
    return message


def with_box(b, component, value):
    def change(boundary):
        boundary = boundary.copy()
        boundary[b, component] = value
        return boundary

    return {"boundary": change}


def read_only(array):
    array = array.copy()
    array.flags.writeable = False
    return array


def wide(array):
    return array.astype(np.float64)


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (with_box(0, 0, -1), "boundary[0, 0] is -1, expected 0 .. 3 symbols"),
        (with_box(1, 1, 5), "boundary[1, 1] is 5, expected 0 .. 4 frames"),
        (with_box(1, 2, 4), "boundary[1, 2] is 4, expected 0 .. 3 symbols"),
        (with_box(0, 3, 2**40), "boundary[0, 3] is 1099511627776, expected 0 .. 4 frames"),
        ({"boundary": np.zeros((2, 4), np.int32)}, "boundary has dtype int32, expected int64"),
        ({"boundary": np.zeros((3, 4), np.int64)}, "boundary.shape[0] is 3, expected 2 = px.shape[0]"),
        ({"boundary": np.zeros((2, 3), np.int64)}, "boundary.shape[1] is 3, expected 4"),
        ({"boundary": np.zeros(8, np.int64)}, "boundary has 1 dimensions, expected [batch, 4]"),
        ({"px": lambda x: x[0]}, "px has 2 dimensions, expected [batch, symbols, columns]"),
        (
            {"px": lambda x: x.astype(np.int32)},
            "px has dtype int32, expected float32, float64, float16, bfloat16",
        ),
        ({"px": lambda x: x.astype(np.float16)}, "py has dtype float32, expected that of px"),
        (
            {"px": lambda x: x.astype(ml_dtypes.float8_e4m3fn)},
            "px has dtype float8_e4m3fn, expected float32, float64, float16, bfloat16",
        ),
        ({"py": wide}, "py has dtype float64, expected that of px"),
        ({"py": lambda x: x[:, :3].copy()}, "py.shape[1] is 3, expected 4 = px.shape[1] + 1"),
        ({"py": lambda x: x[:1]}, "py.shape[0] is 1, expected 2 = px.shape[0]"),
    ],
)
def test_messages(name, changes, message):
    assert refusal(name, changes) == message


@pytest.mark.parametrize("columns", [3, 6])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_columns(name, columns):
    """Neither regular nor modified."""
    px = np.zeros((2, 3, columns), np.float32)
    changes = {"px": px} | ({"px_grad": px.copy()} if name != "forward" else {})
    expected = "at most 3 = px.shape[2]" if columns == 3 else "at most 5 = py.shape[2] + 1"
    subject = "py.shape[2] is 4" if columns == 3 else "px.shape[2] is 6"
    assert refusal(name, changes) == f"{subject}, expected {expected}"


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("forward", {"p": lambda p: p[:, :3].copy()}, "p.shape[1] is 3, expected 4 = px.shape[1] + 1"),
        ("forward", {"p": lambda p: p[:, :, :4].copy()}, "p.shape[2] is 4, expected 5 = py.shape[2] + 1"),
        (
            "forward",
            {"p": lambda p: p.astype(np.float16)},
            "p has dtype float16, expected float32 for px of float32",
        ),
        ("forward", {"p": wide, "ans": wide}, "p has dtype float64, expected float32 for px of float32"),
        ("forward", {"p": read_only}, "p is read-only, expected memory that can be written to"),
        ("forward", {"ans": wide}, "ans has dtype float64, expected float32 for px of float32"),
        ("forward", {"ans": lambda a: a[:1]}, "ans.shape[0] is 1, expected 2 = px.shape[0]"),
        (
            "forward",
            {"out": lambda out: out[:1]},
            "out has 1 entries, expected a tuple of p, ans; None allocates",
        ),
        (
            "backward",
            {"p": wide, "ans_grad": wide},
            "p has dtype float64, expected float32 for px of float32",
        ),
        ("backward", {"p": lambda p: p[:, :, :4].copy()}, "p.shape[2] is 4, expected 5 = py.shape[2] + 1"),
        ("backward", {"ans_grad": wide}, "ans_grad has dtype float64, expected that of p"),
        ("backward", {"ans_grad": lambda a: a[:1]}, "ans_grad.shape[0] is 1, expected 2 = px.shape[0]"),
        (
            "backward",
            {"ans_grad": read_only},
            "ans_grad is read-only, expected memory that can be written to",
        ),
        ("backward", {"overwrite_ans_grad": 2}, "overwrite_ans_grad is 2, expected True or False"),
        ("backward", {"px_grad": wide}, "px_grad has dtype float64, expected that of px"),
        (
            "backward",
            {"py_grad": lambda g: g[:, :3].copy()},
            "py_grad.shape[1] is 3, expected 4 = px.shape[1] + 1",
        ),
        (
            "backward",
            {"out": lambda out: (*out, None)},
            "out has 3 entries, expected a tuple of px_grad, py_grad; None allocates",
        ),
        ("forward_backward", {"ans": wide}, "ans has dtype float64, expected float32 for px of float32"),
        ("forward_backward", {"px_grad": lambda g: g[:1]}, "px_grad.shape[0] is 1, expected 2 = px.shape[0]"),
        (
            "forward_backward",
            {"out": lambda out: out[:2]},
            "out has 2 entries, expected a tuple of ans, px_grad, py_grad; None allocates",
        ),
    ],
)
def test_messages_of_one(name, changes, message):
    assert refusal(name, changes) == message


@pytest.mark.parametrize(
    ("name", "argument", "result"),
    [("backward", "px", "px_grad"), ("forward_backward", "py", "py_grad"), ("backward", "p", "px_grad")],
)
def test_overlap(name, argument, result):
    arguments = arguments_of(name)
    memory = arguments[argument]
    target = memory.reshape(-1)[: arguments["px"].size].reshape(2, 3, 5) if result == "px_grad" else memory
    message = refusal(name, {argument: lambda _: memory, result: lambda _: target})
    assert message == f"{result} overlaps {argument} in memory, expected separate buffers"


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"px": None},
            "px is of type NoneType, expected an array of NumPy or one with __dlpack__",
        ),
        (
            {"boundary": [[0, 0, 3, 4]]},
            "boundary is of type list, expected an array of NumPy or one with __dlpack__",
        ),
    ],
)
def test_wrong_types(name, changes, message):
    assert refusal(name, changes, TypeError) == message


def test_wrong_flag_and_tuple():
    message = refusal("backward", {"overwrite_ans_grad": "yes"}, TypeError)
    assert message == "overwrite_ans_grad is of type str, expected True or False"
    message = refusal("forward", {"out": np.zeros(3)}, TypeError)
    assert message == "out is of type ndarray, expected a tuple of p, ans; None allocates"


def test_result_beyond_memory():
    px, py = np.zeros((2**20, 2**30, 0), np.float32), np.zeros((2**20, 2**30 + 1, 0), np.float32)
    with pytest.raises(MemoryError) as caught:
        turnout.mutual_information_forward(px, py)
    size = 2**20 * (2**30 + 1) * 4
    assert str(caught.value) == f"mutual_information_forward: p needs {size} bytes, which are not available"


def test_copy_beyond_memory():
    px, py = np.zeros((2**20, 0, 2**30 + 1), np.float32), np.broadcast_to(np.float32(0), (2**20, 1, 2**30))
    with pytest.raises(MemoryError) as caught:
        turnout.mutual_information_forward(px, py)
    assert str(caught.value) == (
        f"mutual_information_forward: py is strided, and {2**52} bytes for a copy of it are not available"
    )
