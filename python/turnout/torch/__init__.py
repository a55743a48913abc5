"""The operators for PyTorch: ``torch.ops.turnout.*``, ready for ``torch.compile``, on torch's threads."""

from turnout.torch.moe_dispatch import moe_dispatch_forward

__all__ = ["moe_dispatch_forward"]
