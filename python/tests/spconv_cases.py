"""Layers and networks of spconv, their results with spconv 2.3.8, and the program that recorded them.

For each case, data/spconv.npz has the state of its modules, sites and features, and spconv's results: the
outputs with their sites in ascending order, and the gradients of features and parameters. Layers use small
integers, whose sums are exact, so a correct implementation has identical results. To record them again, with
spconv 2.3.8 (CPU) and its dependencies installed in a folder:

    PYTHONPATH=folder python spconv_cases.py

spconv runs on one thread, because two give wrong rows. Convolutions are in training mode, because it rejects
a bias in eval mode. Its query for a CUDA stream is answered with 0, because its gradients otherwise need a
driver.
"""

from pathlib import Path

import numpy as np
import torch

DATA = Path(__file__).parent / "data" / "spconv.npz"
SPACES = {1: (17,), 2: (7, 8), 3: (5, 6, 7), 4: (4, 5, 4, 5)}
BATCH, CHANNELS, ROWS = 2, 3, {1: 12, 2: 24, 3: 50, 4: 60}

# Each entry builds modules of a given rank from a package: spconv.pytorch or its stand-in.
LAYERS = {
    "subm": lambda sp, n: [_of(sp, "SubMConv", n)(3, 4, 3)],
    "subm_dilated": lambda sp, n: [_of(sp, "SubMConv", n)(3, 2, 3, padding=1, dilation=2, bias=False)],
    "subm_shared_key": lambda sp, n: [
        _of(sp, "SubMConv", n)(3, 2, 3, indice_key="one"),
        _of(sp, "SubMConv", n)(2, 3, 3, indice_key="one"),
    ],
    "subm_1x1": lambda sp, n: [_of(sp, "SubMConv", n)(3, 4, 1, padding=1, indice_key="unused")],
    "sparse": lambda sp, n: [_of(sp, "SparseConv", n)(3, 4, 3, 2, 1)],
    "sparse_dilated": lambda sp, n: [_of(sp, "SparseConv", n)(3, 2, 2, 1, 1, 2, bias=False)],
    "sparse_1x1": lambda sp, n: [_of(sp, "SparseConv", n)(3, 4, 1)],
    "sparse_1x1_stride": lambda sp, n: [_of(sp, "SparseConv", n)(3, 4, 1, 2)],
    "transposed": lambda sp, n: [_of(sp, "SparseConvTranspose", n)(3, 2, 3, 2, 1)],
    "inverse": lambda sp, n: [
        _of(sp, "SparseConv", n)(3, 2, 3, 2, 1, indice_key="down"),
        _of(sp, "SparseInverseConv", n)(2, 3, 3, "down"),
    ],
    "max_pool": lambda sp, n: [_of(sp, "SparseMaxPool", n)(2, algo=sp.ConvAlgo.Native)],
    "max_pool_overlapping": lambda sp, n: [
        _of(sp, "SparseMaxPool", n)(3, 2, 1, indice_key="pool", algo=sp.ConvAlgo.Native),
        _of(sp, "SparseInverseConv", n)(3, 2, 3, "pool", bias=False),
    ],
}
CASES = [(name, dims) for name in LAYERS for dims in SPACES]
# Voxel size, range, points, and the maximum number of voxels.
CLOUDS = {
    1: ([0.5], [0, 4], 26, 5),
    2: ([0.5, 1], [0, -2, 4, 2], 60, 12),
    3: ([0.5, 1, 2], [0, -2, -1, 4, 2, 3], 200, 40),
}


def _of(sp, kind, dims):
    return getattr(sp, f"{kind}{dims}d")


def layer(sp, name, dims):
    return sp.SparseSequential(*LAYERS[name](sp, dims)).double()


class UNet(torch.nn.Module):
    """A UNet with the layers of segmentation checkpoints."""

    def __init__(self, sp):
        super().__init__()

        def block(conv, channels):
            return sp.SparseSequential(conv, torch.nn.BatchNorm1d(channels), torch.nn.ReLU())

        self.stem = block(sp.SubMConv3d(3, 4, 5, padding=1, bias=False, indice_key="stem"), 4)
        self.first = block(sp.SubMConv3d(4, 4, 3, padding=1, indice_key="subm1"), 4)
        self.down = block(sp.SparseConv3d(4, 6, 2, 2, bias=False, indice_key="down"), 6)
        self.second = block(sp.SubMConv3d(6, 6, 3, indice_key="subm2"), 6)
        self.up = block(sp.SparseInverseConv3d(6, 4, 2, "down", bias=False), 4)
        self.shortcut = sp.SubMConv3d(8, 4, 1, bias=False)
        self.last = block(sp.SubMConv3d(4, 4, 3, indice_key="subm1"), 4)
        self.final = sp.SubMConv3d(4, 5, 1, padding=1, bias=True)

    def forward(self, x):
        x = self.first(self.stem(x))
        up = self.up(self.second(self.down(x)))
        up = self.shortcut(up.replace_feature(torch.cat([up.features, x.features], 1)))
        return self.final(self.last(up))


