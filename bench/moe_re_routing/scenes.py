"""The comparisons of moe_re_routing: large sizes against a copy and the peers, small calls."""

from __future__ import annotations

import torch
from harness import Comparison, compare, copy_floor
from moe_re_routing import numpy_peer, torch_peer, turnout_entries
from moe_re_routing.shapes import SCALES, Arrived, Scale

import turnout


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    done = [side_by_side(Arrived(scale), seconds) for scale in SCALES]
    done += small_calls(seconds)
    return done


def side_by_side(arrived: Arrived, seconds: float) -> Comparison:
    scale = arrived.scale
    entries = [
        copy_floor(arrived.tokens),
        turnout_entries.reused(arrived),
        turnout_entries.fresh(arrived),
        torch_peer.reused(arrived),
        torch_peer.fresh(arrived),
        numpy_peer.entry(arrived),
    ]
    return compare(
        f"moe_re_routing {scale.name}, {turnout.get_num_threads()} threads",
        entries,
        expected=arrived.definition(),
        bytes_moved=2 * arrived.bytes.nbytes,
        seconds=3 * seconds,
    )


def small_calls(seconds: float) -> list[Comparison]:
    done = []
    for rows in (1, 16, 256):
        arrived = Arrived(Scale("f16", rows, 64, 4, 8))
        entries = [
            turnout_entries.reused(arrived, "turnout, NumPy arrays, out="),
            turnout_entries.torch_reused(arrived),
            turnout_entries.fresh(arrived),
            turnout_entries.torch_op(arrived),
            torch_peer.reused(arrived),
            torch_peer.fresh(arrived),
        ]
        with torch.inference_mode():
            done.append(
                compare(
                    f"small calls, {rows} tokens of 64",
                    entries,
                    expected=arrived.definition(),
                    seconds=seconds / 2,
                    calls=200,
                )
            )
    return done
