"""The program of each process in the tests of moe_layer: compares a shared layer with a local one."""

import copy
import os

import pytest
import torch
import torch.distributed as dist
from expert_parallel_program import splits
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from turnout.compat.tutel import moe, net, system

EXPERTS, HIDDEN, SAMPLES = 4, 6, 24


def samples_of(kind, rank, world):
    """Returns the tokens of all processes, and the range of this process."""
    tokens = torch.randn(SAMPLES, HIDDEN, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return tokens, torch.arange(SAMPLES).split(splits(kind, world))[rank]


class Model(torch.nn.Module):
    """A layer between others, shared by the processes of a group, with the weights of the whole."""

    def __init__(self, group, local, first, **options):
        super().__init__()
        torch.manual_seed(1)
        self.before = torch.nn.Linear(HIDDEN, HIDDEN)
        options = {"gate_type": {"type": "top", "k": 2, "capacity_factor": 0.0}, **options}
        experts = {"type": "ffn", "num_experts_per_device": EXPERTS, "hidden_size_per_expert": 5}
        own = dist.new_group([dist.get_rank()], use_local_synchronization=True)
        whole = moe.moe_layer(experts=experts, model_dim=HIDDEN, group=own, seeds=(1, 2, 3), **options)
        experts["num_experts_per_device"] = local
        self.layer = moe.moe_layer(experts=experts, model_dim=HIDDEN, group=group, seeds=(1, 2, 3), **options)
        for mine, all_of_them in zip(
            self.layer.experts.parameters(), whole.experts.parameters(), strict=True
        ):
            mine.data = all_of_them.data[first : first + local].clone()
        self.double()

    def forward(self, x):
        return x + self.layer(self.before(x))


def models(rank, world, **options):
    """Returns a model whose experts all processes share, and one that is local to this process."""
    own = dist.new_group([rank], use_local_synchronization=True)
    local = EXPERTS // world
    return Model(None, local, rank * local, **options), Model(own, EXPERTS, 0, **options)


def part_of(gradient, rank, world):
    return gradient.split(EXPERTS // world)[rank]


def check_gradients(shared, alone, rank, world, *, reduce):
    """Compares gradients of experts directly, and those of other parameters after ``reduce``."""
    wanted = dict(alone.named_parameters())
    for name, parameter in shared.named_parameters():
        gradient, expected = parameter.grad, wanted[name].grad
        if hasattr(parameter, "_tutel_expert"):
            expected = part_of(expected, rank, world)
        else:
            gradient = reduce(gradient)
        torch.testing.assert_close({name: gradient}, {name: expected})  # the error shows the name


def same_as_alone(rank, world):
    """Without dropped tokens, outputs, the global loss and gradients equal those of one process."""
    for kind, options in (
        ("uneven", {}),
        ("no tokens", {"batch_prioritized_routing": True}),
        ("uneven", {"gate_type": {"type": "cosine_top", "k": 1, "capacity_factor": 0.0}}),
    ):
        shared, alone = models(rank, world, global_aux=True, **options)
        tokens, mine = samples_of(kind, rank, world)
        # Divide each mean by the number of processes, so that the losses add up to the loss of one.
        y = shared(tokens[mine])
        (y.sin().sum() + 7 * shared.layer.l_aux / world).backward()
        wanted = alone(tokens)
        (wanted.sin().sum() + 7 * alone.layer.l_aux).backward()
        torch.testing.assert_close(y, wanted[mine])
        mean = net.simple_all_reduce(shared.layer.l_aux.detach()) / world
        torch.testing.assert_close(mean, alone.layer.l_aux.detach())
        check_gradients(shared, alone, rank, world, reduce=net.simple_all_reduce)
    shared, _ = models(rank, world)  # Tutel's own loss is local to each process
    shared(tokens[mine])
    assert (net.simple_all_reduce(shared.layer.l_aux.detach()) / world - mean).abs() > 1e-3


def shards_of(whole, count, expert, place):
    """Cuts the parameters of process ``place`` of the ``count`` that share an expert from whole ones."""
    for name, parameter in whole.named_parameters():
        values = parameter.detach()
        if name.startswith("W_fc"):
            flat = values.view(whole.local_experts, -1)[expert]
        elif name == "batched_fc2_bias":
            flat = values[expert]
        else:
            yield name, values.chunk(count, dim=1)[place][expert : expert + 1].clone()
            continue
        flat = torch.nn.functional.pad(flat, (0, -len(flat) % count)).chunk(count)[place].clone()
        yield name, flat if name.startswith("W_fc") else flat.unsqueeze(0)


def gradients_of(experts):
    """Returns a copy of the experts whose parameters are their gradients."""
    made = copy.deepcopy(experts)
    for parameter, source in zip(made.parameters(), experts.parameters(), strict=True):
        parameter.data = source.grad
    return made


def sharded(rank, world):
    """Experts shared by several processes compute the same as whole experts, whatever is exchanged."""
    torch.manual_seed(3)
    own = dist.new_group([rank], use_local_synchronization=True)
    tokens, mine = samples_of("no tokens", rank, world)
    for kind in ("ffn", "llama_ffn"):
        for count in {2, world}:
            options = {"gate_type": {"type": "top", "k": 2, "capacity_factor": 0.0}, "model_dim": HIDDEN}
            experts = {"type": kind, "hidden_size_per_expert": 4 if kind == "ffn" else 5}
            more = {"output_dim": 5} if kind == "ffn" else {}  # the bias cannot be divided evenly
            total = world // count
            whole = moe.moe_layer(
                **options, group=own, experts={**experts, **more, "num_experts_per_device": total}
            ).double()
            torch.nn.init.normal_(whole.gates[0].wg.weight)
            for parameter in whole.parameters():
                parameter.data = net.simple_broadcast(torch.randn_like(parameter), 0)
            wanted = whole(tokens)
            wanted.sin().sum().backward()
            for parallel_type in ("data", "model", "auto", "adaptive:0", "adaptive:1", "adaptive:99"):
                layer = moe.moe_layer(
                    **options,
                    experts={**experts, **more, "num_experts_per_device": -count},
                    parallel_type=parallel_type,
                ).double()
                assert (layer.num_global_experts, layer.num_local_experts) == (total, 1)
                assert layer.sharded_count == count and layer.valid_rs[-1] == count
                place = rank // count, rank % count
                layer.load_state_dict(
                    {
                        **{
                            name: value
                            for name, value in whole.state_dict().items()
                            if "experts." not in name
                        },
                        "_num_global_experts": torch.tensor(total),
                        **{f"experts.{name}": v for name, v in shards_of(whole.experts, count, *place)},
                    }
                )
                y = layer(tokens[mine])
                torch.testing.assert_close(y, wanted[mine])
                y.sin().sum().backward()
                for name, gradient in shards_of(gradients_of(whole.experts), count, *place):
                    torch.testing.assert_close(
                        {name: layer.experts.get_parameter(name).grad}, {name: gradient}
                    )
                gate = net.simple_all_reduce(layer.gates[0].wg.weight.grad)
                torch.testing.assert_close(gate, whole.gates[0].wg.weight.grad)
                for degree in layer.valid_rs:
                    torch.testing.assert_close(layer(tokens[mine], adaptive_r=degree), wanted[mine])
                    assert layer.adaptive_degree == degree
    with pytest.raises(
        ValueError, match="moe_layer: hidden_size_per_expert is 5, expected a multiple of the 2"
    ):
        experts = {"type": "ffn", "hidden_size_per_expert": 5, "num_experts_per_device": -2}
        moe.moe_layer(**options, experts=experts)
    with pytest.raises(ValueError, match=r"num_experts_per_device is -3, expected .* divides their number"):
        moe.moe_layer.global_expert_count(-3)
    with pytest.raises(ValueError, match=r"moe_layer: adaptive_r is 3, expected one of \[0, 1, 2"):
        layer(tokens[mine], adaptive_r=3)
    if world == 4:
        with pytest.raises(
            ValueError, match=r"parallel_type is 'adaptive:3', expected .* one of \[0, 1, 2, 4\]"
        ):
            experts = {"type": "ffn", "hidden_size_per_expert": 4, "num_experts_per_device": -4}
            moe.moe_layer(**options, experts=experts, parallel_type="adaptive:3")


def sharded_in_16_bits(rank, world):
    """Without a gradient, 16-bit experts are one call, and so are their shards."""
    experts = {"type": "ffn", "hidden_size_per_expert": 4 * world, "num_experts_per_device": -world}
    gate = {"type": "top", "k": 1, "capacity_factor": 0.0}
    layer = moe.moe_layer(gate, HIDDEN, experts, seeds=(1, rank, 1)).bfloat16()
    tokens = torch.randn(5, HIDDEN, generator=torch.Generator().manual_seed(rank))
    with torch.no_grad():
        for degree in layer.valid_rs:
            y = layer(tokens, adaptive_r=degree)
            wanted = copy.deepcopy(layer).float()(tokens)
            torch.testing.assert_close(y, wanted, rtol=0.03, atol=0.03)


def data_parallel(rank, world):
    """DistributedDataParallel averages all gradients except the experts', which the test divides."""
    shared, alone = models(rank, world)
    experts = [name for name, p in shared.named_parameters() if hasattr(p, "_tutel_expert")]
    for name in experts:
        shared.get_parameter(name).register_hook(lambda gradient: gradient / world)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(shared, experts)
    tokens, mine = samples_of("no tokens", rank, world)
    parallel = DistributedDataParallel(shared)
    parallel(tokens[mine]).sin().sum().backward()
    (alone(tokens).sin().sum() / world).backward()
    check_gradients(shared, alone, rank, world, reduce=lambda gradient: gradient)


def fully_sharded(rank, world):
    """FSDP2 shards all but the experts and averages like DistributedDataParallel. Trains one step."""
    shared, alone = models(rank, world)
    experts = [p for p in shared.parameters() if hasattr(p, "_tutel_expert")]
    for parameter in experts:
        parameter.register_hook(lambda gradient: gradient / world)
    fully_shard(shared, mesh=init_device_mesh("cpu", (world,)), ignored_params=set(experts))
    others = [p for p in shared.parameters() if not hasattr(p, "_tutel_expert")]
    assert all(isinstance(p, torch.distributed.tensor.DTensor) for p in others)
    tokens, mine = samples_of("no tokens", rank, world)
    shared(tokens[mine]).sin().sum().backward()
    (alone(tokens).sin().sum() / world).backward()
    check_gradients(shared, alone, rank, world, reduce=lambda gradient: gradient.full_tensor())
    torch.optim.SGD([{"params": experts}, {"params": others}], lr=0.1).step()
    torch.optim.SGD(alone.parameters(), lr=0.1).step()
    torch.testing.assert_close(shared(tokens[mine]), alone(tokens)[mine])


def zero(rank, world):
    """Splits a tensor into parts, gathers them, and checks the gradient."""
    whole = torch.arange(7.0)
    part, shape = net.zero_scatter(whole.view(7, 1), net.simple_split)
    assert part.tolist() == torch.cat([whole, torch.zeros(-7 % world)]).chunk(world)[rank].tolist()
    part.requires_grad_()
    gathered = net.zero_gather(part, shape)
    assert gathered.shape == (7, 1) and torch.equal(gathered.view(-1), whole)
    (gathered.sum() * (rank + 1)).backward()
    weight = world * (world + 1) / 2
    assert (
        part.grad.tolist()
        == torch.cat([whole * 0 + weight, torch.zeros(-7 % world)]).chunk(world)[rank].tolist()
    )
    summed, _ = net.zero_scatter(whole, net.simple_reduce_scatter)
    assert torch.equal(summed, world * part.detach())
    with pytest.raises(ValueError, match=r"zero_gather: full_shape is \[100\], expected at most the"):
        net.zero_gather(part, (100,))


def exchange(rank, world):
    """Each process gets the slots of its own expert from all others, and sends them back."""
    expert, slot = torch.arange(world)[:, None], torch.arange(3)
    sent = 100 * rank + 10 * expert + slot
    received = net.all_to_all(sent, 1, 0)
    assert torch.equal(received, (100 * expert + 10 * rank + slot).view(1, -1))
    assert torch.equal(net.all_to_all(received, 0, 1), sent)
    for dims, place in (((1, 0), 0), ((0, 1), 1)):
        with pytest.raises(
            ValueError, match=rf"all_to_all: input.shape\[{place}\] is 3, expected a multiple of"
        ):
            net.all_to_all(torch.ones(3, 3), *dims)
    with pytest.raises(ValueError, match=r"output_dim is \(1, 1\), expected \(1, 0\) or \(0, 1\)"):
        net.all_to_all(sent, 1, 1)


def groups(rank, world):
    """Model groups of neighbours and data groups across them, made once."""
    pairs = net.create_groups_from_world(-2)
    assert pairs is net.create_groups_from_world(world // 2) is system.init_data_model_parallel(world // 2)
    assert (pairs.model_size, pairs.model_rank) == (2, rank % 2)
    assert dist.get_process_group_ranks(pairs.model_group) == [rank - rank % 2, rank - rank % 2 + 1]
    assert dist.get_process_group_ranks(pairs.data_group) == list(range(rank % 2, world, 2))
    for function in (net.create_groups_from_world, system.init_data_model_parallel):
        with pytest.raises(ValueError, match=f"{function.__name__}: group_count is 3, expected a divisor of"):
            function(3)


def optimizer(rank, world):
    """Each process has a part of Adam's state, and the model becomes the same as on one process."""
    shared, alone = models(rank, world)
    tokens, mine = samples_of("no tokens", rank, world)
    distributed = net.TutelDistributedOptimizer(shared.parameters(), average_shared=False)
    with pytest.raises(RuntimeError, match=r"there is no optimizer, expected warp_local\(\) first"):
        distributed.step()
    distributed = distributed.warp_local(torch.optim.Adam, lr=0.05)
    plain = torch.optim.Adam(alone.parameters(), lr=0.05)
    for _ in range(2):
        distributed.zero_grad()
        plain.zero_grad()
        shared(tokens[mine]).sin().sum().backward()
        alone(tokens).sin().sum().backward()
        if rank == world - 1:
            shared.before.weight.grad = None  # as if this process did not use it; here the gradient is zero
        distributed.step()
        plain.step()
    torch.testing.assert_close(shared(tokens[mine]), alone(tokens)[mine], rtol=1e-9, atol=1e-9)
    state = sum(s["exp_avg"].numel() for s in distributed.local_optim.state.values())
    assert state < sum(p.numel() for p in shared.parameters())
    fixed = torch.nn.Parameter(torch.ones(3))
    decays = net.TutelDistributedOptimizer([fixed]).warp_local(torch.optim.SGD, lr=0.1, weight_decay=1.0)
    decays.step()
    assert fixed.tolist() == [1, 1, 1]  # no process has a gradient
    fixed.grad = torch.full((3,), float(rank))
    average = net.TutelDistributedOptimizer([fixed], average_shared=True).warp_local(torch.optim.SGD, lr=1.0)
    average.step()
    torch.testing.assert_close(fixed.detach(), torch.full((3,), 1 - (world - 1) / 2))
    average.zero_grad(set_to_none=False)
    assert fixed.grad.tolist() == [0, 0, 0]


def backward_where_one_needs_it(rank, world):
    """Only one process's tokens need gradients. The others take part in the exchange without waiting."""
    shared, _ = models(rank, world)
    tokens, mine = samples_of("uneven", rank, world)
    own = tokens[mine].requires_grad_(rank == 0)
    shared.layer(own).sum().backward()
    assert (own.grad is not None) == (rank == 0)


def another_capacity(rank, world):
    """If the capacity depends on the tokens, their number must be equal or inequivalent_tokens be set."""
    shared, _ = models(rank, world, gate_type={"type": "top", "capacity_factor": 1.0})
    own, other = (4, 2) if rank == 1 else (2, 4)
    tokens = torch.ones(own * EXPERTS, HIDDEN, dtype=torch.float64)
    message = f"moe_layer: rank {0 if rank == 1 else 1} has capacity {other}, expected {own} as here"
    with pytest.raises(RuntimeError, match=message):
        shared.layer(tokens)
    assert shared.layer(tokens, inequivalent_tokens=True).shape == tokens.shape


def a_rank_dies(rank, world):
    """The last process ends before it calls the layer; the others name it."""
    shared, _ = models(rank, world)
    if rank == world - 1:
        os._exit(7)
    with pytest.raises(RuntimeError, match=f"simple_all_reduce: .* rank {world - 1} did not respond"):
        shared(torch.ones(3, HIDDEN, dtype=torch.float64))
    print("named", flush=True)
    os._exit(0)  # the group is broken; its destructor would wait for the others


def everything(rank, world):
    exchange(rank, world)
    same_as_alone(rank, world)
    sharded(rank, world)
    sharded_in_16_bits(rank, world)
    data_parallel(rank, world)
    fully_sharded(rank, world)
    zero(rank, world)
    groups(rank, world)
    optimizer(rank, world)
    backward_where_one_needs_it(rank, world)
    another_capacity(rank, world)
    print("same")
