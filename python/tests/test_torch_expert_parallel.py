"""Experts on one, two and four processes: equal results, and failures that name a rank."""

import expert_parallel_program as program
import processes
import pytest
import torch

import turnout.torch

pytestmark = pytest.mark.torch


def test_one_process():
    """Without torch.distributed, this process has all experts."""
    tokens, indices, gates = program.problem("uneven")
    parameter = program.weights()
    output = turnout.torch.expert_parallel(
        tokens, indices, gates, program.experts_of(parameter), program.EXPERTS
    )
    expected = sum(
        gates[:, k, None] * torch.einsum("sh,shw->sw", tokens, parameter[indices[:, k]]) for k in range(2)
    )
    torch.testing.assert_close(output, expected)
    plain = turnout.torch.expert_parallel(
        tokens, indices[:, 0], None, program.experts_of(parameter), program.EXPERTS
    )
    torch.testing.assert_close(plain, torch.einsum("sh,shw->sw", tokens, parameter[indices[:, 0]]))


@pytest.mark.parametrize("world", [2, 4])
def test_several_processes_give_the_same(world):
    """In the last step, the processes have rows of different widths."""
    outputs = processes.run_well(world, "expert_parallel_program", "same_as_alone_then_another_width")
    assert outputs == ["same\nnamed\n"] * world


@pytest.mark.parametrize("failure", ["a_rank_dies", "a_rank_stays_away"])
def test_a_missing_rank_is_named(failure):
    (status, output), _ = processes.run(2, "expert_parallel_program", failure)
    assert (status, output) == (0, "named\n"), output


def test_messages():
    tokens, indices, gates = program.problem("uneven")
    with pytest.raises(ValueError, match=r"expert_parallel: indices has values outside 0 \.\. 2"):
        turnout.torch.expert_parallel(tokens, indices, gates, None, 3)
    with pytest.raises(
        ValueError, match=r"expert_parallel: experts returned shape \[1, 3\], expected \[48, "
    ):
        turnout.torch.expert_parallel(tokens, indices, gates, lambda rows, counts: rows[:1], 4)
