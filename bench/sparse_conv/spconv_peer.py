"""spconv on the CPU, if it is installed: its Python function, and only its C++ loop with reused tensors.

It does slightly less than the definition: in submanifold mode, it counts only the offsets before the centre
and lists the others by output row, and outputs are in the order in which they are found. `result` does the
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import numpy as np
import torch
from harness import Entry, console
from sparse_conv.shapes import Result, Scale, Sites, flat

SLOW = 4  # timed in every fourth round


def load() -> bool:
    """Whether spconv can be imported. ./dev bench installs it into .venv/peers for this purpose only."""
    try:
        importlib.import_module("spconv.pytorch.ops")
    except Exception as error:  # importing it runs code that may fail with this torch version
        console.print(f"spconv is skipped: {type(error).__name__}: {error}", markup=False)
        return False
    return True


def fresh(sites: Sites) -> Entry:
    """Like spconv's modules, each call allocates and fills every tensor."""
    scale, indices = sites.scale, torch.from_numpy(sites.indices)
    ops, algorithm = _module("spconv.pytorch.ops"), _module("spconv.core").ConvAlgo.Native
    one, zero = [1] * len(scale.space), [0] * len(scale.space)
    sizes = [list(x) for x in (scale.kernel, scale.stride, scale.padding)]
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = ops.get_indice_pairs(
            indices, scale.batch, list(scale.space), algorithm, *sizes, one, zero, scale.subm, False
        )

    def result() -> np.ndarray:
        out_indices, pairs, counts = (x.numpy() for x in kept)
        return flat(normal(scale, out_indices, pairs, counts))

    return Entry("spconv, new results", run, result, every=SLOW)


def warm(sites: Sites) -> Entry:
    """spconv's best case, which its Python interface lacks: only the C++ loop, with reused tensors.

    Each call overwrites the pairs of the previous one with the same values, so the fill with -1 is left out.
    """
    scale, indices = sites.scale, torch.from_numpy(sites.indices)
    loops = _module("spconv.core_cc.csrc.sparse.all").SpconvOps
    to_tv = _module("spconv.pytorch.cppcore").torch_tensor_to_tv
    pairs = torch.full((2, scale.volume, scale.rows), -1, dtype=torch.int32)
    counts = torch.zeros(scale.volume, dtype=torch.int32)
    # Room for one output per pair, as spconv's own function allocates it.
    outputs = (
        indices
        if scale.subm
        else torch.zeros(scale.volume * scale.rows, 1 + len(scale.space), dtype=torch.int32)
    )
    tensors = [to_tv(x) for x in (indices, pairs, outputs, counts)]
    one = [1] * len(scale.space)
    kernel, stride, padding = (list(x) for x in (scale.kernel, scale.stride, scale.padding))
    count = [scale.rows]

    def run() -> None:
        counts.zero_()
        if scale.subm:
            loops.generate_subm_conv_inds_cpu(*tensors, scale.batch, list(scale.space), kernel, one)
        else:
            spaces = list(scale.output_space), list(scale.space)
            count[0] = loops.generate_conv_inds_cpu(
                *tensors, scale.batch, *spaces, kernel, stride, padding, one
            )

    def result() -> np.ndarray:
        return flat(normal(scale, outputs.numpy()[: count[0]], pairs.numpy(), counts.numpy()))

    return Entry("spconv, its C++ loop alone, tensors reused, no fill", run, result, every=SLOW)


def _module(name: str) -> ModuleType:
    return importlib.import_module(name)


def normal(scale: Scale, out_indices: np.ndarray, pairs: np.ndarray, counts: np.ndarray) -> Result:
    """Reorders spconv's result like the definition. Wrong values stay wrong."""
    counts = counts.copy()
    if scale.subm:  # mirrored offsets have the same pairs, with input and output exchanged
        centre = scale.volume // 2
        counts[centre] = scale.rows
        counts[centre + 1 :] = counts[:centre][::-1]
    else:
        order = np.lexsort(out_indices.T[::-1])
        place = np.empty(len(order) + 1, dtype=np.int32)
        place[order], place[-1] = np.arange(len(order), dtype=np.int32), -1  # the last entry maps -1 to -1
        out_indices, pairs = out_indices[order], np.stack((pairs[0], place[pairs[1]]))
    ordered = pairs.transpose(1, 0, 2).copy()
    for k, count in enumerate(counts):
        listed = ordered[k, :, :count]
        listed[:] = listed[:, np.argsort(listed[0], kind="stable")]
    return out_indices, ordered, counts


def krsc(filters: torch.Tensor, kernel: tuple[int, ...]) -> torch.Tensor:
    """Converts filters [volume, in, out] to spconv's layout, [out, k.., in]."""
    return filters.unflatten(0, kernel).movedim(-1, 0).contiguous()


def from_krsc(filters: torch.Tensor) -> torch.Tensor:
    return filters.movedim(0, -1).flatten(0, -3)


def works_without_driver() -> None:
    """Replaces the query for a GPU stream, which spconv's backward makes on the CPU as well."""
    _module("spconv.pytorch.ops").get_current_stream = lambda: 0


def convolution(scale: Scale, indices: np.ndarray) -> tuple[Callable, Callable]:
    """Submanifold layers over spconv's pairs: (features, filters) -> features and
    (features, filters, gradient) -> both gradients. They are correct on one thread only: several threads
    would add to the same rows."""
    works_without_driver()
    ops, algorithm = _module("spconv.pytorch.ops"), _module("spconv.core").ConvAlgo.Native
    one, zero = [1] * len(scale.space), [0] * len(scale.space)
    sizes = [list(x) for x in (scale.kernel, scale.stride, scale.padding)]
    sites = torch.from_numpy(indices)
    _, pairs, counts = ops.get_indice_pairs(
        sites, scale.batch, list(scale.space), algorithm, *sizes, one, zero, True, False
    )

    def forward(features: torch.Tensor, filters: torch.Tensor) -> torch.Tensor:
        return ops.indice_conv(features, filters, pairs, counts, len(sites), False, True, algorithm)

    def backward(
        features: torch.Tensor, filters: torch.Tensor, grad: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return ops.indice_conv_backward(features, filters, grad, pairs, counts, False, True, algorithm)

    return forward, backward


def network(make: Callable, layers: Callable, weights: dict) -> tuple[torch.nn.Module, Callable]:
    """Returns a network of spconv's layers in eval mode, and the class of its tensors.

    `make(layers)` creates it, `layers` is called with the classes; the weights are Turnout's.
    """
    package = _module("spconv.pytorch")
    package.SparseConvTensor.with_features = package.SparseConvTensor.replace_feature
    names = ("SparseSequential", "SubMConv3d", "SparseConv3d", "SparseInverseConv3d")
    made = make(layers(*(getattr(package, name) for name in names)))
    made.load_state_dict(
        {name: w.movedim(-1, 0).contiguous() if w.dim() == 5 else w for name, w in weights.items()}
    )
    made.eval()
    for module in made.modules():
        if isinstance(module, package.conv.SparseConvolution):
            module.training = True  # eval mode rejects a bias on the CPU; training mode adds it separately
    return made, package.SparseConvTensor
