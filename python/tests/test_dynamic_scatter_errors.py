"""Error messages of dynamic_scatter and voxelize; a rejected call writes nothing."""

import ml_dtypes
import numpy as np
import pytest

import turnout

RESULTS = {
    "dynamic_scatter_forward": ("voxel_feats", "voxel_coors", "point2voxel_map", "voxel_points_count"),
    "dynamic_scatter_backward": ("grad_feats",),
    "voxelize": ("coors",),
    "voxelize_hard": ("voxels", "coors", "num_points_per_voxel"),
}
ARRAY = "expected an array of NumPy or one with __dlpack__"
THREE = "expected a sequence of 3 numbers"


def arguments_of(name):
    """Returns arguments of a call with 5 points in 3 voxels, and arrays for its results."""
    feats, counts = np.ones((5, 2), np.float32), np.array([2, 1, 1], np.int32)
    coors = np.array([[0, 4], [0, 3], [0, 3], [2, 0], [-1, 0]], np.int32)
    index = np.array([1, 0, 0, 2, -1], np.int32)
    voxels = np.ones((3, 2), np.float32)
    if name == "dynamic_scatter_forward":
        arguments = {"feats": feats, "coors": coors, "reduce_type": "mean"}
        out = np.full((3, 2), 77, np.float32), np.full((3, 2), 77, np.int32)
        return {**arguments, "out": (*out, np.full(5, 77, np.int32), np.full(3, 77, np.int32))}
    if name == "dynamic_scatter_backward":
        arguments = {"grad_voxel_feats": voxels.copy(), "feats": feats, "voxel_feats": voxels}
        arguments |= {"point2voxel_map": index, "voxel_points_count": counts, "reduce_type": "max"}
        return {**arguments, "out": np.full((5, 2), 77, np.float32)}
    arguments = {"points": np.ones((5, 4), np.float32)}
    arguments |= {"voxel_size": (0.5, 0.5, 0.5), "point_cloud_range": (0, 0, 0, 2, 2, 2)}
    if name == "voxelize":
        return {**arguments, "out": np.full((5, 3), 77, np.int32)}
    arguments |= {"max_points": 2, "max_voxels": 4}
    out = np.full((4, 2, 4), 77, np.float32), np.full((4, 3), 77, np.int32), np.full(4, 77, np.int32)
    return {**arguments, "out": out}


def refusal(name, changes, kind=ValueError):
    """Returns the message of a rejected call, which must not change any array."""
    arguments = arguments_of(name)
    arrays = [*arguments.values(), *(arguments["out"] if isinstance(arguments["out"], tuple) else ())]
    for key, change in changes.items():
        if key in arguments:
            arguments[key] = change(arguments[key]) if callable(change) else change
        elif isinstance(arguments["out"], tuple):  # one of the results
            i = RESULTS[name].index(key)
            out = arguments["out"]
            arguments["out"] = (*out[:i], change(out[i]) if callable(change) else change, *out[i + 1 :])
        else:
            arguments["out"] = change(arguments["out"]) if callable(change) else change
    arrays += [*arguments.values(), *(arguments["out"] if isinstance(arguments["out"], tuple) else ())]
    arrays = [x for x in arrays if isinstance(x, np.ndarray)]
    before = [x.tobytes() for x in arrays]
    with pytest.raises(kind) as caught:
        getattr(turnout, name.removesuffix("_hard"))(**arguments)
    assert [x.tobytes() for x in arrays] == before
    op, _, message = str(caught.value).partition(": ")
    assert op == name.removesuffix("_hard")
    return message


def read_only(array):
    array.flags.writeable = False
    return array


def with_value(i, value):
    def change(array):
        array = array.copy()
        array[i] = value
        return array

    return change


@pytest.mark.parametrize("name", RESULTS)
def test_the_call_itself(name):
    arguments = arguments_of(name)
    results = getattr(turnout, name.removesuffix("_hard"))(**arguments)
    for result in results if isinstance(results, tuple) else (results,):
        assert not (result == 77).any()


