"""The published comparisons of moe_dispatch."""

from __future__ import annotations

import torch
from harness import Entry
from moe_dispatch import torch_peer, turnout_entries
from moe_dispatch.movements import Gradients, Layer, Routing, tutel_locations
from moe_dispatch.shapes import SEED, WIDE, Routed, Scale
from recorded import Case, Programs

import turnout
import turnout.check
import turnout.torch

GATHER = "PyTorch `index_select(out=)` with a ready index, `mul_`"
NARROW = 65536  # tokens of a few columns


def cases() -> list[Case]:
    found = [
        Case(f"moe_dispatch-{scale.hidden}", "moe_dispatch_forward", size_of(scale), *rest)
        for scale in (SEED, WIDE, *(Scale(NARROW, columns, 64, 1152) for columns in (1, 16)))
        for rest in [("f32", GATHER, "reused", lambda scale=scale: dispatch(scale))]
    ]
    found += [
        Case(
            *("moe_dispatch-tiny", "torch.ops.turnout.moe_dispatch_forward", "16 tokens x 64, 8 experts"),
            *("f32", "PyTorch `zeros`, `index_copy_`", "new", tiny),
        ),
        Case(
            *("moe_dispatch-gradient", "moe_dispatch_backward", "18432 tokens x 512, 2 experts", "f32"),
            *("PyTorch `index_select`, `mul`, `sum`, all `out=`", "reused", gradient),
        ),
        Case(
            *("moe_locations", "moe_locations", "16384 tokens, 64 experts, 2 choices", "int64"),
            *("PyTorch `one_hot`, `cumsum`, as Tutel", "reused, new", locations),
        ),
        Case(
            *("moe_token_permute", "moe_token_permute", "16384 tokens x 2048, 64 experts, 2 choices", "bf16"),
            *("PyTorch stable `argsort`, `index_select`", "new", permute),
        ),
    ]
    for dtype in (torch.float32, torch.bfloat16):
        name = {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]
        found.append(
            Case(
                *(f"moe_combine-{name}", "moe_combine", "16384 tokens x 2048, 64 experts, 2 choices", name),
                *("PyTorch `embedding_bag` with a ready index", "new", lambda d=dtype: combine(d)),
            )
        )
    layer = "16384 tokens x 4096, 64 experts, 2 choices"
    peer = "PyTorch `one_hot`, `cumsum`, `index_add_`, `index_select`, as Tutel"
    found.append(Case("moe_layer", "routing of a layer", layer, "f32", peer, "reused", whole_layer))
    return found


def size_of(scale: Scale) -> str:
    return f"{scale.samples} tokens x {scale.hidden}, {scale.num_experts} experts"


def dispatch(scale: Scale) -> Programs:
    routed = Routed(scale)
    return Programs(turnout_entries.keep(routed), torch_peer.index_select(routed), routed.definition())


def returning(name: str, call) -> Entry:
    kept: list[torch.Tensor] = []

    def run() -> None:
        kept[:] = [call()]

    return Entry(name, run, lambda: kept[0].float().numpy())


def tiny() -> Programs:
    routed = Routed(Scale(16, 64, 8, 64))
    tensors = [torch.from_numpy(x) for x in (routed.gates, routed.indices, routed.locations, routed.input)]
    gates, x, rows = tensors[0][:, None], tensors[3], torch.from_numpy(routed.rows)
    op = torch.ops.turnout.moe_dispatch_forward
    return Programs(
        returning("turnout", lambda: op(*tensors, 64, 8)),
        returning("torch", lambda: torch.zeros(512, 64).index_copy_(0, rows, x * gates)),
        routed.definition(),
        options={"calls": 100},
    )


def gradient() -> Programs:
    r = Routing(SEED, 1)
    g, rows = Gradients(r), torch.from_numpy(r.rows[:, 0])
    buffers, tokens, gates = (torch.from_numpy(a) for a in (r.buffers, r.tokens, r.gates))
    gathered, grad_input, grad_gates = (torch.ones(s) for s in (tokens.shape, tokens.shape, len(tokens)))

    def by_torch() -> None:
        torch.index_select(buffers, 0, rows, out=gathered)
        torch.mul(gathered, gates, out=grad_input)
        torch.sum(gathered.mul_(tokens), 1, out=grad_gates)

    return Programs(
        Entry("turnout", g.fused, lambda: (g.grad_input, g.grad_gates)),
        Entry("torch", by_torch, lambda: (grad_input.numpy(), grad_gates.numpy())),
        g.definition(),
        tolerance=1e-5,
    )


def combine(dtype: torch.dtype) -> Programs:
    r = Routing(Scale(16384, 2048, 64, 0), 2)
    buffers, gates = torch.from_numpy(r.buffers).to(dtype), torch.from_numpy(r.gates).to(dtype)
    routing, rows = [torch.from_numpy(x) for x in (r.indices, r.locations)], torch.from_numpy(r.rows)
    bag = torch.nn.functional.embedding_bag
    arguments = buffers.float().numpy(), r.indices, r.locations, r.capacity, gates.float().numpy()
    return Programs(
        returning("turnout", lambda: turnout.torch.moe_combine(buffers, *routing, r.capacity, gates)),
        returning("torch", lambda: bag(rows, buffers, per_sample_weights=gates, mode="sum")),
        turnout.check.moe_combine(*arguments),
        tolerance=1e-5 if dtype == torch.float32 else 2e-2,
    )


def locations() -> Programs:
    samples, experts, choices = 16384, 64, 2
    ids = torch.randint(experts, (samples, choices), generator=torch.Generator().manual_seed(1))
    out = turnout.moe_locations(ids.numpy(), experts)
    kept: list[torch.Tensor] = []

    def by_torch() -> None:
        kept[:] = tutel_locations(ids, experts)

    return Programs(
        Entry("turnout", lambda: turnout.moe_locations(ids.numpy(), experts, out=out), lambda: out),
        Entry("torch", by_torch, lambda: tuple(x.numpy() for x in kept)),
        turnout.check.moe_locations(ids.numpy(), experts),
    )


def permute() -> Programs:
    random = torch.Generator().manual_seed(1)
    x = torch.randn(16384, 2048, generator=random).bfloat16()
    ids = torch.rand(16384, 64, generator=random).topk(2, dim=1).indices

    def by_torch() -> torch.Tensor:
        return x.index_select(0, ids.flatten().argsort(stable=True) // 2)

    order = ids.flatten().argsort(stable=True) // 2
    return Programs(
        returning("turnout", lambda: turnout.torch.moe_token_permute(x, ids)[0]),
        returning("torch", by_torch),
        x[order].float().numpy(),
    )


def whole_layer() -> Programs:
    layer = Layer()
    return Programs(
        Entry("turnout", layer.own, layer.output.numpy),
        Entry("torch", layer.by_torch, layer.output.numpy),
        layer.definition().numpy(),
        tolerance=1e-5,
    )
