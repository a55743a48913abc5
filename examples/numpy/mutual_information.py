"""Sums all paths of a lattice in log space with NumPy, and computes how likely a path takes each step."""

import math

import numpy as np

import turnout

symbols, frames = 5, 12
half = math.log(0.5)
px = np.full((1, symbols, frames + 1), half, np.float32)  # a symbol: one row up
py = np.full((1, symbols + 1, frames), half, np.float32)  # a blank: one frame on
total, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)

# All orders of 5 symbols and 12 blanks, each with probability (1/2)^17.
expected = math.log(math.comb(symbols + frames, symbols)) + (symbols + frames) * half
print(f"log-probability {total[0]:.5f}, expected {expected:.5f}")
for s in range(symbols):
    bar = "".join(" .:-=+*#"[min(7, int(16 * p))] for p in px_grad[0, s])
    print(f"symbol {s}, frame by frame: [{bar}]")
assert abs(total[0] - expected) < 1e-4
assert np.allclose(px_grad.sum(axis=2), 1, atol=1e-5)  # each symbol is emitted once

# Output:
#   log-probability -3.05313, expected -3.05313
#   symbol 0, frame by frame: [=-:..        ]
#   symbol 1, frame by frame: [..:::...     ]
#   symbol 2, frame by frame: [  ....:....  ]
#   symbol 3, frame by frame: [     ...:::..]
#   symbol 4, frame by frame: [        ..:-=]