@pytest.mark.parametrize("name", ["dynamic_scatter_forward", "dynamic_scatter_backward"])
def test_reduce_type(name):
    expected = "expected one of 'sum', 'mean', 'max'"
    assert refusal(name, {"reduce_type": "median"}) == f"reduce_type is 'median', {expected}"
    assert refusal(name, {"reduce_type": "MAX"}) == f"reduce_type is 'MAX', {expected}"
    assert refusal(name, {"reduce_type": "max\0"}) == f"reduce_type is 'max\\x00', {expected}"
    assert refusal(name, {"reduce_type": "\ud800"}) == f"reduce_type is '\\ud800', {expected}"
    assert refusal(name, {"reduce_type": ""}) == f"reduce_type is '', {expected}"
    assert refusal(name, {"reduce_type": "sum mean"}) == f"reduce_type is 'sum mean', {expected}"
    assert refusal(name, {"reduce_type": 2}, TypeError) == f"reduce_type is of type int, {expected}"
    assert refusal(name, {"reduce_type": None}, TypeError) == f"reduce_type is of type NoneType, {expected}"
    assert refusal(name, {"reduce_type": b"max"}, TypeError) == f"reduce_type is of type bytes, {expected}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feats": lambda x: x[0]}, "feats has 1 dimensions, expected [points, channels]"),
        (
            {"feats": lambda x: x.astype(np.int32)},
            "feats has dtype int32, expected float32, float64, float16, bfloat16",
        ),
        (
            {"feats": lambda x: x.astype(ml_dtypes.float8_e4m3fn)},
            "feats has dtype float8_e4m3fn, expected float32, float64, float16, bfloat16",
        ),
        (
            {"feats": lambda x: x.astype(complex)},
            "feats has dtype complex128, expected float32, float64, float16, bfloat16",
        ),
        ({"coors": lambda x: x[:, 0].copy()}, "coors has 1 dimensions, expected [points, dims]"),
        ({"coors": lambda x: x.astype(np.int16)}, "coors has dtype int16, expected int32, int64"),
        ({"coors": lambda x: x[:4]}, "coors.shape[0] is 4, expected 5 = feats.shape[0]"),
        ({"coors": np.zeros((5, 0), np.int32)}, "coors.shape[1] is 0, expected 1 or more"),
        ({"coors": np.zeros((5, 5), np.int32)}, "coors.shape[1] is 5, expected at most 4"),
        (
            {"voxel_feats": lambda x: x[:2]},
            "voxel_feats.shape[0] is 2, expected 3 or more: the number of voxels",
        ),
        (
            {"voxel_coors": lambda x: x[:0]},
            "voxel_coors.shape[0] is 0, expected 3 or more: the number of voxels",
        ),
        (
            {"voxel_points_count": lambda x: x[:1]},
            "voxel_points_count.shape[0] is 1, expected 3 or more: the number of voxels",
        ),
        (
            {"voxel_feats": lambda x: x[:, :1].copy()},
            "voxel_feats.shape[1] is 1, expected 2 = feats.shape[1]",
        ),
        (
            {"voxel_feats": lambda x: x.astype(np.float64)},
            "voxel_feats has dtype float64, expected that of feats",
        ),
        (
            {"voxel_coors": lambda x: x.astype(np.int64)},
            "voxel_coors has dtype int64, expected that of coors",
        ),
        ({"point2voxel_map": lambda x: x[:4]}, "point2voxel_map.shape[0] is 4, expected 5 = feats.shape[0]"),
        (
            {"point2voxel_map": lambda x: x.astype(np.uint32)},
            "point2voxel_map has dtype uint32, expected int32, int64",
        ),
        (
            {"voxel_points_count": np.array(3, np.int32)},
            "voxel_points_count has 0 dimensions, expected [voxels]",
        ),
        ({"voxel_feats": read_only}, "voxel_feats is read-only, expected memory that can be written to"),
        (
            {"point2voxel_map": lambda x: np.full(10, 77, np.int32)[::2]},
            "point2voxel_map is strided, expected contiguous row-major memory for shape [5]: it is written "
            "in place, and not by way of a copy",
        ),
        (
            {"out": lambda out: (*out[:3], out[2][:3])},
            "point2voxel_map overlaps voxel_points_count in memory, expected separate buffers",
        ),
        (
            {"out": lambda out: out[:3]},
            "out has 3 entries, expected a tuple of voxel_feats, voxel_coors, point2voxel_map, "
            "voxel_points_count; None allocates",
        ),
    ],
)
def test_forward(changes, message):
    assert refusal("dynamic_scatter_forward", changes) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"feats": None}, "feats is missing, expected a tensor with reduce_type max"),
        ({"voxel_feats": None}, "voxel_feats is missing, expected a tensor with reduce_type max"),
        (
            {"voxel_points_count": None, "reduce_type": "mean"},
            "voxel_points_count is missing, expected a tensor with reduce_type mean",
        ),
        ({"feats": lambda x: x[:4]}, "point2voxel_map.shape[0] is 5, expected 4 = feats.shape[0]"),
        (
            {"voxel_feats": lambda x: x[:2]},
            "voxel_feats.shape[0] is 2, expected 3 = grad_voxel_feats.shape[0]",
        ),
        (
            {"voxel_feats": lambda x: x.astype(np.float16)},
            "voxel_feats has dtype float16, expected that of grad_voxel_feats",
        ),
        (
            {"voxel_points_count": lambda x: x[:2]},
            "voxel_points_count.shape[0] is 2, expected 3 = grad_voxel_feats.shape[0]",
        ),
        ({"point2voxel_map": with_value(3, 3)}, "point2voxel_map[3] is 3, expected -1 .. 2"),
        ({"point2voxel_map": with_value(2, -2)}, "point2voxel_map[2] is -2, expected -1 .. 2"),
        (
            {"point2voxel_map": lambda x: x.astype(np.float32)},
            "point2voxel_map has dtype float32, expected int32, int64",
        ),
        (
            {"voxel_points_count": with_value(2, 0), "reduce_type": "mean"},
            "voxel_points_count[2] is 0, expected 1 or more: point 3 is in that voxel",
        ),
        ({"grad_feats": lambda x: x[:4]}, "out.shape[0] is 4, expected 5 = feats.shape[0]"),
        (
            {"grad_feats": lambda x: x.astype(np.float64)},
            "out has dtype float64, expected that of grad_voxel_feats",
        ),
        ({"grad_feats": read_only}, "out is read-only, expected memory that can be written to"),
    ],
)
def test_backward(changes, message):
    assert refusal("dynamic_scatter_backward", changes) == message


