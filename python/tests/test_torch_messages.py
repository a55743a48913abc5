"""Errors name the called function and its arguments; autograd nodes have the names of their operators."""

import numpy as np
import pytest
import torch
from registry import CALLS

import turnout.torch
from turnout.compat import mmcv
from turnout.torch import joint_mutual_information_recursion, mutual_information_recursion

pytestmark = pytest.mark.torch

PX, PY = torch.zeros(2, 3, 5), torch.zeros(2, 4, 4)
FEATS, COORS = torch.ones(4, 3), torch.zeros(4, 3, dtype=torch.int32)
COUNT = torch.tensor([[3, 1]])
SIZE, RANGE = [1, 1, 1], [0, 0, 0, 4, 4, 4]
OPS = torch.ops.turnout
LOGITS, TEXT, KEPT = torch.zeros(2, 4, 4, 6), torch.ones(2, 3).long(), torch.arange(4).repeat(2, 4, 1)
SUMS = {"lm": torch.zeros(2, 4, 6), "am": torch.zeros(2, 4, 6)}
BOX = torch.tensor([[0, 0, 3, 4], [0, 0, 2, 3]])

MESSAGES = [
    (lambda: mutual_information_recursion(PX, PY[:1]), "mutual_information_recursion: py.shape[0] is 1, exp"),
    (
        lambda: mutual_information_recursion(PX.clone().requires_grad_(), PY[:1]),
        "mutual_information_recursion: py.shape[0] is 1, expected 2 = px.shape[0]",
    ),
    (
        lambda: mutual_information_recursion(PX, PY, torch.zeros(2, 4).int(), return_grad=True),
        "mutual_information_recursion: boundary has dtype int32, expected int64",
    ),
    (
        lambda: joint_mutual_information_recursion([PX], [PY[:1]]),
        "joint_mutual_information_recursion: py.shape[0] is 1, expected 2 = px.shape[0]",
    ),
    (lambda: turnout.torch.dynamic_scatter(FEATS, COORS[:2]), "dynamic_scatter: coors.shape[0] is 2, exp"),
    (
        lambda: turnout.torch.voxelize(FEATS, SIZE, RANGE, max_points=2, max_voxels=-1),
        "voxelize: max_points is 2 and max_voxels is -1, expected two limits",
    ),
    (lambda: turnout.torch.voxelize(FEATS, 1, RANGE), "voxelize: voxel_size is of type int, expected a seq"),
    (
        lambda: turnout.torch.voxelize(FEATS, SIZE, RANGE, max_points=2, max_voxels=2e4),
        "voxelize: max_voxels is of type float, expected an integer",
    ),
    (lambda: turnout.torch.voxelize(FEATS, [0, 1, 1], RANGE), "voxelize: voxel_size[0] is 0, expected a pos"),
    (
        lambda: turnout.torch.get_indice_pairs(COORS, 1, [4, 4], 3.5),
        "get_indice_pairs: kernel_size is of type float, expected",
    ),
    (
        lambda: turnout.torch.moe_dispatch_forward(FEATS[:, 0], COORS[:, 0], COORS[:, 0], FEATS, "2", 2),
        "moe_dispatch_forward: capacity is of type str, expected an integer",
    ),
    # mmcv
    (
        lambda: mmcv.voxelization(FEATS, SIZE, RANGE[:5]),
        "voxelization: coors_range has 5 elements, expected 6",
    ),
    (lambda: mmcv.voxelization(FEATS, 1, RANGE), "voxelization: voxel_size is of type int, expected a seq"),
    (
        lambda: mmcv.voxelization(FEATS, SIZE, RANGE, 5, 2e4),
        "voxelization: max_voxels is of type float, expected an integer",
    ),
    (lambda: mmcv.get_indice_pairs(COORS, 1, [4, 4], ksize=[3]), None),
    (
        lambda: mmcv.get_indice_pairs(COORS, 1, [4, 4], ksize=[3, 3, 3]),
        "get_indice_pairs: ksize has 3 elements, expected 2 = indices.shape[1] - 1",
    ),
    (
        lambda: mmcv.get_indice_pairs(COORS, 1, [4, 4], out_padding=[1]),
        None,
    ),
    (
        lambda: mmcv.get_indice_pairs(COORS, 1, [4, 4], out_padding=[1, 1, 1], transpose=True),
        "get_indice_pairs: out_padding has 3 elements, expected 2 = indices.shape[1] - 1",
    ),
    (
        lambda: mmcv.DynamicScatter(SIZE, RANGE, True)(FEATS[0], COORS),
        "DynamicScatter: points has 1 dimensions, expected",
    ),
    (
        lambda: mmcv.Voxelization(SIZE, RANGE, 3)(FEATS[:, :2]),
        "Voxelization: input.shape[1] is 2, expected 3 or more",
    ),
    (
        lambda: mmcv.Voxelization(1, RANGE, 3),
        "Voxelization: voxel_size is of type int, expected a sequence of 3 numbers",
    ),
    (
        lambda: mmcv.Voxelization(SIZE, RANGE, 3, 2e4),
        "Voxelization: max_voxels is of type float, expected an integer, or 2: for training and evaluation",
    ),
    (
        lambda: mmcv.Voxelization(SIZE, RANGE, 3, (10, 2e4)),
        "Voxelization: max_voxels[1] is of type float, expected an integer",
    ),
    (
        lambda: mmcv.Voxelization(SIZE, RANGE, 3, -2),
        "Voxelization: max_voxels is -2, expected 0 or more, or -1 for no limit",
    ),
    (
        lambda: mmcv.Voxelization(SIZE, RANGE, 3.5),
        "Voxelization: max_num_points is of type float, expected an integer",
    ),
]


