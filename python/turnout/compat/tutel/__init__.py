"""The names of Tutel, on CPU tensors: ``from turnout.compat.tutel import system, moe, net``.

Programs written for Tutel run with that one line changed. Differences are on purpose: float64 is computed in
float64, counts are true also with batch-prioritised routing, no tokens give empty results, and the
dictionaries that a layer is made from stay as they are.

Example:
    >>> from turnout.compat.tutel import moe
    >>> experts = {"type": "ffn", "num_experts_per_device": 2, "hidden_size_per_expert": 8}
    >>> layer = moe.moe_layer({"type": "top", "k": 2}, model_dim=4, experts=experts)
    >>> layer(torch.ones(3, 4)).shape
    torch.Size([3, 4])
"""

from turnout.compat._install import Installation
from turnout.compat.tutel import moe, net, system

__all__ = ["install", "moe", "net", "system", "uninstall"]


def _public(module) -> dict:
    return {name: getattr(module, name) for name in module.__all__}


_installation = Installation(
    "tutel",
    {
        "tutel": {},
        "tutel.system": _public(system),
        "tutel.net": _public(net),
        "tutel.moe": _public(moe),
    },
)


def install(force: bool = False) -> None:
    """After this, ``from tutel import system, moe, net`` finds these names, also where there is no Tutel.

    A second call does nothing. Refused when tutel is imported already, unless ``force`` says that its names
    are to be replaced.
    """
    _installation.install(force)


def uninstall() -> None:
    """Undoes :func:`install`; without it, does nothing."""
    _installation.uninstall()
