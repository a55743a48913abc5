"""C++, Python and torch agree on the names of arguments, their order and their defaults."""

import inspect
import re
from pathlib import Path

import pytest
import torch
from registry import ROWS

import turnout.torch

pytestmark = pytest.mark.torch

HEADERS = Path(turnout.__file__).parent / "include/turnout"
# Public functions that intentionally differ from their operator.
DIFFERENT = {
    # With limits it calls voxelize_hard instead of this operator.
    "voxelize": {"max_points", "max_voxels", "return_map"},
    # The dimension that is reduced. The functions return the rows of maxima as torch_scatter's do, the
    # operators on request.
    **{f"scatter_{name}": {"dim"} for name in ("sum", "mean")},
    **{f"scatter_{name}": {"dim", "return_arg"} for name in ("max", "min")},
    # Weights stored as [experts, depth, rows].
    "moe_experts": {"transposed"},
    # Other packages' argument, which has no effect here.
    "moe_token_permute": {"padded_mode"},
    "sort_chunks_by_idxs": {"fused"},
    # Each is two operators: for all pairs and for aligned boxes, for the first box of a point and for all.
    **{f"boxes_{name}": {"aligned"} for name in ("overlap_bev", "iou_bev", "iou3d")},
    "box_iou_rotated": {"aligned"},
    "points_in_boxes": {"all"},
    # The distances are for the stand-ins of other packages.
    **{f"furthest_point_sample{name}": {"with_distances"} for name in ("", "_stacked", "_by_distances")},
    "voxel_query": {"ranges", "z_range", "y_range", "x_range"},
    # NumPy arrays may be modified in place.
    "mutual_information_backward": {"overwrite_ans_grad"},
}
# Arguments that all functions of a binding have.
COMMON = {"out"}


def public_functions():
    return [
        (module, op)
        for op in ROWS
        for module in (turnout, turnout.torch)
        if inspect.isfunction(inspect.unwrap(getattr(module, op, None)) if hasattr(module, op) else None)
    ]


def schema_of(op):
    return getattr(torch.ops.turnout, op).default._schema.arguments


@pytest.mark.parametrize(("module", "op"), public_functions())
def test_python_has_the_arguments_of_the_schema(module, op):
    parameters = inspect.signature(getattr(module, op)).parameters
    unused = {one["name"] for one in ROWS[op]["parameters"] if one["kind"] == "unused"}
    different = DIFFERENT.get(op, set()) | COMMON | unused
    expected = [one for one in schema_of(op) if one.name not in different]
    found = [one for one in parameters.values() if one.name not in different]
    assert [one.name for one in found] == [one.name for one in expected]
    for one, argument in zip(found, expected, strict=True):
        if argument.has_default_value():
            default = argument.default_value
            single = default[0] if isinstance(default, list) and len(default) == 1 else default
            assert one.default == single, one.name
        else:
            assert one.default is inspect.Parameter.empty, one.name


def prototypes():
    found = {}
    for path in HEADERS.glob("*.h"):
        text = re.sub(r"//.*", "", path.read_text())
        for name, parameters in re.findall(r"TURNOUT_API \w[\w:]* (\w+)\((.*?)\);", text, re.DOTALL):
            found[name] = [re.search(r"(\w+)(?: = .*)?$", part.strip())[1] for part in parameters.split(",")]
    return found


def test_cpp_has_the_tensors_of_the_schema_in_its_order():
    """Inputs are first, in schema order; scalars may be members of a struct."""
    functions = prototypes()
    for op, row in ROWS.items():
        if op == "indice_convolution_index":  # in C++ the constructor of a class
            continue
        tensors = [one["name"] for one in row["parameters"] if one["kind"] == "tensor"]
        results = [one["name"] for one in row["results"]]
        found = functions[op]
        assert found[-1] == "caller", op
        assert set(tensors + results) <= set(found), op
        # In C++ an optional tensor keeps its position; in the schema it is last if it has a default.
        required = [one.name for one in schema_of(op) if one.name in tensors and not one.has_default_value()]
        assert [name for name in found if name in required] == required, op
        assert [name for name in found if name in results] == results, op
