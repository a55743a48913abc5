"""The RNN-T losses under torch.compile, torch.export and on two processes."""

import pytest
import torch
import torch.distributed
from transducers import batch, sums

from turnout.torch import (
    do_rnnt_pruning,
    get_rnnt_prune_ranges,
    rnnt_loss,
    rnnt_loss_pruned,
    rnnt_loss_pruned_fused,
    rnnt_loss_simple,
    rnnt_loss_smoothed,
)

pytestmark = pytest.mark.torch


def several(lm, am, text, boundary):
    full = torch.arange(lm.shape[1]).repeat(lm.shape[0], am.shape[1], 1)
    return (
        rnnt_loss(sums(lm, am), text, 0, boundary, "regular", 0.1)
        + rnnt_loss_simple(lm, am, text, 0, boundary, "modified")
        + rnnt_loss_smoothed(lm, am, text, 0, 0.1, 0.1, boundary, "constrained")
        + rnnt_loss_pruned(sums(lm, am), text, full, 0, boundary, fastemit_lambda=0.1)
        + rnnt_loss_pruned_fused(*(am, lm, lm[0, :1].expand(7, -1), text, full, "tanh", 0), boundary=boundary)
    )


def recipe(lm, am, text, boundary):
    simple, grads = rnnt_loss_simple(lm, am, text, 0, boundary, return_grad=True)
    ranges = get_rnnt_prune_ranges(*grads, boundary, 3)
    am_rows, lm_rows = do_rnnt_pruning(am, lm, ranges)
    return simple + rnnt_loss_pruned(am_rows + lm_rows, text, ranges, 0, boundary)


BOX = torch.tensor([[0, 0, 3, 5], [0, 0, 2, 4]])


def test_compile():
    torch.compiler.reset()
    compiled = torch.compile(several, fullgraph=True, dynamic=True, backend="aot_eager")
    for seed in (1, 2):
        lm, am, text, _ = batch(seed)
        lm.requires_grad_(), am.requires_grad_()
        results = [f(lm, am, text, BOX) for f in (several, compiled)]
        torch.testing.assert_close(*results)
        grads = [torch.autograd.grad(result, (lm, am)) for result in results]
        for a, b in zip(*grads, strict=True):
            torch.testing.assert_close(a, b)


def test_compile_a_recipe():
    """The number of rows depends on the boundary, a size that is known only when the graph runs."""
    torch.compiler.reset()
    compiled = torch.compile(recipe, fullgraph=True, backend="eager")
    lm, am, text, _ = batch(3)
    torch.testing.assert_close(compiled(lm, am, text, BOX), recipe(lm, am, text, BOX))


def test_export():
    class Loss(torch.nn.Module):
        def forward(self, lm, am, text, boundary):
            return several(lm, am, text, boundary)

    lm, am, text, _ = batch(4)
    program = torch.export.export(Loss(), (lm, am, text, BOX))
    lm, am, text, _ = batch(5)
    torch.testing.assert_close(program.module()(lm, am, text, BOX), several(lm, am, text, BOX))


def test_overwriting_under_compile_is_refused():
    torch.compiler.reset()
    lm, am, text, _ = batch(6)
    compiled = torch.compile(
        lambda x: rnnt_loss(x, text, 0, overwrite_logits=True), fullgraph=True, backend="eager"
    )
    with pytest.raises(Exception, match="overwrite_logits is True, expected False inside a torch transform"):
        compiled(sums(lm, am).requires_grad_())


# -- several processes -------------------------------------------------------------------------------------

LENGTHS = torch.tensor([[0, 0, 3, 5], [0, 0, 1, 2], [0, 0, 2, 5], [0, 0, 0, 1]])


def model():
    torch.manual_seed(7)
    return torch.nn.ModuleDict({"lm": torch.nn.Linear(6, 8), "am": torch.nn.Linear(6, 8)}).double()


class Transducer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = model()

    def forward(self, lm, am, text, boundary):
        return rnnt_loss_simple(
            self.parts["lm"](lm), self.parts["am"](am), text, 0, boundary, reduction="sum"
        )


RANKS = 2
SHARES = ([[0, 1], [2, 3]], [[0, 1, 2, 3], []])  # the rows of each rank, of unequal lengths; a rank has none


def gradients_on(rank, path):
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{path}/sync", rank=rank, world_size=RANKS
    )
    torch.set_num_threads(1)
    lm, am, text, _ = batch(8, (4, 5, 3, 6))
    grads = []
    for share in SHARES:
        transducer = torch.nn.parallel.DistributedDataParallel(Transducer())
        own = share[rank]
        transducer(lm[own], am[own], text[own], LENGTHS[own]).backward()
        grads.append([RANKS * p.grad for p in transducer.parameters()])  # DDP computes the mean
    torch.save(grads, f"{path}/{rank}")
    torch.distributed.destroy_process_group()


def test_several_processes(tmp_path):
    """The sum of all ranks' gradients equals that of one process."""
    torch.multiprocessing.spawn(gradients_on, (str(tmp_path),), nprocs=RANKS)
    transducer = Transducer()
    lm, am, text, _ = batch(8, (4, 5, 3, 6))
    transducer(lm, am, text, LENGTHS).backward()
    for rank in range(RANKS):
        for grads in torch.load(tmp_path / str(rank)):
            for grad, parameter in zip(grads, transducer.parameters(), strict=True):
                torch.testing.assert_close(grad, parameter.grad)
