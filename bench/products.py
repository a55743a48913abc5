"""Products of rows with matrices beside torch: experts, groups and convolutions, by dtype and size.

Ratios are torch's time divided by Turnout's. The peak is that of float32 multiply-adds on one thread.
Products of bfloat16 may reach twice that rate per thread on a CPU with AVX512_BF16.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from harness import Comparison, Entry, Summary, compare, fma_peak, median
from moe_experts.torch_peer import grouped_block, grouped_mm
from sparse_conv.convolution_entries import by_torch, lists_of

import turnout
import turnout.torch

F32, BF16 = torch.float32, torch.bfloat16
TOLERANCE = {F32: 1e-5, BF16: 2e-2}
OPS = torch.ops.turnout


def run(seconds: float) -> list[Comparison]:
    threads = turnout.get_num_threads(), torch.get_num_threads()
    torch.set_num_threads(turnout.get_num_threads())
    summary = Summary()
    done = [
        beside(*case, seconds, summary)
        for cases in (experts(), transposed_experts(), training(), groups(), convolutions())
        for case in cases
    ]
    done += [two_threads(*case, seconds, summary) for case in scaling()]
    turnout.set_num_threads(threads[0])
    torch.set_num_threads(threads[1])
    summary.show()
    return done


def entry(name: str, call: Callable[[], torch.Tensor]) -> Entry:
    kept: list[torch.Tensor] = []

    def once() -> None:
        kept[:] = [call()]

    return Entry(name, once, lambda: kept[0].detach().double().numpy())


Case = tuple[str, torch.dtype, float, dict[str, Callable[[], torch.Tensor]]]


def beside(title, dtype, operations, calls, seconds, summary) -> Comparison:
    """The first call is Turnout's. The last one, with float32 arguments, is the definition and not timed."""
    right = calls.pop("definition")().detach().double().numpy()
    entries = [entry(name, call) for name, call in calls.items()]
    peak = fma_peak()
    made = compare(title, entries, expected=right, tolerance=TOLERANCE[dtype], seconds=seconds)
    own = median(made, entries[0].name)
    others = [row.median_us for row in made.rows if not row.name.startswith("turnout")]
    summary.add(title, "fastest of torch / turnout", min(others) / own)
    for other in made.rows[1:]:
        if other.name.startswith("turnout"):
            summary.add(title, f"fastest of torch / {other.name}", min(others) / other.median_us)
    summary.add(title, "GFLOP/s", operations / own / 1e3)
    summary.add(title, "% of the FMA peak of a thread", 1e8 * operations / own / peak)
    return made


def two_threads(title, call, seconds, summary) -> Comparison:
    def on(count: int) -> Entry:
        def once() -> None:
            torch.set_num_threads(count)  # calls through torch run on its threads
            call()

        return Entry(f"{count} threads", once)

    made = compare(f"{title}, threads", [on(1), on(2)], seconds=seconds)
    summary.add(title, "one thread / two threads", median(made, "1 threads") / median(made, "2 threads"))
    return made


def block(tokens, hidden, inner, experts, choices, dtype, seed=0):
    random = torch.Generator().manual_seed(seed)
    x = torch.randn(tokens, hidden, generator=random).to(dtype)
    gates, ids = torch.rand(tokens, experts, generator=random).softmax(1).topk(choices)
    w13 = (torch.randn(experts, 2 * inner, hidden, generator=random) / hidden**0.5).to(dtype)
    w2 = (torch.randn(experts, hidden, inner, generator=random) / inner**0.5).to(dtype)
    return x, ids, gates.to(dtype), w13, w2


def loop(x, ids, gates, w13, w2):
    out = torch.zeros_like(x)
    for expert in ids.unique().tolist():
        tokens, choices = torch.where(ids == expert)
        gate, up = torch.nn.functional.linear(x[tokens], w13[expert]).chunk(2, dim=1)
        y = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w2[expert])
        out.index_add_(0, tokens, y * gates[tokens, choices, None])
    return out


def experts() -> list[Case]:
    cases = []
    sizes = [(tokens, 1024, 384, 64, 8) for tokens in (1, 16, 64, 128, 256, 512, 2048)]
    for size in [*sizes, (256, 1024, 2048, 8, 2)]:
        for dtype in (BF16, F32) if size[0] in (1, 512) else (BF16,):
            arguments = block(*size, dtype)
            tokens, hidden, inner, count, choices = size
            calls = {"turnout": lambda a=arguments: OPS.moe_experts(*a)}
            if dtype == BF16:
                calls["turnout, precision bfloat16"] = lambda a=arguments: turnout.torch.moe_experts(
                    *a, precision="bfloat16"
                )
            calls["torch, grouped_mm"] = lambda a=arguments: grouped_block(*a)
            calls["torch, loop"] = lambda a=arguments: loop(*a)
            calls["definition"] = lambda a=arguments: loop(*wide(*a))
            title = f"moe_experts {name_of(dtype)}, {count} experts {hidden} x {inner}, {tokens} tokens"
            cases.append((title, dtype, 6.0 * tokens * choices * hidden * inner, calls))
    return cases


