"""Regroups tokens that an all-to-all delivered in the order of senders by expert, and restores the order."""

import numpy as np

import turnout

counts = np.int32([[1, 0, 2], [1, 1, 1]])  # [senders, experts]
arrived = np.float32([[0.0], [2.0], [2.5], [0.25], [1.0], [2.75]])  # the integer part is the expert
grouped, _, origin, per_expert = turnout.moe_re_routing(arrived, counts)
for expert, rows in enumerate(np.split(grouped[:, 0], np.cumsum(per_expert)[:-1])):
    print(f"expert {expert}: {rows.tolist()}")
    assert (rows.astype(int) == expert).all()
back = turnout.moe_re_routing_inverse(grouped, origin)
assert np.array_equal(back, arrived)

# Output:
#   expert 0: [0.0, 0.25]
#   expert 1: [1.0]
#   expert 2: [2.0, 2.5, 2.75]
