"""Points from torch: results are constants, transforms and compiled code work, messages name the function."""

import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch

tt = turnout.torch


@pytest.fixture
def xyz():
    return torch.rand(60, 3, generator=torch.Generator().manual_seed(0)) * 5


def calls(x):
    two, few = torch.tensor([40, 20]), torch.tensor([7, 3])
    at = torch.zeros(10, 4, dtype=torch.int64)
    grid = torch.arange(60).reshape(1, 3, 4, 5)
    return {
        "furthest_point_sample": (x, 9),
        "furthest_point_sample_stacked": (x, two, few),
        "furthest_point_sample_by_distances": (torch.cdist(x, x), 9),
        "ball_query": (x, x[:10], 1.0, 5, 0.2),
        "ball_query_stacked": (x, two, x[:10], few, 1.0, 5),
        "voxel_query": (x, x[:10], at, grid, 3.0, 4, (1, 2, 2)),
        "three_nn": (x[:10], x),
        "three_nn_stacked": (x[:10], few, x, two),
        "knn": (x, x[:10], 6),
    }


NAMES = list(calls(torch.zeros(60, 3)))


def as_numpy(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


def results(function, arguments):
    found = function(*arguments)
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("name", NAMES)
def test_results_are_those_of_numpy(name, xyz):
    arguments = calls(xyz)[name]
    expected = results(getattr(turnout, name), [as_numpy(one) for one in arguments])
    for found, wanted in zip(results(getattr(tt, name), arguments), expected, strict=True):
        assert torch.equal(found, torch.as_tensor(wanted))


@pytest.mark.parametrize("name", NAMES)
def test_points_that_require_grad_are_detached(name, xyz):
    expected = results(getattr(tt, name), calls(xyz)[name])
    for found, wanted in zip(
        results(getattr(tt, name), calls(xyz.clone().requires_grad_())[name]), expected, strict=True
    ):
        assert not found.requires_grad
        assert torch.equal(found, wanted)


def test_strided_tensors(xyz):
    wide = torch.cat([xyz, xyz], 1)
    assert torch.equal(tt.knn(wide[:, :3], wide[:, :3], 3)[0], tt.knn(xyz, xyz, 3)[0])


def test_vmap(xyz):
    batch = xyz.reshape(4, 15, 3)
    sampled = torch.vmap(lambda x: tt.furthest_point_sample(x, 5))(batch)
    assert torch.equal(sampled, tt.furthest_point_sample(batch, 5))
    idx, dist2 = torch.vmap(lambda x: tt.knn(x, x, 4))(batch)
    assert torch.equal(idx, tt.knn(batch, batch, 4)[0])
    assert torch.equal(dist2, tt.knn(batch, batch, 4)[1])


def test_opcheck(xyz):
    ops = torch.ops.turnout
    x = xyz.clone().requires_grad_()
    for name, arguments in calls(x).items():
        if name == "voxel_query":
            arguments = *arguments[:5], *arguments[6], arguments[5]
        torch.library.opcheck(getattr(ops, name).default, arguments)
    torch.library.opcheck(ops.furthest_point_sample.default, (x, 4, torch.ones(60), True))


def test_compiled(xyz):
    def group(x):
        centres = x[tt.furthest_point_sample(x, 8)]
        idx, found = tt.ball_query(x, centres, 1.0, 4)
        return x[idx] - centres[:, None], found

    torch.compiler.reset()
    compiled = torch.compile(group, fullgraph=True, backend="aot_eager")
    for found, wanted in zip(compiled(xyz), group(xyz), strict=True):
        assert torch.equal(found, wanted)


def test_messages_name_the_function(xyz):
    with pytest.raises(ValueError, match=r"^ball_query: new_xyz.shape\[1\] is 2, expected 3"):
        tt.ball_query(xyz, xyz[:, :2], 1.0, 4)
    with pytest.raises(TypeError, match=r"^knn: new_xyz is of type list, expected a torch.Tensor"):
        tt.knn(xyz, [1.0], 4)
    at, grid = torch.zeros(1, 4).long(), torch.zeros(1, 1, 1, 1).long()
    with pytest.raises(ValueError, match=r"^voxel_query: ranges has 2 elements, expected 3"):
        tt.voxel_query(xyz, xyz[:1], at, grid, 1.0, 1, (0, 1))
