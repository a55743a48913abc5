"""Compares the speed of a random Qwen3-MoE with the experts of transformers and with those of Turnout.

Prints tokens per second for a prompt and for decoding, also with 8-bit and 4-bit experts, and the relative
difference of the logits.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence

import torch
from transformers import AutoModelForCausalLM, Qwen3MoeConfig

import turnout.compat.transformers

IMPLEMENTATIONS = ("grouped_mm", "turnout")


def model_of(small: bool) -> torch.nn.Module:
    width, inner, experts, layers = (64, 32, 8, 2) if small else (1024, 384, 32, 4)
    config = Qwen3MoeConfig(
        hidden_size=width,
        moe_intermediate_size=inner,
        num_experts=experts,
        num_experts_per_tok=4,
        num_hidden_layers=layers,
        num_attention_heads=width // 32,
        num_key_value_heads=2,
        head_dim=32,
        vocab_size=1000,
    )
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()


def seconds_of(
    model: torch.nn.Module,
    function: Callable[[torch.nn.Module], object],
    rounds: int,
    names: Sequence[str] = IMPLEMENTATIONS,
) -> dict[str, float]:
    """Returns the median time of each implementation. Their calls alternate."""
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(rounds + 1):
        for name in names:
            model.set_experts_implementation(name)
            start = time.perf_counter()
            function(model)
            times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken[1:]) for name, taken in times.items()}  # the first calls warm up


def main(arguments: list[str] | None = None) -> float:
    """Prints the speeds. Returns the relative difference of the logits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true", help="use a small model, which takes seconds")
    small = parser.parse_args(arguments).small
    turnout.compat.transformers.install()
    model = model_of(small)
    prompt = torch.randint(0, 1000, (1, 16 if small else 256))
    new = 4 if small else 16

    def decode(model: torch.nn.Module) -> torch.Tensor:
        return model.generate(
            prompt[:, :8], max_new_tokens=new, min_new_tokens=new, do_sample=False, pad_token_id=0
        )

    with torch.inference_mode():
        for what, tokens, function in (
            (f"prompt of {prompt.shape[1]} tokens", prompt.shape[1], lambda model: model(prompt)),
            (f"decoding {new} tokens", new, decode),
        ):
            times = seconds_of(model, function, 1 if small else 5)
            before, after = (times[name] for name in IMPLEMENTATIONS)
            rates = f"{tokens / before:.1f} tokens/s with grouped_mm, {tokens / after:.1f} with turnout"
            print(f"{what}: {rates}, {before / after:.2f} times as fast")
        logits = []
        for name in IMPLEMENTATIONS:
            model.set_experts_implementation(name)
            logits.append(model(prompt).logits.float())
        for bits in (8, 4):
            rounded = model_of(small)
            turnout.compat.transformers.quantize(rounded, bits=bits)
            times = seconds_of(rounded, decode, 1 if small else 5, ["turnout"])
            print(f"decoding with {bits}-bit experts: {new / times['turnout']:.1f} tokens/s")
    difference = ((logits[0] - logits[1]).norm() / logits[0].norm()).item()
    print(f"relative difference of the logits, in bfloat16: {difference:.1e}")
    return difference


if __name__ == "__main__":
    main()