@pytest.mark.parametrize(("function", "message"), MESSAGES)
def test_the_function_that_was_called(function, message):
    if message is None:
        function()
        return
    with pytest.raises((ValueError, TypeError)) as caught:
        function()
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def public(op):
    """The arguments of an operator's call in the registry, as its public function takes them."""
    call = {name: value for name, value in CALLS[op].items() if name != "with_distances"}
    if op == "voxel_query":
        call["ranges"] = tuple(call.pop(f"{axis}_range") for axis in "zyx")
    return call


# Each function, with a call that succeeds; each tensor in turn is replaced by something else. Operators use
# the call of the registry.
FUNCTIONS = {
    **{getattr(turnout.torch, op): public(op) for op in CALLS if hasattr(turnout.torch, op)},
    turnout.torch.moe_token_unpermute: {
        **{"permuted_tokens": FEATS, "sorted_indices": COORS[:, 0], "probs": torch.ones(4)},
    },
    turnout.torch.voxelize: {"points": FEATS, "voxel_size": SIZE, "point_cloud_range": RANGE},
    turnout.torch.dynamic_scatter: {"feats": FEATS, "coors": COORS},
    mutual_information_recursion: {"px": PX, "py": PY, "boundary": torch.zeros(2, 4, dtype=torch.int64)},
    turnout.torch.rnnt_loss: {"logits": LOGITS, "symbols": TEXT, "termination_symbol": 0, "boundary": BOX},
    turnout.torch.rnnt_loss_simple: {**SUMS, "symbols": TEXT, "termination_symbol": 0, "boundary": BOX},
    turnout.torch.rnnt_loss_smoothed: {**SUMS, "symbols": TEXT, "termination_symbol": 0, "boundary": BOX},
    turnout.torch.rnnt_loss_pruned: {
        **{"logits": LOGITS, "symbols": TEXT, "ranges": KEPT, "termination_symbol": 0, "boundary": BOX}
    },
    turnout.torch.get_rnnt_prune_ranges: {"px_grad": PX, "py_grad": PY, "boundary": BOX, "s_range": 2},
    turnout.torch.do_rnnt_pruning: {"am": SUMS["am"], "lm": SUMS["lm"], "ranges": KEPT},
    mmcv.voxelization: {"points": FEATS, "voxel_size": SIZE, "coors_range": RANGE},
    mmcv.get_indice_pairs: {"indices": COORS, "batch_size": 1, "spatial_shape": [4, 4]},
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_non_tensor_arguments(function):
    arguments = FUNCTIONS[function]
    function(**arguments)
    for name, value in arguments.items():
        if not isinstance(value, torch.Tensor):
            continue
        for other in (value.numpy(), value.tolist(), "text", np.float32(1)):
            with pytest.raises(TypeError) as caught:
                function(**{**arguments, name: other})
            assert str(caught.value) == (
                f"{function.__name__}: {name} is of type {type(other).__name__}, expected a torch.Tensor"
            )


def test_non_tensors_in_a_sequence():
    with pytest.raises(TypeError) as caught:
        joint_mutual_information_recursion([PX, PX.numpy()], [PY, PY])
    assert str(caught.value) == (
        "joint_mutual_information_recursion: px[1] is of type ndarray, expected a torch.Tensor"
    )
    with pytest.raises(TypeError, match=r"py is of type NoneType, expected a sequence of torch.Tensor"):
        joint_mutual_information_recursion([PX], None)


@pytest.mark.parametrize(
    "layer", [turnout.torch.nn.SubMConv(1, 2, 2, 3), turnout.torch.nn.SparseMaxPool(1, 2)]
)
def test_non_sparse_inputs(layer):
    for other in (torch.ones(3, 2), np.ones((3, 2), np.float32)):
        with pytest.raises(TypeError) as caught:
            layer(other)
        assert str(caught.value) == (
            f"{type(layer).__name__}: x is of type {type(other).__name__}, expected a SparseTensor"
        )


def test_a_missing_argument_has_the_message_of_python():
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'coors'"):
        turnout.torch.dynamic_scatter(FEATS)


def test_names_of_nodes():
    feats = FEATS.clone().requires_grad_()
    px = PX.clone().requires_grad_()
    logits = LOGITS.clone().requires_grad_()
    index = turnout.torch.VoxelIndex(COORS)
    for result, name in (
        (turnout.torch.moe_re_routing(feats, COUNT)[0], "MoeReRoutingBackward"),
        (turnout.torch.moe_re_routing_inverse(feats, torch.arange(4)), "MoeReRoutingInverseBackward"),
        (turnout.torch.dynamic_scatter(feats, COORS)[0], "DynamicScatterForwardBackward"),
        (mutual_information_recursion(px, PY), "MutualInformationForwardBackwardBackward"),
        (index.reduce(feats), "VoxelIndexReduceBackward"),
        (OPS.rnnt_logprobs_joint_forward(logits, TEXT, 0)[0], "RnntLogprobsJointForwardBackward"),
        (OPS.rnnt_pruning_forward(logits[0, :2], KEPT), "RnntPruningForwardBackward"),
    ):
        assert result.grad_fn.name() == name


def test_voxelization_on_another_default_device():
    torch.set_default_device("meta")
    try:
        module = mmcv.Voxelization([0.16, 0.16, 4], [0, -39.68, -3, 69.12, 39.68, 1], 3)
    finally:
        torch.set_default_device(None)
    assert module.grid_size.tolist() == [432, 496, 1]
    assert [int(extent) for extent in module.pcd_shape] == [1, 496, 432]
    with torch.device("meta"):
        assert mmcv.Voxelization(SIZE, RANGE, 3).grid_size.device.type == "cpu"
    assert module(torch.zeros(5, 3))[0].shape == (1, 3, 3)
