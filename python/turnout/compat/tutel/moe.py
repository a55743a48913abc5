"""Tutel's ``moe``: routing, encode and decode, and the layer."""

from turnout.compat.tutel.dispatcher import fast_decode, fast_dispatcher, fast_encode
from turnout.compat.tutel.layer import moe_layer
from turnout.compat.tutel.routing import (
    extract_critical,
    fast_cumsum_sub_one,
    get_reversed_sample_ids,
    get_topk_selection,
)

top_k_routing = extract_critical

__all__ = [
    "extract_critical",
    "fast_cumsum_sub_one",
    "fast_decode",
    "fast_dispatcher",
    "fast_encode",
    "get_reversed_sample_ids",
    "get_topk_selection",
    "moe_layer",
    "top_k_routing",
]
