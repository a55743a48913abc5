"""The number of active outputs in a network that is compiled."""

from __future__ import annotations

import torch

# Batch normalization asks whether there are no rows, and in training whether there is one. In a trace the
# number is not known and the question an error, unless it is known that there are two or more. The operator
# that makes the number must say so: what torch._check says later, inductor reports as "u0 >= 2".
# torch.ops.turnout has the operators of the library only, so it is elsewhere.
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
