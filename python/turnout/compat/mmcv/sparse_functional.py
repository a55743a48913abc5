"""mmcv's functions for sparse convolution and pooling over given pairs, with gradients.

mmcv makes them from subclasses of ``torch.autograd.Function``, whose ``apply`` programs call as well.
"""

from __future__ import annotations

from turnout.compat.mmcv import sparse_ops


class SparseConvFunction:
    """A sparse or transposed convolution."""

    @staticmethod
    def apply(features, filters, indice_pairs, indice_pair_num, num_activate_out):
        return sparse_ops.indice_conv(features, filters, indice_pairs, indice_pair_num, num_activate_out)


class SparseInverseConvFunction:
    """A convolution from the outputs of the pairs back to their inputs."""

    @staticmethod
    def apply(features, filters, indice_pairs, indice_pair_num, num_activate_out):
        return sparse_ops.indice_conv(
            features, filters, indice_pairs, indice_pair_num, num_activate_out, inverse=True
        )


class SubMConvFunction:
    """A submanifold convolution."""

    @staticmethod
    def apply(features, filters, indice_pairs, indice_pair_num, num_activate_out):
        return sparse_ops.indice_conv(
            features, filters, indice_pairs, indice_pair_num, num_activate_out, subm=True
        )


class SparseMaxPoolFunction:
    """The maximum of each window, but at least 0."""

    @staticmethod
    def apply(features, indice_pairs, indice_pair_num, num_activate_out):
        return sparse_ops.indice_maxpool(features, indice_pairs, indice_pair_num, num_activate_out)


indice_conv = SparseConvFunction.apply
indice_inverse_conv = SparseInverseConvFunction.apply
indice_subm_conv = SubMConvFunction.apply
indice_maxpool = SparseMaxPoolFunction.apply
