"""An operator that tells a tracer that a sparse layer has at least two active outputs."""

from __future__ import annotations

import torch

# Batch normalization asks whether there are no rows, and in training whether there is one. In a trace that is
# an error, unless the number is known to be at least two. The operator that creates the number must say so:
# inductor reports a later torch._check as "u0 >= 2". torch.ops.turnout has only the library's operators, so
# this one is in another namespace.
_library = torch.library.Library("turnout_nn", "FRAGMENT")
_library.define("two_rows_or_more(Tensor indices) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
two_rows_or_more = torch.ops.turnout_nn.two_rows_or_more.default


def _cpu(indices):
    if indices.shape[0] < 2:
        raise ValueError(
            f"torch.compile: a sparse layer has {indices.shape[0]} active outputs, expected 2 or more"
        )
    return indices.clone()


def _fake(indices):
    rows = torch.library.get_ctx().new_dynamic_size(min=2)
    return indices.new_empty((rows, indices.shape[1]))


_library.impl("two_rows_or_more", _cpu, "CPU")
torch.library.register_fake("turnout_nn::two_rows_or_more", _fake, lib=_library)
