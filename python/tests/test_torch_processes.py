"""Sparse networks in more than one process: distributed training, and workers of a DataLoader."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sparse_networks import scene

import turnout.compat.spconv as spconv

pytestmark = pytest.mark.torch


def test_distributed_data_parallel(tmp_path):
    """Gradients equal those of one process; a process without sites takes part. See ddp_ranks.py."""
    program = Path(__file__).with_name("ddp_ranks.py")
    done = subprocess.run(
        [sys.executable, program, "4", tmp_path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr


class Scans(torch.utils.data.Dataset):
    """Each item is a sparse tensor made by a layer, with named pairs."""

    def __len__(self):
        return 2

    def __getitem__(self, i):
        torch.manual_seed(i)
        x = scene(np.random.default_rng(i), 30, (5, 6, 7), kind=spconv.SparseConvTensor)
        with torch.no_grad():
            return spconv.SparseConv3d(3, 4, 3, 2, indice_key="down").double()(x), torch.get_num_threads()


def only(items):
    return items[0]


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_sparse_tensors_of_data_loader_workers(start):
    loader = torch.utils.data.DataLoader(
        Scans(), num_workers=1, multiprocessing_context=start, collate_fn=only, timeout=120
    )
    up = spconv.SparseInverseConv3d(4, 2, 3, "down").double()
    received = list(loader)
    assert len(received) == 2
    for i, (x, threads) in enumerate(received):
        wanted, _ = Scans()[i]
        assert type(x) is spconv.SparseConvTensor and threads == 1
        assert torch.equal(x.features, wanted.features) and torch.equal(x.indices, wanted.indices)
        assert x.features.is_shared() and x.indices.is_shared()
        assert x.indice_dict["down"].indice_pairs.is_shared()
        assert torch.equal(up(x).features, up(wanted).features)


def test_pickle(rng):
    x = scene(rng, 30, (5, 6, 7), kind=spconv.SparseConvTensor)
    network = spconv.SparseSequential(
        spconv.SubMConv3d(3, 4, 3, indice_key="subm"),
        torch.nn.BatchNorm1d(4),
        spconv.SparseConv3d(4, 4, 3, 2, indice_key="down", record_voxel_count=True),
    ).double()
    again = pickle.loads(pickle.dumps(network))
    out = network(x)
    assert torch.equal(again(x).features, out.features)
    out.features = out.features.detach()
    sent = pickle.loads(pickle.dumps(out))
    assert type(sent) is spconv.SparseConvTensor and list(sent.indice_dict) == ["subm", "down"]
    assert sent.find_indice_pair("down").ksize == [3, 3, 3] and sent.spatial_shape == out.spatial_shape
    up = spconv.SparseInverseConv3d(4, 2, 3, "down").double()
    assert torch.equal(up(sent).features, up(out).features)
