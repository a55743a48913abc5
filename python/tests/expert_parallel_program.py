"""The program of each process in the tests of expert_parallel."""

import os
import sys
import time

import pytest
import torch

import turnout.torch

EXPERTS, HIDDEN, WIDTH, SAMPLES = 4, 3, 5, 24


def weights():
    return torch.randn(
        EXPERTS, HIDDEN, WIDTH, generator=torch.Generator().manual_seed(3), dtype=torch.float64
    )


def experts_of(parameter):
    """Each expert multiplies by its own matrix."""

    def experts(rows, counts):
        parts = rows.split(counts.tolist())
        return torch.cat([part @ matrix for part, matrix in zip(parts, parameter, strict=True)])

    return experts


def problem(kind):
    random = torch.Generator().manual_seed(7)
    tokens = torch.randn(SAMPLES, HIDDEN, generator=random, dtype=torch.float64)
    indices = torch.randint(EXPERTS, (SAMPLES, 2), generator=random)
    if kind == "one expert":
        indices = torch.full_like(indices, EXPERTS - 1)
    gates = torch.rand(SAMPLES, 2, generator=random, dtype=torch.float64)
    return tokens, indices, gates


def splits(kind, world):
    if kind == "no tokens":
        return [SAMPLES] + [0] * (world - 1)
    first = SAMPLES - 2 * (world - 1)
    return [first] + [2] * (world - 1)


def run(kind, rank, world):
    """Returns the outputs of this process's tokens, and the gradients of the sum of all losses."""
    tokens, indices, gates = problem(kind)
    mine = [t.split(splits(kind, world))[rank].clone() for t in (tokens, indices, gates)]
    tokens, gates = mine[0].requires_grad_(), mine[2].requires_grad_()
    local = EXPERTS // world
    parameter = weights()[rank * local : (rank + 1) * local].clone().requires_grad_()
    output = turnout.torch.expert_parallel(tokens, mine[1], gates, experts_of(parameter), EXPERTS, timeout=30)
    output.sin().sum().backward()
    return output.detach(), tokens.grad, gates.grad, parameter.grad


def same_as_alone(rank, world):
    """Several processes have the same outputs and gradients as one."""
    for kind in ("uneven", "no tokens", "one expert"):
        results = run(kind, rank, world)
        tokens, indices, gates = problem(kind)
        tokens.requires_grad_()
        gates.requires_grad_()
        parameter = weights().requires_grad_()
        every = torch.einsum("sh,ehw->sew", tokens, parameter)
        chosen = every.gather(1, indices[..., None].expand(-1, -1, WIDTH))
        output = (gates[..., None] * chosen).sum(1)
        output.sin().sum().backward()
        local = EXPERTS // world
        expected = [t.split(splits(kind, world))[rank] for t in (output.detach(), tokens.grad, gates.grad)]
        expected.append(parameter.grad[rank * local : (rank + 1) * local])
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(result, wanted)
    print("same")


def a_rank_dies(rank, world):
    """The last process ends before the exchange; the others name it."""
    if rank == world - 1:
        sys.stdout.flush()
        os._exit(7)
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=f"expert_parallel: .*rank {world - 1} did not respond"):
        run("uneven", rank, world)
    assert time.monotonic() - started < 40
    print("named", flush=True)
    os._exit(0)  # the group is broken; its destructor would wait for the others


def a_rank_stays_away(rank, world):
    """The last process is too late; the others name it after the timeout."""
    if rank == world - 1:
        time.sleep(8)
        os._exit(0)
    tokens, indices, gates = problem("uneven")
    started = time.monotonic()
    with pytest.raises(RuntimeError, match=f"took more than 1.0 s: rank {world - 1} did not respond"):
        turnout.torch.expert_parallel(tokens, indices, gates, experts_of(weights()), EXPERTS, timeout=1.0)
    assert time.monotonic() - started < 20
    print("named", flush=True)
    os._exit(0)


def another_width(rank, world):
    """Each process names the first one whose rows differ from its own."""
    tokens = torch.ones(4, HIDDEN + rank)
    indices = torch.zeros(4, dtype=torch.int64)
    other = 1 if rank == 0 else 0
    message = f"expert_parallel: rank {other} sends rows of {HIDDEN + other} "
    with pytest.raises(RuntimeError, match=message):
        turnout.torch.expert_parallel(tokens, indices, None, lambda rows, counts: rows, EXPERTS)

    def experts(rows, counts):
        return torch.ones(len(rows), 5 + rank)

    message = f"expert_parallel: the experts of rank {other} return rows of {5 + other} elements of 4 bytes"
    with pytest.raises(RuntimeError, match=message):
        turnout.torch.expert_parallel(torch.ones(4, HIDDEN), indices, None, experts, EXPERTS)
    print("named")


def same_as_alone_then_another_width(rank, world):
    same_as_alone(rank, world)
    another_width(rank, world)
