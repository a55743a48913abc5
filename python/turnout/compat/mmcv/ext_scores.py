"""PAConv in ``mmcv._ext``: features of neighbours, weighted by a score for each weight matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from turnout import torch as own
from turnout.compat._extension import Checks, widened
from turnout.compat._grouping import FLOATS, INDICES


class _Scores:
    """The tensors of a call, and the rows that its indices select.

    A neighbour outside the points contributes nothing. The first neighbour of each row is its centre.
    """

    def __init__(
        self, function: str, points: Tensor, centers: Tensor, scores: Tensor, knn_idx: Tensor, **sizes: int
    ) -> None:
        self.checks = Checks(function, **sizes)
        self.points = widened(self.checks.tensor("points", points, "B N0 M O", *FLOATS))
        self.dtype = points.dtype
        self.centers = widened(self.checks.tensor("centers", centers, "B N0 M O", self.dtype))
        self.scores = widened(self.checks.tensor("scores", scores, "B N1 K M", self.dtype))
        idx = self.checks.tensor("knn_idx", knn_idx, "B N1 K", *INDICES).long()
        count = points.shape[1]
        self.is_point = ((idx >= 0) & (idx < count)).unsqueeze(3)
        self.rows = idx.clamp(0, max(count - 1, 0))
        self.centre = idx[:, :, 0] if idx.shape[2] else idx.new_zeros(idx.shape[:2])
        outside = ((self.centre < 0) | (self.centre >= count)).nonzero()
        if idx.numel() and len(outside):
            b, query = outside[0].tolist()
            raise IndexError(
                f"{function}: knn_idx[{b}, {query}, 0] is {int(self.centre[b, query])}, "
                f"expected 0 .. {count - 1}"
            )

    def floats(self, name: str, value: Tensor, dims: str) -> Tensor:
        return self.checks.tensor(name, value, dims, self.dtype)

    def neighbours(self, b: int, m: int) -> Tensor:
        """``[N1, K, O]``: the features of one element and one weight matrix."""
        return self.points[b, :, m][self.rows[b]]

    def centres(self, b: int, m: int) -> Tensor:
        """``[N1, 1, O]``."""
        return self.centers[b, :, m][self.centre[b]].unsqueeze(1)


def assign_score_withk_forward(
    points: Tensor, centers: Tensor, scores: Tensor, knn_idx: Tensor, output: Tensor, B: int,  # noqa: N803
    N0: int, N1: int, M: int, K: int, O: int, aggregate: int = 0,  # noqa: E741, N803
) -> None:  # fmt: skip
    """Adds to ``output [B, O, N1, K]`` the differences of neighbours and centres, weighted by the scores."""
    del aggregate  # mmcv ignores it
    name = "assign_score_withk_forward"
    call = _Scores(name, points, centers, scores, knn_idx, B=B, N0=N0, N1=N1, M=M, K=K, O=O)
    out = call.floats("output", output, "B O N1 K")
    for b in range(len(out)):
        sums = widened(out[b].permute(1, 2, 0))
        for m in range(call.scores.shape[3]):
            score = call.scores[b, :, :, m : m + 1]
            terms = call.neighbours(b, m) * score - call.centres(b, m) * score
            sums = sums + torch.where(call.is_point[b], terms, 0)
        out[b] = sums.permute(2, 0, 1)


def assign_score_withk_backward(
    grad_out: Tensor, points: Tensor, centers: Tensor, scores: Tensor, knn_idx: Tensor, grad_points: Tensor,
    grad_centers: Tensor, grad_scores: Tensor, B: int, N0: int, N1: int, M: int, K: int,  # noqa: N803
    O: int, aggregate: int = 0,  # noqa: E741, N803
) -> None:  # fmt: skip
    """Adds the gradients to the three last tensors."""
    del aggregate
    name = "assign_score_withk_backward"
    call = _Scores(name, points, centers, scores, knn_idx, B=B, N0=N0, N1=N1, M=M, K=K, O=O)
    grads = widened(call.floats("grad_out", grad_out, "B O N1 K"))
    of_points = call.floats("grad_points", grad_points, "B N0 M O")
    of_centers = call.floats("grad_centers", grad_centers, "B N0 M O")
    of_scores = call.floats("grad_scores", grad_scores, "B N1 K M")
    count, channels = of_points.shape[1], of_points.shape[3]
    if not call.rows.numel():
        return
    for b in range(len(grads)):
        grad = torch.where(call.is_point[b], grads[b].permute(1, 2, 0), 0)
        rows, centre = call.rows[b].flatten(), call.centre[b]
        for m in range(call.scores.shape[3]):
            weighted = grad * call.scores[b, :, :, m : m + 1]
            of_points[b, :, m] += own.scatter_sum(weighted.reshape(-1, channels), rows, 0, count)
            of_centers[b, :, m] -= own.scatter_sum(weighted.sum(1), centre, 0, count)
            of_scores[b, :, :, m] += ((call.neighbours(b, m) - call.centres(b, m)) * grad).sum(2)


FUNCTIONS = (assign_score_withk_backward, assign_score_withk_forward)
