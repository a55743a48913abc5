"""Sparse networks that tests share, and the same networks on dense grids."""

import torch
from test_sparse_conv import distinct_sites
from torch.nn import functional

from turnout.torch import nn

# CenterPoint's middle encoder, with a fraction of its channels: the stem, four stages of two residual blocks
# with a convolution of stride 2 between them, and one convolution that shrinks the height.
ENCODER_SPACE = (41, 12, 12)
ENCODER_CHANNELS = (3, 4, 6, 8, 8)
ENCODER_PADDING = (1, 1, (0, 1, 1))


class Block(nn.SparseModule):
    def __init__(self, channels, convolution):
        super().__init__()
        self.conv1, self.conv2 = convolution(channels), convolution(channels)
        self.norm1, self.norm2 = torch.nn.BatchNorm1d(channels), torch.nn.BatchNorm1d(channels)

    def forward(self, x):
        out = self.conv1(x)
        out.features = torch.relu(self.norm1(out.features))
        out = self.conv2(out)
        out.features = torch.relu(self.norm2(out.features) + x.features)
        return out


def encoder(sequential, subm, sparse):
    """Builds CenterPoint's encoder from the given classes: a sequence, and 3-D convolutions."""

    def downsampling(*arguments):
        layer = sparse(*arguments, bias=False)
        return sequential(layer, torch.nn.BatchNorm1d(layer.out_channels), torch.nn.ReLU())

    def convolution(channels):
        return subm(channels, channels, 3, bias=True)

    stem, *stages = ENCODER_CHANNELS
    layers = [
        sequential(subm(stem, stages[0], 3, bias=False), torch.nn.BatchNorm1d(stages[0]), torch.nn.ReLU())
    ]
    for i, channels in enumerate(stages):
        layers += [Block(channels, convolution), Block(channels, convolution)]
        if i < 3:
            layers.append(downsampling(channels, stages[i + 1], 3, 2, ENCODER_PADDING[i]))
    layers.append(downsampling(stages[-1], stages[-1], (3, 1, 1), (2, 1, 1), 0))
    return sequential(*layers)


def plain_encoder():
    return encoder(
        nn.SparseSequential,
        lambda *a, **k: nn.SubMConv(3, *a, **k),
        lambda *a, **k: nn.SparseConv(3, *a, **k),
    )


def scene(rng, rows=150, space=ENCODER_SPACE, channels=3, batch=2, dtype=torch.float64, kind=nn.SparseTensor):
    indices = torch.from_numpy(distinct_sites(rng, rows, batch, space))
    features = torch.from_numpy(rng.standard_normal((rows, channels))).to(dtype)
    return kind(features, indices, space, batch)


class Dense:
    """A dense grid and its active sites; runs networks of sparse modules with torch only."""

    def __init__(self, grid, active):
        self.grid, self.active = grid, active

    @classmethod
    def of(cls, x):
        active = torch.zeros(x.batch_size, *x.spatial_shape, dtype=torch.bool)
        active[tuple(x.indices.long().T)] = True
        return cls(x.dense(), active)

    @property
    def features(self):
        return self.grid.movedim(1, -1)[self.active]

    @features.setter
    def features(self, rows):
        grid = rows.new_zeros((*self.active.shape, rows.shape[1]))
        self.grid = grid.index_put(torch.where(self.active), rows).movedim(-1, 1)

    def run(self, module):
        if isinstance(module, nn.SparseSequential):
            x = self
            for child in module.children():
                x = x.run(child)
            return x
        if isinstance(module, Block):
            out = self.run(module.conv1)
            out.features = torch.relu(module.norm1(out.features))
            out = out.run(module.conv2)
            out.features = torch.relu(module.norm2(out.features) + self.features)
            return out
        if isinstance(module, nn.SparseConvolution):
            return self._convolve(module)
        out = Dense(None, self.active)
        out.features = module(self.features)
        return out

    def _convolve(self, module):
        weight = module.filters().movedim((-1, -2), (0, 1))  # [out, in, k...]
        active = self.active
        if module.subm:
            padding = [k // 2 * d for k, d in zip(module.kernel_size, module.dilation, strict=True)]
            grid = functional.conv3d(self.grid, weight, None, 1, padding, module.dilation)
        else:
            options = {"stride": module.stride, "padding": module.padding, "dilation": module.dilation}
            grid = functional.conv3d(self.grid, weight, None, **options)
            ones = torch.ones(1, 1, *module.kernel_size, dtype=torch.float64)
            active = functional.conv3d(self.active[:, None].double(), ones, **options)[:, 0] > 0.5
        if module.bias is not None:
            grid = grid + module.bias[:, None, None, None]
        return Dense(grid * active[:, None], active)


def small_unet():
    """Returns a network with every kind of layer, for 3 channels."""
    return nn.SparseSequential(
        nn.SubMConv(3, 3, 4, 3, bias=False),
        torch.nn.BatchNorm1d(4),
        torch.nn.ReLU(),
        nn.SparseConv(3, 4, 5, 3, 2, 1, indice_key="down"),
        torch.nn.BatchNorm1d(5),
        nn.SubMConv(3, 5, 5, 1),
        nn.SparseInverseConv(3, 5, 2, 3, "down"),
    )
