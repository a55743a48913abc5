"""Compares the expert block over the number of tokens with torch's two implementations and with reading."""

from __future__ import annotations

import torch
from harness import Comparison, Summary, compare, median
from moe_experts import torch_peer, turnout_entries
from moe_experts.shapes import DECODING, DTYPES, TOKENS, Block, Weights

import turnout


def run(seconds: float) -> list[Comparison]:
    torch.set_num_threads(turnout.get_num_threads())
    done, summary = [], Summary()
    with torch.inference_mode():
        for dtype in DTYPES:
            weights = Weights(dtype)
            for tokens in TOKENS:
                done.append(side_by_side(Block(weights, tokens), seconds, summary))
    summary.show()
    return done


def side_by_side(block: Block, seconds: float, summary: Summary) -> Comparison:
    tokens, dtype = len(block.x), block.weights.dtype
    title = f"moe_experts {dtype}, {tokens} tokens"
    entries = [
        turnout_entries.reading(block),
        turnout_entries.experts(block),
        torch_peer.grouped(block),
        torch_peer.loop(block),
    ]
    if dtype == "bf16" and tokens <= DECODING:
        entries += [turnout_entries.quantized(block, bits) for bits in (8, 4)]
    made = compare(
        title,
        entries,
        expected=block.definition().numpy(),
        tolerance=1e-5 if dtype == "f32" else 2e-2,
        bytes_moved=block.active_bytes,
        seconds=seconds,
    )
    made.series, made.sites = dtype, tokens
    own = median(made, "turnout")
    fastest = min(row.median_us for row in made.rows if row.name.startswith("torch"))
    summary.add(title, "fastest of torch / turnout", fastest / own)
    summary.add(title, "turnout / reading", own / median(made, "reading"))
    for row in made.rows:
        if "quantized" in row.name:
            summary.add(title, f"{row.name.split(', ')[1]} / {dtype}", row.median_us / own)
    return made
