"""The scales of MoE dispatch (design document 000) and of the cases that MLU-OPS ships."""

from __future__ import annotations

import numpy as np

import turnout
from turnout import check
from turnout.check.scales.case import Cases, Data

cases = Cases("000")


def _rows(low: float, high: float, shape: tuple[int, ...], seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).random(shape, dtype=np.float32)
    rows *= high - low
    rows += low
    return rows


def _routing(samples: int, experts: int, slots: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws experts and slots. Several tokens may have the same row; the last one is kept."""
    random = np.random.default_rng(7)
    return (
        random.integers(0, experts, samples, dtype=np.int32),
        random.integers(0, slots, samples, dtype=np.int32),
    )


def _forward(
    samples: int, capacity: int, hidden: int, experts: int, used: tuple[int, int] | None = None
) -> Data:
    """`used` limits which experts and slots are drawn."""
    indices, locations = _routing(samples, *(used or (max(experts, 1), max(capacity, 1))))
    gates, input = _rows(0, 1, (samples,), 1), _rows(-1, 1, (samples, hidden), 2)
    out = np.full((experts * capacity, hidden), 7, np.float32)  # rows without a token keep this
    arguments = (gates, indices, locations, input, capacity, experts)
    kept = out.copy()
    work = samples and capacity and hidden
    return Data(
        f"samples {samples}, capacity {capacity}, hidden {hidden}, experts {experts}",
        lambda: turnout.moe_dispatch_forward(*arguments, out=out),
        lambda: check.moe_dispatch_forward(*arguments, out=kept),
        {"dispatch": 0},
        bytes_moved=2 * len(np.unique(indices * capacity + locations)) * hidden * 4 if work else 0,
    )


@cases.add("moe_dispatch_forward", "network scale")
def _network() -> Data:
    samples, capacity, experts = 18432, 11520, 2
    data = np.random.default_rng(0).integers(0, experts, samples).astype(np.int32)
    locations = np.zeros(samples, np.int32)
    for expert in range(experts):  # as in a network, each expert takes its tokens in order
        locations[data == expert] = np.arange((data == expert).sum())
    gates, input = _rows(0, 1, (samples,), 1), _rows(-1, 1, (samples, 512), 2)
    out = np.full((experts * capacity, 512), 7, np.float32)
    kept, arguments = out.copy(), (gates, data, locations, input, capacity, experts)

    def by_torch():
        import torch

        rows = torch.from_numpy(data.astype(np.int64) * capacity + locations)
        weights, tokens = torch.from_numpy(gates)[:, None], torch.from_numpy(input)
        buffers = torch.from_numpy(kept.copy())
        return lambda: buffers.index_copy_(0, rows, weights * tokens).numpy()

    return Data(
        "samples 18432, capacity 11520, hidden 512, experts 2",
        lambda: turnout.moe_dispatch_forward(*arguments, out=out),
        lambda: check.moe_dispatch_forward(*arguments, out=kept),
        {"dispatch": 0},
        bytes_moved=2 * input.nbytes,
        torch=by_torch,
    )


@cases.add("moe_dispatch_forward", "0 elements, case 1")
def _zero_1() -> Data:
    return _forward(0, 8192, 2048, 2)


@cases.add("moe_dispatch_forward", "0 elements, case 2")
def _zero_2() -> Data:
    return _forward(8192, 8192, 0, 2)


@cases.add("moe_dispatch_forward", "0 elements, case 3")
def _zero_3() -> Data:
    return _forward(8192, 0, 2048, 2)


@cases.add("moe_dispatch_forward", "MLU-OPS case 1")
def _shipped_1() -> Data:
    return _forward(18432, 11520, 512, 2, used=(1, 500))


@cases.add("moe_dispatch_forward", "MLU-OPS case 2")
def _shipped_2() -> Data:
    return _forward(4608, 2880, 1024, 2, used=(1, 2879))


@cases.add("moe_dispatch_forward", "MLU-OPS case 3")
def _shipped_3() -> Data:
    return _forward(31, 2880, 10240, 2)


def _backward_data(samples: int, capacity: int, hidden: int, slots: int) -> Data:
    indices, locations = _routing(samples, 1, slots)
    gates, dispatch = _rows(-100, 100, (samples,), 1), _rows(1, 100, (2 * capacity, hidden), 2)
    arguments = (gates, indices, locations, dispatch, capacity, 2)
    out = np.empty((samples, hidden), np.float32)
    return Data(
        f"samples {samples}, capacity {capacity}, hidden {hidden}, experts 2",
        lambda: turnout.moe_dispatch_backward_data(*arguments, out=out),
        lambda: check.moe_dispatch_backward_data(*arguments),
        {"grad_input": 0},
        bytes_moved=2 * out.nbytes,
    )


@cases.add("moe_dispatch_backward_data", "network scale")
def _data_network() -> Data:
    return _backward_data(18432, 11520, 512, 11520)


@cases.add("moe_dispatch_backward_data", "MLU-OPS case 1")
def _data_1() -> Data:
    return _backward_data(33, 10, 512, 10)


@cases.add("moe_dispatch_backward_data", "MLU-OPS case 2")
def _data_2() -> Data:
    return _backward_data(8, 256, 128, 256)


def _backward_gate(samples: int, capacity: int, hidden: int, experts: int, drawn: int) -> Data:
    indices, locations = _routing(samples, max(experts, drawn), max(capacity, drawn))
    input, dispatch = _rows(-1, 1, (samples, hidden), 1), _rows(-1, 1, (experts * capacity, hidden), 2)
    arguments = (indices, locations, input, dispatch, capacity, experts)
    return Data(
        f"samples {samples}, capacity {capacity}, hidden {hidden}, experts {experts}",
        lambda: turnout.moe_dispatch_backward_gate(*arguments),
        lambda: check.moe_dispatch_backward_gate(*arguments),
        {"grad_gates": 1e-6},
        bytes_moved=2 * input.nbytes if drawn == 0 else 0,
    )


@cases.add("moe_dispatch_backward_gate", "network scale")
def _gate_network() -> Data:
    return _backward_gate(18432, 11520, 512, 2, drawn=0)


@cases.add("moe_dispatch_backward_gate", "MLU-OPS case 0")
def _gate_shipped() -> Data:
    return _backward_gate(35, 35, 512012, 1, drawn=100)  # nearly all tokens are out of range
