"""Tutel's layer: gate, dispatch, exchange, experts, exchange back, combine."""

from __future__ import annotations

import logging
import math
import os
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.nn import functional

from turnout.compat.tutel.collectives import (
    all_to_all,
    get_world_rank,
    get_world_size,
    simple_all_gather,
)
from turnout.compat.tutel.dispatcher import fast_decode, fast_encode
from turnout.compat.tutel.parts import CosineTopGate, FfnExperts, LlamaFfnExperts, TopGate
from turnout.compat.tutel.routing import (
    extract_critical,
    global_gshard_loss,
    gshard_loss,
    load_importance_loss,
    round_up,
)
from turnout.torch.exchange import in_graph

_GATES = {"top": TopGate, "cosine_top": CosineTopGate}
_EXPERTS = {"ffn": FfnExperts, "llama_ffn": LlamaFfnExperts}


def _module_of(kind: str, options: dict[str, Any], known: dict[str, type]) -> Callable:
    """Returns the factory of the gate or the experts; removes 'type' and 'module' from the options."""
    if "type" not in options:
        raise ValueError(f"moe_layer: {kind} has no key 'type', expected one of {', '.join(known)}, custom")
    name = options.pop("type")
    if name == "custom":
        if "module" not in options:
            raise ValueError(f"moe_layer: {kind} of type 'custom' has no key 'module'")
        return options.pop("module")
    if name not in known:
        raise ValueError(f"moe_layer: {kind} has type {name!r}, expected one of {', '.join(known)}, custom")
    return known[name]


