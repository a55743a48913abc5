"""The published comparisons of moe_re_routing."""

from __future__ import annotations

from moe_re_routing import torch_peer, turnout_entries
from moe_re_routing.shapes import SCALES, Arrived, Scale
from recorded import Case, Programs

REUSED = "PyTorch `index_select(out=)` with a ready index"
NEW = "PyTorch `index_select` with a ready index"


def cases() -> list[Case]:
    return [
        Case(
            *("moe_re_routing-i8", "moe_re_routing", "16384 tokens x 7168, 8 ranks, 32 experts", "int8"),
            *(REUSED, "reused", lambda: reused(SCALES[0])),
        ),
        Case(
            *("moe_re_routing-short", "moe_re_routing", "16384 tokens x 7168, 64 ranks, 256 experts", "int8"),
            *(REUSED, "reused", lambda: reused(SCALES[4])),
        ),
        Case(
            *("moe_re_routing-new", "moe_re_routing", "16384 tokens x 4096, 16 ranks, 32 experts", "bf16"),
            *(NEW, "new", new),
        ),
        Case(
            *("moe_re_routing-tiny", "torch.ops.turnout.moe_re_routing", "16 tokens x 64, 4 ranks"),
            *("f16", NEW, "new", tiny),
        ),
    ]


def reused(scale: Scale) -> Programs:
    arrived = Arrived(scale)
    return Programs(turnout_entries.reused(arrived), torch_peer.reused(arrived), arrived.definition())


def new() -> Programs:
    arrived = Arrived(SCALES[2])
    return Programs(turnout_entries.fresh(arrived), torch_peer.fresh(arrived), arrived.definition())


def tiny() -> Programs:
    arrived = Arrived(Scale("f16", 16, 64, 4, 8))
    programs = turnout_entries.torch_op(arrived), torch_peer.fresh(arrived), arrived.definition()
    return Programs(*programs, options={"calls": 100})