GRID = [
    ({"points": lambda x: x[0]}, "points has 1 dimensions, expected [rows, features]"),
    ({"points": lambda x: x[:, :2].copy(), "out": None}, "points.shape[1] is 2, expected 3 or more"),
    (
        {"points": lambda x: x.astype(np.int64)},
        "points has dtype int64, expected float32, float64, float16, bfloat16",
    ),
    ({"voxel_size": (1, 1)}, "voxel_size has 2 elements, expected 3"),
    ({"point_cloud_range": (0, 0, 0)}, "point_cloud_range has 3 elements, expected 6"),
    ({"voxel_size": (1, 0, 1)}, "voxel_size[1] is 0, expected a positive finite number"),
    ({"voxel_size": (1, 1, np.nan)}, "voxel_size[2] is nan, expected a positive finite number"),
    (
        {"point_cloud_range": (0, 3, 0, 2, 2, 2)},
        "point_cloud_range is 3 .. 2 in direction y, which is -2 voxels, expected 1 .. 2147483647",
    ),
]


@pytest.mark.parametrize("name", ["voxelize", "voxelize_hard"])
@pytest.mark.parametrize(("changes", "message"), GRID)
def test_grid(name, changes, message):
    assert refusal(name, changes) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"coors": lambda x: x[:4]}, "out.shape[0] is 4, expected 5 = points.shape[0]"),
        ({"coors": lambda x: x[:, :2].copy()}, "out.shape[1] is 2, expected 3"),
        ({"coors": lambda x: x.astype(np.float32)}, "out has dtype float32, expected int32, int64"),
    ],
)
def test_voxelize(changes, message):
    assert refusal("voxelize", changes) == message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"voxels": lambda x: x[:3]}, "voxels.shape[0] is 3, expected 4 = max_voxels"),
        ({"voxels": lambda x: x[:, :1].copy()}, "voxels.shape[1] is 1, expected 2 = max_points"),
        ({"voxels": lambda x: x[:, :, :3].copy()}, "voxels.shape[2] is 3, expected 4 = points.shape[1]"),
        ({"coors": lambda x: x[:1]}, "coors.shape[0] is 1, expected 4 = max_voxels"),
        (
            {"num_points_per_voxel": lambda x: x[:1]},
            "num_points_per_voxel.shape[0] is 1, expected 4 = max_voxels",
        ),
        (
            {"out": lambda x: x[0]},
            "out is of type ndarray, expected a tuple of voxels, coors, num_points_per_voxel; None allocates",
        ),
        ({"max_points": 2**31, "out": None}, "max_points is 2147483648, expected at most 2147483647"),
    ],
)
def test_voxelize_hard(changes, message):
    assert refusal("voxelize_hard", changes, TypeError if "ndarray" in message else ValueError) == message