class moe_layer(torch.nn.Module):  # noqa: N801 -- Tutel's name
    """A mixture of experts with Tutel's arguments, parameter names, initial values and results.

    The processes of ``group``, or all of them, share the experts: each has ``num_experts_per_device``.
    Options that only a GPU can use (``use_2dh``, ``a2a_ffn_overlap_degree``, ``megablocks_size``) have no
    effect, except that the capacity is a multiple of the overlap degree.

    With ``num_experts_per_device=-n``, each expert is sharded over n neighbouring processes, each of which
    has a part of its hidden units. ``parallel_type='adaptive:r'``, or ``adaptive_r`` in a call, decides what
    is exchanged; the results are the same. With 1 ('data', 'auto'), the n processes gather the weights and
    divide the tokens. With n ('model'), weights stay, each of the n processes gets all tokens, and the
    results are summed. With a divisor r in between, the expert is computed in r parts. With 0, tokens stay
    and each process gathers all experts.

    If no token is dropped (a capacity factor of 0), outputs and gradients are the same on any number of
    processes. Gradients of experts are those of the sum of all processes' losses. To train with the mean,
    divide each process's loss by the number of processes and sum the gradients of all other parameters; or
    average those and divide the gradients of the experts.

    As in Tutel, ``l_aux`` is the loss of this process's own tokens, and its mean over the processes is not
    the loss of all tokens. With ``global_aux=True`` it is: the scores of this process are combined with the
    first choices of all processes (one more all-reduce, of a count per expert). The mean over the processes
    of the loss and of its gradient then does not depend on their number.
    """

    def __init__(
        self,
        gate_type: dict | Sequence[dict] | str,
        model_dim: int,
        experts: dict | None = None,
        scan_expert_func: Callable | None = None,
        result_func: Callable | None = None,
        group: Any = None,
        seeds: Sequence[int | None] | None = None,
        a2a_ffn_overlap_degree: int = 1,
        is_postscore: bool = True,
        batch_prioritized_routing: bool = False,
        normalize_gate: bool = True,
        is_gshard_loss: bool = True,
        parallel_type: str = "adaptive:1",
        use_2dh: bool = False,
        *,
        global_aux: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        if "pad_samples" in kwargs:
            warnings.warn("moe_layer: pad_samples is ignored", stacklevel=2)
            kwargs.pop("pad_samples")
        for name in kwargs:
            raise TypeError(f"moe_layer: {name} is not an argument")
        if model_dim % 2 != 0:
            raise ValueError(f"moe_layer: model_dim is {model_dim}, expected an even number")
        if global_aux and not is_gshard_loss:
            raise ValueError(
                "moe_layer: global_aux is True and is_gshard_loss is False, expected only one of them: the "
                "gshard loss alone has a global form"
            )
        self.global_aux = global_aux
        self.group, self.model_dim, self.result_func = group, model_dim, result_func
        self.a2a_ffn_overlap_degree, self.use_2dh = a2a_ffn_overlap_degree, use_2dh
        self.is_postscore, self.normalize_gate = is_postscore, normalize_gate
        self.batch_prioritized_routing, self.is_gshard_loss = batch_prioritized_routing, is_gshard_loss
        self.megablocks_size = 0
        self.l_aux: torch.Tensor | None = None
        self.dispatch_count: torch.Tensor | None = None
        self.protected_shape: Any = None  # set to a shape by a call

        options = dict(experts or {})
        local = options.pop("num_experts_per_device", options.pop("count_per_node", 1))
        total = self.global_expert_count(local, group)
        self.num_local_experts = max(local, 1)
        self.register_buffer("_num_global_experts", torch.tensor(total))
        self.sharded_count = max(get_world_size(group) // total, 1)
        self.valid_rs = [0, *(r for r in range(1, self.sharded_count + 1) if self.sharded_count % r == 0)]
        self.adaptive_degree = self._degree_of(parallel_type)
        self._make_experts(options, seeds, scan_expert_func)
        self._make_gates(gate_type, seeds)
        if seeds is not None and len(seeds) > 2 and seeds[2] is not None:
            torch.manual_seed(seeds[2])

    def _degree_of(self, parallel_type: str) -> int:
        if parallel_type in ("auto", "data"):
            return 1
        if parallel_type == "model":
            return self.sharded_count
        adaptive = re.match(r"^adaptive:([0-9]+)$", parallel_type)
        if adaptive is None:
            raise ValueError(
                f"moe_layer: parallel_type is {parallel_type!r}, expected auto, data, model or adaptive:<n>"
            )
        degree = min(int(adaptive[1]), self.sharded_count)
        if degree not in self.valid_rs:
            raise ValueError(
                f"moe_layer: parallel_type is {parallel_type!r}, expected adaptive:<n> with n one of "
                f"{self.valid_rs}"
            )
        return degree

    def _make_experts(self, options: dict, seeds: Any, scan: Callable | None) -> None:
        if seeds is not None and seeds[1] is not None:
            torch.manual_seed(seeds[1])
        module = _module_of("experts", options, _EXPERTS)
        common = {"model_dim": self.model_dim, "sharded_count": self.sharded_count, **options}
        try:
            self.experts = module(num_experts_per_device=self.num_local_experts, **common)
        except TypeError as error:  # custom experts of older programs
            if "num_experts_per_device" not in str(error):
                raise
            self.experts = module(local_experts=self.num_local_experts, **common)
        for name, parameter in self.experts.named_parameters():
            if scan is not None:
                scan(name, parameter)
            parameter._tutel_expert = True

    def _make_gates(self, gate_type: Any, seeds: Any) -> None:
        if isinstance(gate_type, str):
            top = re.match(r"^Top([0-9]+)Gate$", gate_type)
            if top is None:
                raise ValueError(
                    f"moe_layer: gate_type is {gate_type!r}, expected a dictionary or 'Top<k>Gate'"
                )
            gate_type = {"type": "top", "k": int(top[1])}
        gates = []
        for i, one in enumerate(gate_type if isinstance(gate_type, (list, tuple)) else [gate_type]):
            options = dict(one)
            module = _module_of("gate_type", options, _GATES)
            if seeds is not None and seeds[0] is not None:
                torch.manual_seed(seeds[0] + i)
            gate = module(model_dim=self.model_dim, num_global_experts=self.num_global_experts, **options)
            if not hasattr(gate, "gate_noise"):
                gate.gate_noise = options.get("gate_noise", 0.0)
            if not hasattr(gate, "capacity_factor"):
                default = float(os.environ.get("CAP_FACTOR", "1.0"))
                gate.capacity_factor = options.get("capacity_factor", default)
            gates.append(gate)
        self.gates = torch.nn.ModuleList(gates)

    @staticmethod
    def global_expert_count(num_local_experts: int, group: Any = None) -> int:
        """Returns the number of experts on all processes; ``-n`` means one expert per n processes."""
        world = get_world_size(group)
        if isinstance(num_local_experts, int):
            if num_local_experts > 0:
                return num_local_experts * world
            if num_local_experts < 0 and world % num_local_experts == 0:
                return world // -num_local_experts
        raise ValueError(
            f"moe_layer: num_experts_per_device is {num_local_experts}, expected 1 or more, or -n for an "
            f"expert that n processes share, where n divides their number, {world}"
        )

    @property
    def num_global_experts(self) -> int:
        return int(self._num_global_experts)

    def extra_repr(self) -> str:
        rank = f"{get_world_rank(self.group)}/{get_world_size(self.group)}"
        choices = ", ".join(str(gate.top_k) for gate in self.gates)
        return f"top_k={choices}, num_global_experts={self.num_global_experts}, process={rank}"

    def get_parameter_iterator(self, param_type: str) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Yields the parameters of 'gate' or of 'local_experts'."""
        if param_type == "gate":
            return self.gates.named_parameters()
        if param_type == "local_experts":
            return self.experts.named_parameters()
        raise ValueError(
            f"get_parameter_iterator: param_type is {param_type!r}, expected 'gate' or 'local_experts'"
        )

    def _load_from_state_dict(self, state_dict, prefix, *args, **kwargs):
        key = f"{prefix}_num_global_experts"
        if key not in state_dict:
            logging.warning("moe_layer: the state has no %s, using %d", key, self.num_global_experts)
            state_dict[key] = self._num_global_experts
        elif int(state_dict[key]) != self.num_global_experts:
            raise ValueError(
                f"moe_layer: {key} of the state is {int(state_dict[key])}, expected {self.num_global_experts}"
            )
        for name, parameter in self.experts.named_parameters():
            key = f"{prefix}experts.{name}"
            if key not in state_dict:
                logging.warning("moe_layer: the state has no %s, using zeros", key)
                state_dict[key] = torch.zeros_like(parameter)
            elif state_dict[key].shape != parameter.shape and state_dict[key].numel() == parameter.numel():
                state_dict[key] = state_dict[key].reshape(parameter.shape)
        return super()._load_from_state_dict(state_dict, prefix, *args, **kwargs)

    def _route(self, gate, x, capacity_factor, top_k, inequivalent_tokens):
        logits = gate(x)
        noisy = logits
        if self.training and gate.gate_noise > 0:
            noisy = logits + gate.gate_noise * torch.randn_like(logits) / self.num_global_experts

        def loss(scores, topk_ids):
            if self.global_aux:
                return global_gshard_loss(scores, topk_ids, self.group)
            if self.is_gshard_loss:
                return gshard_loss(scores, topk_ids)
            clean, chosen = functional.softmax(logits, dim=1), noisy.gather(1, topk_ids)
            return load_importance_loss(clean, chosen, self.num_global_experts, gate.gate_noise)

        alignment = round_up(self.sharded_count * self.a2a_ffn_overlap_degree, max(self.megablocks_size, 1))
        if alignment > 256:  # an expert's processes divide its slots
            alignment = round_up(alignment, math.lcm(128, self.sharded_count))
        critical, l_aux = extract_critical(
            functional.softmax(noisy, dim=1),
            top_k=gate.top_k if top_k is None else top_k,
            loss_fn=loss,
            capacity_factor=gate.capacity_factor if capacity_factor is None else capacity_factor,
            batch_prioritized_routing=self.batch_prioritized_routing,
            normalize_gate=self.normalize_gate,
            alignment=alignment,
            group=self.group,
            inequivalent_tokens=inequivalent_tokens,
        )
        return logits.dtype, critical, l_aux

    def _check_capacity(self, own: int) -> None:
        """Raises ValueError unless all processes have the same capacity, which their exchange requires."""
        for rank, capacity in enumerate(simple_all_gather(torch.tensor([own]), self.group).tolist()):
            if capacity != own:
                raise RuntimeError(
                    f"moe_layer: rank {rank} has capacity {capacity}, expected {own} as here: processes "
                    "with different numbers of tokens need inequivalent_tokens=True or a capacity factor of 0"
                )

    def _experts_of(self, y: torch.Tensor, kept: list[int]) -> torch.Tensor:
        """Applies the experts of this process to ``[experts, slots, hidden]``."""
        y = self.experts(y.reshape(y.shape[0], y.shape[1], *kept), self)
        self.protected_shape = y.shape
        return y.flatten(2)

    def _exchanged(self, y: torch.Tensor, kept: list[int], world: int) -> torch.Tensor:
        """Applies all experts: sends the slots to the experts' processes and receives the results."""
        if self.sharded_count > 1:
            # Copy an expert's slots for each of its parts. The processes of a part divide the copy.
            y = y.repeat(1, self.adaptive_degree, 1).reshape(world, -1, y.shape[2])
        y = all_to_all(y, 1, 0, group=self.group)
        y = all_to_all(self._experts_of(y, kept), 0, 1, group=self.group)
        if self.sharded_count > 1:
            y = y.reshape(self.num_global_experts, self.adaptive_degree, -1, y.shape[2]).sum(1)
        return y

    def forward(
        self,
        input: torch.Tensor,
        gate_index: int = 0,
        capacity_factor: float | None = None,
        top_k: int | None = None,
        a2a_ffn_overlap_degree: int | None = None,
        reserve_dims: int = 1,
        inequivalent_tokens: bool = False,
        adaptive_r: int | None = None,
        megablocks_size: int = 0,
    ) -> torch.Tensor:
        if input.dim() < 2:
            raise ValueError(f"moe_layer: input has {input.dim()} dimensions, expected 2 or more")
        if adaptive_r is not None and adaptive_r not in self.valid_rs:
            raise ValueError(f"moe_layer: adaptive_r is {adaptive_r}, expected one of {self.valid_rs}")
        if a2a_ffn_overlap_degree is not None:
            self.a2a_ffn_overlap_degree = a2a_ffn_overlap_degree
        if adaptive_r is not None:
            self.adaptive_degree = adaptive_r
        world = get_world_size(self.group)
        use_blocks = self.num_local_experts > 1 and world == 1 and not torch.is_grad_enabled()
        self.megablocks_size = megablocks_size if use_blocks else 0
        kept = list(input.shape[-reserve_dims:])
        x = input.reshape(-1, math.prod(kept))
        for parameter in self.experts.parameters():
            x = x.to(parameter.dtype)
            break
        dtype, critical, l_aux = self._route(
            self.gates[gate_index], x, capacity_factor, top_k, inequivalent_tokens
        )
        self.dispatch_count = critical[-1]
        y = fast_encode(x.to(dtype).contiguous(), critical, self.is_postscore).to(x.dtype)
        if world > 1:
            self._check_capacity(critical[4])
            y = in_graph(y)
        y = self._experts_of(y, kept) if self.adaptive_degree == 0 else self._exchanged(y, kept, world)
        y = fast_decode(y.to(dtype).contiguous(), critical, self.is_postscore)
        y = y.reshape(*input.shape[:-reserve_dims], *self.protected_shape[2:]).to(input.dtype)
        self.l_aux = y.l_aux = l_aux
        return y if self.result_func is None else self.result_func(y)
