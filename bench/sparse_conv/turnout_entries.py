"""Turnout, called from NumPy and torch; its scratch memory; the floor, a memset of the pairs."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Callable

import harness
import numpy as np
import torch
from harness import Entry
from sparse_conv.shapes import Scale, Sites, flat

import turnout
import turnout.torch


def arguments(scale: Scale) -> dict:
    return {
        "batch_size": scale.batch,
        "spatial_shape": scale.space,
        "kernel_size": scale.kernel,
        "stride": scale.stride,
        "padding": scale.padding,
        "subm": scale.subm,
    }


def warm(sites: Sites, name: str = "turnout, out= reused") -> Entry:
    # np.full maps the pages: all entries must write to the same kind of memory.
    outputs = len(turnout.get_indice_pairs(sites.indices, **arguments(sites.scale))[0])
    out = (
        np.full((outputs, sites.indices.shape[1]), 0, dtype=np.int32),
        np.full(sites.scale.pairs_shape, 0, dtype=np.int32),
        np.full(sites.scale.volume, 0, dtype=np.int32),
    )
    options = arguments(sites.scale)
    return Entry(name, lambda: turnout.get_indice_pairs(sites.indices, **options, out=out), lambda: flat(out))


def fresh(sites: Sites) -> Entry:
    """Makes new arrays in each call, from Turnout's output cache if that is on."""
    options = arguments(sites.scale)
    kept: list[np.ndarray] = []

    def run() -> None:
        kept[:] = turnout.get_indice_pairs(sites.indices, **options)

    return Entry("turnout, new results", run, lambda: flat(tuple(kept)))


def torch_op(sites: Sites) -> Entry:
    indices, options = torch.from_numpy(sites.indices), arguments(sites.scale)
    op = torch.ops.turnout.get_indice_pairs
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = op(indices, **options)

    return Entry("torch.ops.turnout, new results", run, lambda: flat(tuple(x.numpy() for x in kept)))


def floors(sites: Sites) -> list[Entry]:
    return harness.fill_floors(
        np.full(sites.scale.pairs_shape, 0, dtype=np.int32), "the pairs filled with -1"
    )


def scratch_bytes(sites: Sites) -> int:
    options = arguments(sites.scale)
    return logged_scratch("get_indice_pairs", lambda: turnout.get_indice_pairs(sites.indices, **options))


def logged_scratch(operator: str, call: Callable[[], object]) -> int:
    """Reads the scratch memory of a call from the log on file descriptor 2."""
    stderr = os.dup(2)
    with tempfile.TemporaryFile("w+") as log:
        os.dup2(log.fileno(), 2)
        turnout._core.set_log(1)
        try:
            call()
        finally:
            turnout._core.set_log(0)
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        line = re.search(rf"{operator}\(.* scratch=(\d+) ", log.read())
    if line is None:
        raise SystemExit(f"the log does not report the scratch memory of {operator}")
    return int(line[1])
