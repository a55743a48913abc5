"""A valid call of every operator with varied data. The registry's own example is mostly zeros."""

import numpy as np

import turnout
from turnout import _core

OPERATORS = [row["op"] for row in _core.schemas()]
# An index must have been made from the pairs that it is passed with, which vary.
LEFT_OUT = {("indice_convolution_forward", "index"), ("indice_convolution_backward_data", "index")}
# The public functions do not have it.
LEFT_OUT |= {(f"furthest_point_sample{name}", "with_distances") for name in ("", "_stacked", "_by_distances")}

# The mode that reads all arguments, if the example has another one.
MODES = {
    "dynamic_scatter_backward": {"reduce_type": "max"},
    "roiaware_pool3d_backward": {"pool_method": "max"},
    "voxel_query": {"radius": 1.2},
}


def public(op):
    """The name of the public function that calls an operator, and the option that makes it do so."""
    if op == "voxelize_hard":
        return "voxelize", {}
    for option in ("aligned", "all"):
        if op.endswith(f"_{option}"):
            return op.removesuffix(f"_{option}"), {option: True}
    return op, {}


def results_of(op, arguments):
    name, options = public(op)
    results = getattr(turnout, name)(**arguments, **options)
    return results if isinstance(results, tuple) else (results,)


def candidates(rng, example):
    """Integers that an argument may accept, those with most conditions first."""
    if example.shape[1:] == (4,):  # boundaries, which begin before their end, or coordinates
        begins, extra = rng.integers(0, 2, (2, len(example), 2))
        ends = extra + np.array([2, 4])
        yield np.concatenate((begins, ends), axis=1)
        yield np.concatenate((np.zeros_like(begins), ends), axis=1)
        yield np.concatenate((begins, extra + 2), axis=1)
    if example.ndim == 3 and example.any():  # windows that move on
        yield example + np.sort(rng.integers(0, 2, (*example.shape[:-1], 1)), axis=-2)
    for most in (3, 2, 1):
        yield rng.integers(0, most + 1, example.shape)
    for most in (4, 1):  # ends of groups
        yield np.sort(rng.integers(0, most + 1, example.shape), axis=-1)
    yield rng.permutation(example.size).reshape(example.shape)
    if example.any():  # counts, with the same sum
        parts = np.full(example.size, 1 / example.size)
        yield rng.multinomial(example.sum(), parts).reshape(example.shape)


def is_accepted(op, arguments):
    try:
        results_of(op, arguments)
    except (ValueError, NotImplementedError):
        return False
    return True


def varied(op):
    """Arguments of a call that succeeds. Every array has different values."""
    rng = np.random.default_rng(20240607)
    call = {name: value for name, value in _core.example(op).items() if (op, name) not in LEFT_OUT}
    call |= MODES.get(op, {})
    if op == "voxel_query":  # the operator has three numbers
        call["ranges"] = tuple(call.pop(f"{axis}_range") for axis in "zyx")
    for name, value in call.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and len(np.unique(value)) == 1:
            values = rng.integers(1, 5, value.shape) / 2  # few, so that maxima have equals
            values.flat[-1] = 2.5
            call[name] = values.astype(value.dtype)
    for name, value in call.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind == "f":
            continue
        for candidate in candidates(rng, value):
            other = candidate.astype(value.dtype)
            if len(np.unique(other)) > 1 and is_accepted(op, call | {name: other}):
                call[name] = other
                break
    return call


CALLS = {op: varied(op) for op in OPERATORS}
ARRAYS = [
    (op, name) for op, call in CALLS.items() for name, value in call.items() if isinstance(value, np.ndarray)
]