@pytest.mark.parametrize("limits", [(3, -1), (-1, 3), (-2, 5), (5, -2), (-2, -2)])
def test_one_limit_alone(limits):
    max_points, max_voxels = limits
    with pytest.raises(ValueError) as caught:
        turnout.voxelize(**arguments_of("voxelize"), max_points=max_points, max_voxels=max_voxels)
    assert str(caught.value) == (
        f"voxelize: max_points is {max_points} and max_voxels is {max_voxels}, "
        "expected two limits of 0 or more, or -1 for both"
    )


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("dynamic_scatter_forward", {"feats": [[1.0]]}, f"feats is of type list, {ARRAY}"),
        ("dynamic_scatter_forward", {"coors": None}, f"coors is of type NoneType, {ARRAY}"),
        (
            "dynamic_scatter_backward",
            {"point2voxel_map": None},
            f"point2voxel_map is of type NoneType, {ARRAY}",
        ),
        ("dynamic_scatter_backward", {"feats": 3}, f"feats is of type int, {ARRAY}"),
        ("voxelize", {"points": "points"}, f"points is of type str, {ARRAY}"),
        ("voxelize", {"voxel_size": 0.5}, f"voxel_size is of type float, {THREE}"),
        ("voxelize", {"voxel_size": None}, f"voxel_size is of type NoneType, {THREE}"),
        ("voxelize", {"voxel_size": np.array(1.0)}, f"voxel_size is of type ndarray, {THREE}"),
        ("voxelize", {"voxel_size": (1, "1", 1)}, "voxel_size[1] is of type str, expected a number"),
        ("voxelize", {"voxel_size": np.ones((3, 2))}, "voxel_size[0] is of type ndarray, expected a number"),
        (
            "voxelize",
            {"point_cloud_range": (0, 0, 0, 1, 1j, 1)},
            "point_cloud_range[4] is of type complex, expected a number",
        ),
        ("voxelize_hard", {"max_points": 2.0}, "max_points is of type float, expected an integer"),
    ],
)
def test_wrong_types(name, changes, message):
    arguments = arguments_of(name)
    arguments.update(changes)
    with pytest.raises(TypeError) as caught:
        getattr(turnout, name.removesuffix("_hard"))(**arguments)
    assert str(caught.value) == f"{name.removesuffix('_hard')}: {message}"


def test_result_beyond_memory():
    points = np.zeros((10**6, 3), np.float32)
    limits = {"max_points": 2**31 - 1, "max_voxels": 10**6}
    with pytest.raises(MemoryError) as caught:
        turnout.voxelize(points, (1, 1, 1), (0, 0, 0, 9, 9, 9), **limits)
    needed = (2**31 - 1) * 10**6 * 12
    assert str(caught.value) == f"voxelize: voxels needs {needed} bytes, which are not available"


# -- VoxelIndex --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("coors", "message"),
    [
        (np.zeros((3, 5), np.int32), "coors.shape[1] is 5, expected at most 4"),
        (np.zeros(3, np.int32), "coors has 1 dimensions, expected [points, dims]"),
        (np.zeros((3, 2)), "coors has dtype float64, expected int32, int64"),
    ],
)
def test_index(coors, message):
    with pytest.raises(ValueError) as caught:
        turnout.VoxelIndex(coors)
    assert str(caught.value) == f"VoxelIndex: {message}"


@pytest.mark.parametrize(
    ("method", "arguments", "message"),
    [
        ("reduce", (np.ones((4, 2)),), "feats.shape[0] is 4, expected 5 = points"),
        ("reduce", (np.ones((5, 2)), "min"), "reduce_type is 'min', expected one of 'sum', 'mean', 'max'"),
        (
            "reduce",
            (np.ones((5, 2), np.int8),),
            "feats has dtype int8, expected float32, float64, float16, bfloat16",
        ),
        ("reduce_backward", (np.ones((3, 2)),), "feats is missing, expected a tensor with reduce_type max"),
        (
            "reduce_backward",
            (np.ones((4, 2)), None, None, "sum"),
            "grad_voxel_feats.shape[0] is 4, expected 3 = voxels",
        ),
        (
            "reduce_backward",
            (np.ones((3, 2)), np.ones((5, 3)), np.ones((3, 2))),
            "feats.shape[1] is 3, expected 2 = grad_voxel_feats.shape[1]",
        ),
    ],
)
def test_index_methods(method, arguments, message):
    index = turnout.VoxelIndex(arguments_of("dynamic_scatter_forward")["coors"])
    with pytest.raises(ValueError) as caught:
        getattr(index, method)(*arguments)
    assert str(caught.value) == f"VoxelIndex.{method}: {message}"


def test_index_out():
    index = turnout.VoxelIndex(arguments_of("dynamic_scatter_forward")["coors"])
    out = np.full((4, 2), 77.0)
    with pytest.raises(ValueError, match=r"VoxelIndex\.reduce: out\.shape\[0\] is 4, expected 3 = voxels"):
        index.reduce(np.ones((5, 2)), out=out)
    with pytest.raises(ValueError, match=r"reduce_backward: out\.shape\[0\] is 4, expected 5 = points"):
        index.reduce_backward(np.ones((3, 2)), reduce_type="sum", out=out)
    assert (out == 77).all()


def test_index_of_a_non_array():
    with pytest.raises(TypeError, match=f"VoxelIndex: coors is of type list, {ARRAY}"):
        turnout.VoxelIndex([[1, 2, 3]])
