"""The RNN-T loss with NumPy: its value, the gradient of the logits, and the best alignment."""

import numpy as np

import turnout

frames, classes, blank = 12, 6, 0
text = np.int64([[3, 1, 4]])
random = np.random.default_rng(0)
logits = random.standard_normal((1, frames, text.size + 1, classes), dtype=np.float32)

losses = []
for step in range(31):
    px, py, normalizer, _ = turnout.rnnt_logprobs_joint_forward(logits, text, blank)
    score, px_grad, py_grad = turnout.mutual_information_forward_backward(px, py)
    losses.append(-score[0])
    if step % 10 == 0:
        print(f"step {step:2}: loss {losses[-1]:.4f}")
    logits += turnout.rnnt_logprobs_joint_backward(logits, text, normalizer, px_grad, py_grad, blank)

px, py, _, _ = turnout.rnnt_logprobs_joint_forward(logits, text, blank)
at, best = turnout.rnnt_align(px, py)
print(f"best path: symbols {text[0].tolist()} at frames {at[0].tolist()}, log-probability {best[0]:.4f}")
assert losses[-1] < 0.2 * losses[0]
assert (np.diff(at[0]) >= 0).all()

# Output:
#   step  0: loss 24.1661
#   step 10: loss 1.5879
#   step 20: loss 0.7056
#   step 30: loss 0.4506
#   best path: symbols [3, 1, 4] at frames [1, 1, 10], log-probability -0.4684
