"""turnout.torch.nn under torch.compile and torch.export."""

import pytest
import torch
from sparse_networks import ENCODER_SPACE, plain_encoder, scene, small_unet

from turnout.torch import nn

pytestmark = pytest.mark.torch

SPACE = (5, 6, 7)


def run_encoder(modules, features, indices):
    return modules(nn.SparseTensor(features, indices, ENCODER_SPACE, 2)).dense()


def test_a_compiled_encoder_equals_eager(rng):
    """Traces one graph for several numbers of rows, with gradients; then trains a smaller network."""
    torch.manual_seed(0)
    modules = plain_encoder().double().eval()
    compiled = torch.compile(run_encoder, fullgraph=True, backend="aot_eager")
    parameters = list(modules.parameters())
    for rows in (150, 130):
        x = scene(rng, rows)
        for tensor in (x.features, x.indices):
            torch._dynamo.mark_dynamic(tensor, 0)  # one graph for any number of rows from the start
        wanted, actual = (run(modules, x.features, x.indices) for run in (run_encoder, compiled))
        torch.testing.assert_close(actual, wanted, rtol=1e-12, atol=1e-12)
    grads = [torch.autograd.grad(out.square().sum(), parameters) for out in (wanted, actual)]
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-10, atol=1e-10)
    modules = small_unet().double()
    compiled = torch.compile(modules, fullgraph=True, backend="aot_eager")
    x = scene(rng, 40, SPACE)
    wanted, actual = modules(x), compiled(x)
    torch.testing.assert_close(actual.features, wanted.features, rtol=1e-10, atol=1e-10)
    assert torch.equal(actual.indices, wanted.indices) and actual.spatial_shape == wanted.spatial_shape


def test_inductor_and_too_few_rows():
    """A compiled network gives one message if a layer or the input has fewer than two rows."""
    modules = nn.SparseSequential(
        nn.SubMConv(1, 2, 2, 3),
        torch.nn.BatchNorm1d(2),
        nn.SparseConv(1, 2, 2, 2, 2, indice_key="down"),
        torch.nn.BatchNorm1d(2),
        nn.SparseInverseConv(1, 2, 2, 2, "down"),
    )

    def run(features, indices):
        return modules(nn.SparseTensor(features, indices, (8,), 1)).features

    compiled = torch.compile(run, fullgraph=True)
    indices = torch.tensor([[0, 0], [0, 1], [0, 5], [0, 7]], dtype=torch.int32)
    features = torch.arange(8.0).view(4, 2)
    torch.testing.assert_close(compiled(features, indices), run(features, indices))
    with pytest.raises(ValueError) as caught:
        compiled(features[:2], indices[:2])
    assert str(caught.value) == "torch.compile: a sparse layer has 1 active outputs, expected 2 or more"
    for rows in (0, 1):
        with pytest.raises(Exception, match="features has fewer than 2 rows, expected 2 or more in a"):
            compiled(features[:rows], indices[:rows])


def test_export_keeps_the_convolutions(rng):
    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.modules_ = small_unet().double().eval()

        def forward(self, features, indices):
            return self.modules_(nn.SparseTensor(features, indices, SPACE, 2)).features

    x, exported = scene(rng, 40, SPACE), Network()
    rows = torch.export.Dim("rows", min=2)
    program = torch.export.export(
        exported, (x.features, x.indices), dynamic_shapes=({0: rows}, {0: rows}), strict=False
    )
    calls = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
    assert calls.count("turnout.indice_convolution_forward.default") == 3
    assert calls.count("turnout.get_indice_pairs.default") == 2
    other = scene(rng, 55, SPACE)
    torch.testing.assert_close(
        program.module()(other.features, other.indices), exported(other.features, other.indices)
    )