def oai(a):
    gate, up = a[..., ::2].clamp(max=7.0), a[..., 1::2].clamp(-7.0, 7.0)
    return (up + 1) * gate * torch.sigmoid(1.702 * gate)


def transposed_experts() -> list[Case]:
    """The weights of GPT-OSS: [experts, hidden, 2 inner], gate and up interleaved."""
    cases = []
    for tokens, dtype in [(1, BF16), (16, BF16), (128, BF16), (1, F32), (64, F32)]:
        x, ids, gates, w13, w2 = block(tokens, 720, 720, 8, 4, dtype)
        w13, w2 = w13.mT.contiguous(), w2.mT.contiguous()

        def grouped(x=x, ids=ids, gates=gates, w13=w13, w2=w2):
            order = ids.flatten().argsort()
            offs = torch.bincount(ids.flatten(), minlength=len(w13)).cumsum(0, dtype=torch.int32)
            y = grouped_mm(oai(grouped_mm(x[order // ids.shape[1]], w13, offs=offs)), w2, offs=offs)
            y = y * gates.flatten()[order, None]
            return torch.empty_like(y).index_copy(0, order, y).view(*ids.shape, -1).sum(1)

        def by_loop(x=x, ids=ids, gates=gates, w13=w13, w2=w2):
            out = torch.zeros_like(x)
            for expert in ids.unique().tolist():
                rows, choices = torch.where(ids == expert)
                y = oai(x[rows] @ w13[expert]) @ w2[expert]
                out.index_add_(0, rows, y * gates[rows, choices, None])
            return out

        def own(x=x, ids=ids, gates=gates, w13=w13, w2=w2):
            return turnout.torch.moe_experts(
                x, ids, gates, w13, w2, activation="swigluoai", interleaved=True, limit=7.0, transposed=True
            )

        calls = {"turnout": own, "torch, grouped_mm": grouped, "torch, loop": by_loop}
        arguments = wide(x, ids, gates, w13, w2)
        calls["definition"] = lambda by_loop=by_loop, a=arguments: by_loop(*a)
        title = f"moe_experts {name_of(dtype)}, weights of GPT-OSS 720 x 720, {tokens} tokens"
        cases.append((title, dtype, 6.0 * tokens * 4 * 720 * 720, calls))
    return cases


def training() -> list[Case]:
    cases = []
    for dtype in (F32, BF16):
        x, ids, gates, w13, w2 = block(512, 512, 512, 8, 2, dtype)
        leaves = [x.requires_grad_(), w13.requires_grad_(), w2.requires_grad_()]

        def gradients(call, x=x, ids=ids, gates=gates, w13=w13, w2=w2, leaves=leaves):
            found = torch.autograd.grad(call(x, ids, gates, w13, w2).float().sum(), leaves)
            return torch.cat([g.flatten() for g in found])

        def definition(a=(x, ids, gates, w13, w2), leaves=leaves):
            found = torch.autograd.grad(loop(*wide(*a)).sum(), leaves)
            return torch.cat([g.flatten() for g in found])

        calls = {
            "turnout": lambda gradients=gradients: gradients(turnout.torch.moe_experts),
            "torch, grouped_mm": lambda gradients=gradients: gradients(grouped_block),
            "torch, loop": lambda gradients=gradients: gradients(loop),
            "definition": definition,
        }
        title = f"moe_experts {name_of(dtype)}, forward and backward, 512 tokens 512 x 512"
        cases.append((title, dtype, 18.0 * 512 * 2 * 512 * 512, calls))
    return cases


def groups() -> list[Case]:
    cases = []
    for dtype, rows, count, depth, columns in [
        (F32, 2048, 8, 512, 512),
        (BF16, 2048, 8, 1024, 1024),
        (F32, 8192, 8, 64, 64),
    ]:
        random = torch.Generator().manual_seed(1)
        x = torch.randn(rows, depth, generator=random).to(dtype)
        grad = torch.randn(rows, columns, generator=random).to(dtype)
        weight = (torch.randn(count, depth, columns, generator=random) / depth**0.5).to(dtype)
        turned = weight.mT.contiguous().mT
        offs = torch.arange(1, count + 1, dtype=torch.int32) * (rows // count)
        parts = (count, rows // count)
        what = f"{name_of(dtype)}, {rows} rows, {count} x {depth} x {columns}"
        operations = 2.0 * rows * depth * columns
        for name, w in (("", weight), (", transposed weights", turned)):
            calls = {
                "turnout": lambda x=x, w=w, offs=offs: OPS.grouped_mm(x, w, offs),
                "torch, grouped_mm": lambda x=x, w=w, offs=offs: grouped_mm(x, w, offs=offs),
                "torch, bmm": lambda x=x, w=w, p=parts: torch.bmm(x.view(*p, -1), w).flatten(0, 1),
                "definition": lambda x=x, w=w, p=parts: torch.bmm(*wide(x.view(*p, -1), w)).flatten(0, 1),
            }
            cases.append((f"grouped_mm {what}{name}", dtype, operations, calls))
        calls = {
            "turnout": lambda x=x, g=grad, offs=offs: OPS.grouped_mm_backward_weight(x, g, offs)[0],
            "torch, bmm": lambda x=x, g=grad, p=parts: torch.bmm(x.view(*p, -1).mT, g.view(*p, -1)),
            "definition": lambda x=x, g=grad, p=parts: torch.bmm(*wide(x.view(*p, -1).mT, g.view(*p, -1))),
        }
        cases.append((f"weight gradient of grouped_mm {what}", dtype, operations, calls))
    return cases


def sites(dense: bool) -> torch.Tensor:
    """Voxels of a simulated scan, or all voxels of a box."""
    if dense:
        cells = torch.stack(torch.meshgrid(*map(torch.arange, (16, 40, 40)), indexing="ij"), -1).view(-1, 3)
        return torch.nn.functional.pad(cells, (1, 0)).int()
    from turnout.simulate import lidar_scan

    points = lidar_scan(seed=0).points
    coors = turnout.voxelize(points, [0.2, 0.2, 0.4], [-51.2, -51.2, -5, 51.2, 51.2, 3])
    return torch.nn.functional.pad(torch.from_numpy(coors[(coors >= 0).all(1)]).unique(dim=0), (1, 0)).int()


def convolutions() -> list[Case]:
    cases = []
    for dense, depth, columns, dtype in [
        (False, 256, 256, F32),
        (False, 256, 256, BF16),
        (False, 128, 128, F32),
        (False, 128, 128, BF16),
        (False, 64, 64, BF16),
        (True, 4, 16, F32),
        (True, 1, 16, F32),
        (False, 4, 16, F32),
    ]:
        where = sites(dense)
        shape = (16, 40, 40) if dense else (20, 512, 512)
        _, pairs, num = turnout.torch.get_indice_pairs(
            where,
            batch_size=1,
            spatial_shape=shape,
            kernel_size=3,
            stride=1,
            padding=1,
            dilation=1,
            subm=True,
        )
        random = torch.Generator().manual_seed(1)
        x = torch.randn(len(where), depth, generator=random).to(dtype)
        filters = (torch.randn(27, depth, columns, generator=random) / (9 * depth) ** 0.5).to(dtype)
        lists = lists_of(pairs, num)
        calls = {
            "turnout": lambda a=(x, filters, pairs, num): OPS.indice_convolution_forward(
                *a, num_act_out=len(a[0]), subm=True
            ),
            "torch, gather + mm + index_add": lambda a=(lists, x, filters): by_torch(*a),
            "definition": lambda lists=lists, a=(x, filters): by_torch(lists, *wide(*a)),
        }
        if dense and dtype == F32:
            table = torch.full((len(where), 27), len(where))
            for k, (inputs, outputs) in enumerate(lists):
                table[outputs, k] = inputs

            def im2col(x=x, table=table, filters=filters):
                padded = torch.nn.functional.pad(x, (0, 0, 0, 1))
                return padded[table].flatten(1) @ filters.flatten(0, 1)

            calls["torch, im2col + mm"] = im2col
        kind = "dense sites" if dense else "a scan"
        title = f"convolution {depth} -> {columns} {name_of(dtype)}, {kind}"
        cases.append((title, dtype, 2.0 * float(num.sum()) * depth * columns, calls))
    return cases


def wide(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return tuple(t.float() if t.is_floating_point() else t for t in tensors)


def scaling() -> list[tuple[str, Callable]]:
    """Some of the calls above, on one thread and on two."""
    chosen = [*experts()[4:5], *training()[:1], *groups()[:3], *convolutions()[:4]]
    return [(title, next(iter(calls.values()))) for title, _, _, calls in chosen]


def name_of(dtype: torch.dtype) -> str:
    return "bf16" if dtype == BF16 else "f32"
