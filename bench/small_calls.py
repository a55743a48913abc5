"""Small calls of each family, whose time is mostly that of the Python and PyTorch bindings.

Each function runs with NumPy arrays, without and with out=, and through turnout.torch: without gradients,
with a recorded gradient, and only the backward pass, on a retained graph. All arguments are keywords of
public functions.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from calls import Call, reusing

import turnout


@dataclass
class Small:
    """A function of turnout, its counterpart in turnout.torch, and the arguments of both."""

    name: str
    torch_name: str
    arguments: dict[str, object]
    differentiable: tuple[str, ...] = ()  # the arguments that have gradients

    def numpy_calls(self) -> Iterator[tuple[str, Call]]:
        yield f"{self.name}, small", lambda: getattr(turnout, self.name)(**self.arguments)
        yield f"{self.name}, small, out=", reusing(turnout, self.name, **self.arguments)

    def torch_calls(self) -> Iterator[tuple[str, Call]]:
        import torch

        import turnout.torch

        arguments = {
            name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value
            for name, value in self.arguments.items()
        }
        inputs = {name: arguments[name].clone().requires_grad_() for name in self.differentiable}
        recorded, leaves = {**arguments, **inputs}, list(inputs.values())

        def run(**arguments: object) -> object:
            return getattr(turnout.torch, self.torch_name)(**arguments)

        @functools.cache
        def graph() -> tuple[torch.Tensor, torch.Tensor]:
            """Returns the first result that has a gradient, and a gradient for it."""
            results = run(**recorded)
            results = results if isinstance(results, tuple) else (results,)
            result = next(result for result in results if result is not None and result.requires_grad)
            return result, torch.ones_like(result)

        def backward() -> object:
            result, gradient = graph()
            return torch.autograd.grad(result, leaves, gradient, retain_graph=True)

        name = f"torch.{self.torch_name}, small"
        yield name, lambda: run(**arguments)
        if inputs:
            yield f"{name}, recorded gradient", lambda: run(**recorded)
            yield f"{name}, backward", backward


def _floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def moe_dispatch() -> Iterator[Small]:
    tokens, experts, capacity = 8, 4, 4
    arguments = {
        "gates": _floats(tokens),
        "indices": np.arange(tokens, dtype=np.int32) % experts,
        "locations": np.arange(tokens, dtype=np.int32) // experts,
        "input": _floats(tokens, 16),
        **{"capacity": capacity, "num_experts": experts},
    }
    yield Small("moe_dispatch_forward", "moe_dispatch_forward", arguments, ("gates", "input"))


def moe_re_routing() -> Iterator[Small]:
    counts = np.array([[2, 3], [1, 2]], dtype=np.int32)
    arguments = {"tokens": _floats(8, 16), "expert_token_num_per_rank": counts}
    yield Small("moe_re_routing", "moe_re_routing", arguments, ("tokens",))


def moe_experts() -> Iterator[Small]:
    tokens, hidden, inner, experts = 2, 16, 8, 4
    arguments = {
        "hidden_states": _floats(tokens, hidden),
        "topk_ids": np.array([[0, 1], [2, 0]]),
        "topk_weights": _floats(tokens, 2),
        "w13": _floats(experts, 2 * inner, hidden),
        "w2": _floats(experts, hidden, inner),
    }
    yield Small("moe_experts", "moe_experts", arguments, ("hidden_states", "topk_weights", "w13", "w2"))


def sparse_conv() -> Iterator[Small]:
    rows = 8
    sites = np.zeros((rows, 4), dtype=np.int32)
    sites[:, 3] = np.arange(rows)
    places = {"indices": sites, "batch_size": 1, "spatial_shape": [4, 4, rows], "subm": True}
    yield Small("get_indice_pairs", "get_indice_pairs", places)
    _, pairs, num = turnout.get_indice_pairs(**places)
    arguments = {
        "features": _floats(rows, 8),
        "filters": _floats(27, 8, 8),
        **{"indice_pairs": pairs, "indice_num": num, "num_act_out": rows},
    }
    yield Small("indice_convolution_forward", "indice_convolution", arguments, ("features", "filters"))


def mutual_information() -> Iterator[Small]:
    batch, symbols, frames = 2, 3, 4
    arguments = {"px": _floats(batch, symbols, frames + 1), "py": _floats(batch, symbols + 1, frames)}
    yield Small("mutual_information_forward", "mutual_information_recursion", arguments, ("px", "py"))


def dynamic_scatter() -> Iterator[Small]:
    coors = np.arange(24, dtype=np.int32).reshape(8, 3) // 6
    arguments = {"feats": _floats(8, 4), "coors": coors, "reduce_type": "max"}
    yield Small("dynamic_scatter_forward", "dynamic_scatter", arguments, ("feats",))


def rnnt_loss() -> Iterator[Small]:
    batch, frames, symbols, classes = 1, 4, 3, 8
    arguments = {
        "logits": _floats(batch, frames, symbols + 1, classes),
        "symbols": np.ones((batch, symbols), dtype=np.int64),
        "termination_symbol": 0,
    }
    yield Small("rnnt_logprobs_joint_forward", "rnnt_loss", arguments, ("logits",))


def boxes() -> Iterator[Small]:
    few = np.abs(_floats(8, 7))
    yield Small("boxes_iou_bev", "boxes_iou_bev", {"boxes_a": few, "boxes_b": few[:4]})
    suppressed = {"boxes": few, "scores": few[:, 0].copy(), "threshold": 0.1}
    yield Small("nms3d", "nms3d", suppressed)


def points() -> Iterator[Small]:
    few = _floats(16, 3)
    yield Small("furthest_point_sample", "furthest_point_sample", {"xyz": few, "samples": 4})
    ball = {"xyz": few, "new_xyz": few[:4], "radius": 0.8, "nsample": 4}
    yield Small("ball_query", "ball_query", ball)


def grouping() -> Iterator[Small]:
    arguments = {"features": _floats(1, 4, 8), "indices": np.zeros((1, 2, 4), np.int32)}
    yield Small("group_points", "group_points", arguments, ("features",))


def roi_pooling() -> Iterator[Small]:
    arguments = {
        "rois": np.abs(_floats(2, 7)),
        **{"points": _floats(8, 3), "features": _floats(8, 4), "out_size": [2, 2, 2]},
    }
    yield Small("roiaware_pool3d", "roiaware_pool3d", arguments, ("features",))


FAMILIES: dict[str, Callable[[], Iterator[Small]]] = {
    family.__name__: family
    for family in (
        *(moe_dispatch, moe_re_routing, moe_experts, sparse_conv, mutual_information),
        *(dynamic_scatter, rnnt_loss, boxes, points, grouping, roi_pooling),
    )
}
