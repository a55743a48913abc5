"""The implemented part of ``spconv.pytorch.ops``: the spatial shapes of outputs, and names of algorithms.

The operators themselves are in ``turnout.torch``: ``get_indice_pairs``, ``indice_convolution``,
``indice_max_pool``.
"""

from __future__ import annotations

from turnout.compat._sparse import get_conv_output_size, get_deconv_output_size
from turnout.compat.spconv.core import AlgoHint, ConvAlgo

__all__ = ["AlgoHint", "ConvAlgo", "get_conv_output_size", "get_deconv_output_size"]
