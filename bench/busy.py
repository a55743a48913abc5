"""Convolutions while other processes keep all cores busy: torch's threads, Turnout's pool, one thread."""

from __future__ import annotations

import multiprocessing
import os

import numpy as np
import torch
from harness import Comparison, Entry, compare

import turnout
import turnout.torch

SPACE = (40, 200, 200)
SITES, CHANNELS = 60_000, 16


def burn() -> None:
    while True:
        pass


def run(seconds: float) -> list[Comparison]:
    rng = np.random.default_rng(0)
    cells = np.unravel_index(rng.choice(np.prod(SPACE), SITES, replace=False), SPACE)
    sites = torch.from_numpy(np.stack([np.zeros(SITES, np.int64), *cells], 1).astype(np.int32))
    _, pairs, counts = turnout.torch.get_indice_pairs(sites, 1, SPACE, 3, 1, 1, subm=True)[:3]
    features = torch.randn(SITES, CHANNELS)
    arguments = features, torch.randn(27, CHANNELS, CHANNELS), pairs, counts, SITES
    of_numpy = [one.numpy() if isinstance(one, torch.Tensor) else one for one in arguments]
    before = torch.get_num_threads(), turnout.get_num_threads()

    def through_torch(threads: int):
        def call():
            torch.set_num_threads(threads)
            return turnout.torch.indice_convolution(*arguments, subm=True)

        return call

    cores = os.cpu_count() or 1
    entries = [
        Entry("turnout.torch, 1 thread", through_torch(1)),
        Entry("turnout, own pool", lambda: turnout.indice_convolution_forward(*of_numpy, subm=True)),
        Entry(f"turnout.torch, {cores} threads", through_torch(cores)),
    ]
    turnout.set_num_threads(cores)
    spawn = multiprocessing.get_context("spawn")
    burners = [spawn.Process(target=burn, daemon=True) for _ in range(cores)]
    for burner in burners:
        burner.start()
    try:
        title = f"submanifold convolution of {SITES} sites, all {cores} cores kept busy by other processes"
        return [compare(title, entries, seconds=4 * seconds)]
    finally:
        for burner in burners:
            burner.kill()
        torch.set_num_threads(before[0])
        turnout.set_num_threads(before[1])
