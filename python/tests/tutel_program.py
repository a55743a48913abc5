"""A small training program with Tutel's names, like its helloworld. Its losses are recorded."""

import json
import pathlib

import torch
from torch.nn import functional

from turnout.compat.tutel import moe, net

RUNS = json.loads((pathlib.Path(__file__).parent / "tutel_losses.json").read_text())["runs"]


class Model(torch.nn.Module):
    def __init__(self, arguments, rank):
        super().__init__()
        self.layer = moe.moe_layer(
            gate_type={"type": "top", "k": arguments["top"], "capacity_factor": arguments["capacity_factor"]},
            experts={
                "type": "ffn",
                "num_experts_per_device": arguments["num_local_experts"],
                "hidden_size_per_expert": arguments["hidden_size"],
                "activation_fn": functional.relu,
            },
            model_dim=arguments["model_dim"],
            scan_expert_func=lambda name, parameter: setattr(parameter, "skip_allreduce", True),
            seeds=(1, rank + 1, 1),
            a2a_ffn_overlap_degree=arguments.get("a2a_ffn_overlap_degree", 1),
        )

    def forward(self, x):
        return functional.log_softmax(self.layer(x).sum(dim=2), dim=1)


def train(arguments, rank=0, world=1):
    torch.set_default_dtype(getattr(torch, arguments.get("dtype", "float32")))
    try:
        model = Model(arguments, rank)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        torch.manual_seed(0)
        shape = [arguments[name] for name in ("batch_size", "num_tokens", "model_dim")]
        x = torch.randn(shape, dtype=torch.float32).to(torch.get_default_dtype())
        y = torch.zeros(shape[0], dtype=torch.int64)
        shared = [p for p in model.parameters() if not hasattr(p, "skip_allreduce")]
        losses = []
        for _ in range(arguments["num_steps"]):
            optimizer.zero_grad()
            loss = functional.nll_loss(model(x), y)
            loss = loss + arguments.get("l_aux_wt", 0.0) * model.layer.l_aux
            loss.backward()
            for parameter in shared:
                parameter.grad = net.simple_all_reduce(parameter.grad / world)
            optimizer.step()
            losses.append(loss.item())
        return losses
    finally:
        torch.set_default_dtype(torch.float32)


def all_runs(rank, world):
    for run in RUNS:
        if run["processes"] == world:
            losses = train(run["arguments"], rank, world)
            if rank == 0:
                assert max(abs(a - b) for a, b in zip(losses, run["losses"], strict=True)) <= 2e-5, run
    print("equal")
