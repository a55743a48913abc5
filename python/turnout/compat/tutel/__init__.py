"""Tutel's names for CPU tensors: ``from turnout.compat.tutel import system, moe, net``.

Programs written for Tutel run with that one line changed. Some differences are intentional: float64 is
computed in float64, counts are exact with batch-prioritised routing, too, inputs without tokens give empty
results, and the dictionaries that define a layer are not modified.

Example:
    >>> from turnout.compat.tutel import moe
    >>> experts = {"type": "ffn", "num_experts_per_device": 2, "hidden_size_per_expert": 8}
    >>> layer = moe.moe_layer({"type": "top", "k": 2}, model_dim=4, experts=experts)
    >>> layer(torch.ones(3, 4)).shape
    torch.Size([3, 4])
"""

from turnout.compat._install import Installation, names_of
from turnout.compat.tutel import moe, net, system

__all__ = ["install", "moe", "net", "system", "uninstall"]

install, uninstall = Installation(
    "tutel",
    {
        "tutel": {},
        "tutel.system": names_of(system),
        "tutel.net": names_of(net),
        "tutel.moe": names_of(moe),
    },
).functions("from tutel import system, moe, net")
