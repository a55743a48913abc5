"""Trains a sparse network with DistributedDataParallel: python ddp_ranks.py <processes> <folder>.

Each process has its own scan; that of process 1 has no sites. If a process finds an error, it and the program
fail.
"""

import datetime
import sys

import numpy as np
import torch
import torch._dynamo  # imported by DistributedDataParallel; once here instead of in every process
import torch.multiprocessing
from torch.nn.parallel import DistributedDataParallel

import turnout.compat.spconv as spconv

SPACE = (6, 8, 7)
EMPTY = 1


class Network(torch.nn.Module):
    """One of every kind of layer that has parameters, and of every pool."""

    def __init__(self):
        super().__init__()

        def block(conv):
            return spconv.SparseSequential(conv, torch.nn.BatchNorm1d(conv.out_channels), torch.nn.ReLU())

        self.stem = block(spconv.SubMConv3d(3, 4, 3, bias=False, indice_key="subm"))
        self.norm = torch.nn.BatchNorm1d(4)
        self.sparse_norm = spconv.SparseBatchNorm(4)
        self.down = block(spconv.SparseConv3d(4, 6, 3, 2, 1, indice_key="down"))
        self.shortcut = spconv.SubMConv3d(6, 6, 1)
        self.pool = spconv.SparseMaxPool3d(2, indice_key="pool")
        self.unpool = spconv.SparseInverseConv3d(6, 6, 2, "pool")
        self.up = block(spconv.SparseInverseConv3d(6, 4, 3, "down", bias=False))
        self.mean = spconv.SparseAvgPool3d(2)
        self.wide = spconv.SparseConvTranspose3d(4, 3, 2, 2)
        self.most, self.average = spconv.SparseGlobalMaxPool(), spconv.SparseGlobalAvgPool()
        self.head = torch.nn.Linear(6, 2)

    def forward(self, features, indices):
        x = self.stem(spconv.SparseConvTensor(features, indices, SPACE, 2))
        x = self.sparse_norm(x.replace_feature(self.norm(x.features)))
        low = self.shortcut(self.down(x))
        x = x + self.up(self.unpool(self.pool(low)) + low)
        x = self.wide(self.mean(x))
        score = self.head(torch.cat([self.most(x), self.average(x)], 1))
        return score.square().sum() + x.dense().square().sum()


def scan(rank):
    rng = np.random.default_rng(rank)
    cells = (2, *SPACE)
    sites = rng.choice(np.prod(cells), 0 if rank == EMPTY else 60, replace=False)
    indices = np.stack(np.unravel_index(sites, cells), 1).astype(np.int32)
    return torch.from_numpy(rng.standard_normal((len(sites), 3))), torch.from_numpy(indices)


def new_network():
    torch.manual_seed(3)
    return Network().double()


def gradients(network, *ranks):
    """Computes the gradients of the sum of these processes' losses in one process."""
    for rank in ranks:
        network(*scan(rank)).backward()
    return {name: p.grad for name, p in network.named_parameters()}


def train(rank, processes, folder):
    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/store",
        rank=rank,
        world_size=processes,
        timeout=datetime.timedelta(seconds=60),
    )
    network = DistributedDataParallel(new_network())
    network(*scan(rank)).backward()
    wanted = gradients(new_network(), *range(processes))
    for name, parameter in network.module.named_parameters():
        assert parameter.grad.count_nonzero() > 0, name
        torch.testing.assert_close(processes * parameter.grad, wanted[name], rtol=1e-10, atol=1e-10)
    # A process without sites has all gradients, too. They are zero, except for the bias of the head.
    for name, grad in gradients(new_network(), EMPTY).items():
        assert grad is not None, name
        assert name == "head.bias" or grad.count_nonzero() == 0, name
    refuse_sync_batch_norm(rank)
    torch.distributed.destroy_process_group()


def refuse_sync_batch_norm(rank):
    """torch has none for CPUs; every process raises the error, so none waits for the others."""
    network = torch.nn.SyncBatchNorm.convert_sync_batchnorm(new_network())
    try:
        network(*scan(rank))
    except ValueError as error:
        assert str(error).startswith("SyncBatchNorm expected input tensor to be on"), error
    else:
        raise AssertionError("SyncBatchNorm was accepted")


if __name__ == "__main__":
    processes, folder = int(sys.argv[1]), sys.argv[2]
    # Fork, so that torch is imported only once; it has not started any thread yet.
    torch.multiprocessing.start_processes(train, (processes, folder), processes, start_method="fork")