def sites(rng, dims):
    cells = (BATCH, *SPACES[dims])
    chosen = rng.choice(np.prod(cells), ROWS[dims], replace=False)
    return np.stack(np.unravel_index(chosen, cells), 1).astype(np.int32)


def integer_state(module, rng):
    return {
        key: torch.from_numpy(rng.integers(-4, 5, value.shape).astype(np.float64))
        for key, value in module.state_dict().items()
    }


def run(sp, module, state, indices, features):
    """Returns the module's outputs for these sites, and its gradients, as arrays by name."""
    module.load_state_dict(state)
    features = torch.from_numpy(features).requires_grad_()
    space = SPACES[indices.shape[1] - 1]
    out = module(sp.SparseConvTensor(features, torch.from_numpy(indices), list(space), BATCH))
    order = np.lexsort(out.indices.numpy().T[::-1])
    rows = out.features[order]
    weights = torch.arange(rows.numel()).view(rows.shape) % 7 - 3  # one per output, some negative
    inputs = {"features": features, **dict(module.named_parameters())}
    grads = torch.autograd.grad((rows * weights).sum(), inputs.values())
    return {
        "out": rows.detach().numpy(),
        "out_indices": out.indices.numpy()[order],
        "out_shape": np.array(out.spatial_shape),
        **{f"grad {name}": grad.numpy() for name, grad in zip(inputs, grads, strict=True)},
    }


def points(rng, dims):
    """Draws points in and around a grid, too many for some voxels; the last column is not a coordinate."""
    _, ends, count, _ = CLOUDS[dims]
    low, high = np.array(ends[:dims]), np.array(ends[dims:])
    at = low - 0.5 + rng.random((count, dims)) * (high - low + 1)
    return np.concatenate([at, rng.random((count, 1))], 1).astype(np.float32)


def voxels(generator_class, dims, cloud):
    size, ends, _, most = CLOUDS[dims]
    generator = generator_class(size, ends, dims + 1, most, 3)
    results = generator.generate_voxel_with_id(torch.from_numpy(cloud))
    return dict(zip(("voxels", "indices", "num", "id"), (x.numpy() for x in results), strict=True))


def stored():
    """Returns the recorded arrays: one dict per case, by "layer dims", "unet" and "points dims"."""
    cases = {}
    with np.load(DATA) as file:
        for key in file.files:
            case, name = key.split("/")
            cases.setdefault(case, {})[name] = file[key]
    return cases


def state_of(case):
    return {
        name.removeprefix("state "): torch.from_numpy(value.astype(np.float64, copy=False))
        for name, value in case.items()
        if name.startswith("state ")
    }


def record():
    import spconv.pytorch as sp
    from spconv.pytorch import ops
    from spconv.pytorch.utils import PointToVoxel

    torch.set_num_threads(1)
    ops.get_current_stream = lambda: 0
    rng = np.random.default_rng(16)
    torch.manual_seed(16)
    arrays = {}

    def add(case, module, state, indices, features, as_integers):
        results = run(sp, module, state, indices, features)
        values = {"indices": indices, "features": features, **results}
        values |= {f"state {key}": value.numpy() for key, value in state.items()}
        for name, value in values.items():
            if as_integers:
                small = value.astype(np.int16)
                assert np.array_equal(small, value), (case, name)
                value = small
            arrays[f"{case}/{name}"] = value

    for name, dims in CASES:
        module, indices = layer(sp, name, dims), sites(rng, dims)
        features = rng.integers(-4, 5, (len(indices), CHANNELS)).astype(np.float64)
        add(f"{name} {dims}", module, integer_state(module, rng), indices, features, as_integers=True)

    network = UNet(sp).double().eval()
    for module in network.modules():
        if isinstance(module, sp.conv.SparseConvolution):
            module.training = True
        elif isinstance(module, torch.nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    indices = sites(rng, 3)
    features = rng.standard_normal((len(indices), CHANNELS))
    add("unet", network, network.state_dict(), indices, features, as_integers=False)

    for dims in CLOUDS:
        cloud = points(rng, dims)
        for name, value in {"points": cloud, **voxels(PointToVoxel, dims, cloud)}.items():
            arrays[f"points {dims}/{name}"] = value
    DATA.parent.mkdir(exist_ok=True)
    np.savez_compressed(DATA, **arrays)


if __name__ == "__main__":
    record()
