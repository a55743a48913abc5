"""Tutel's names: recorded losses, the layer's arguments, routing and errors."""

import importlib
import inspect
import sys

import processes
import pytest
import torch
import tutel_program
from torch.nn import functional

from turnout.compat import tutel
from turnout.compat.tutel import moe, net, parts, system
from turnout.compat.tutel.routing import gshard_loss, load_importance_loss

pytestmark = pytest.mark.torch
ONE = [run for run in tutel_program.RUNS if run["processes"] == 1]
EXPERTS = {"type": "ffn", "num_experts_per_device": 4, "hidden_size_per_expert": 6}


@pytest.mark.parametrize("run", ONE)
def test_recorded_losses(run):
    losses = tutel_program.train(run["arguments"])
    assert len(losses) == len(run["losses"])
    assert max(abs(a - b) for a, b in zip(losses, run["losses"], strict=True)) <= 2e-5


def test_recorded_losses_of_two_processes():
    assert processes.run_well(2, "tutel_program", "all_runs") == ["equal\n"] * 2


def layer(**options):
    options = {"gate_type": {"type": "top", "k": 2}, "experts": EXPERTS, "model_dim": 8, **options}
    return moe.moe_layer(seeds=(1, 2, 3), **options)


# -- the layer ---------------------------------------------------------------------------------------------


def by_hand(layer, x, critical):
    """Computes the layer's result with plain torch, token by token."""
    _, indices, locations, gates, capacity, _ = critical
    parts = layer.experts
    output = torch.zeros(len(x), parts.output_dim)
    for k in range(len(indices)):
        for i in range(len(x)):
            e = int(indices[k][i])
            if locations[k][i] < capacity:
                hidden = functional.relu(parts.batched_fc1_w[e] @ x[i] + parts.batched_fc1_bias[e])
                result = hidden @ parts.batched_fc2_w[e] + parts.batched_fc2_bias[e]
                output[i] += gates[k][i] * result
    return output


@pytest.mark.parametrize("activation", [None, functional.silu, functional.gelu, functional.elu])
@pytest.mark.parametrize("biases", [True, False])
def test_experts_in_one_call(activation, biases, monkeypatch):
    """Without a recorded gradient, 16-bit experts are one operator with float32 intermediate values."""
    mixture = moe.moe_layer(
        gate_type={"type": "top"},
        experts={**EXPERTS, "activation_fn": activation, "has_fc1_bias": biases, "has_fc2_bias": biases},
        model_dim=8,
    )
    experts = mixture.experts
    for parameter in experts.parameters():
        torch.nn.init.normal_(parameter)
    experts, x = experts.bfloat16(), torch.randn(4, 5, 8).bfloat16()
    plain = experts(x, mixture)
    calls, real = [], parts.grouped_experts
    monkeypatch.setattr(parts, "grouped_experts", lambda *a, **k: calls.append(1) or real(*a, **k))
    with torch.no_grad():
        fused = experts(x, mixture)
        exact = experts.double()(x.double(), mixture)
    assert len(calls) == (activation is not functional.elu)
    errors = [((y.double() - exact).norm() / exact.norm()).item() for y in (plain, fused)]
    assert errors[1] <= max(errors[0], 4e-3)


@pytest.mark.parametrize("gate", ["top", "cosine_top"])
@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("factor", [1.0, 0.5, 0.0, -1.0])
def test_layer_by_hand(gate, k, factor):
    mixture = layer(gate_type={"type": gate, "k": k, "capacity_factor": factor})
    x = torch.randn(10, 8)
    y = mixture(x)
    scores = functional.softmax(mixture.gates[0](x), dim=1)
    critical, l_aux = moe.extract_critical(scores, k, capacity_factor=factor)
    torch.testing.assert_close(y, by_hand(mixture, x, critical))
    torch.testing.assert_close(y.l_aux, l_aux)
    assert mixture.l_aux is y.l_aux
    assert torch.equal(mixture.dispatch_count, critical[-1])
    (y.sum() + y.l_aux).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in mixture.parameters())


def test_state_dict():
    mixture = layer()
    shapes = {name: tuple(value.shape) for name, value in mixture.state_dict().items()}
    assert shapes == {
        "_num_global_experts": (),
        "experts.batched_fc1_w": (4, 6, 8),
        "experts.batched_fc2_w": (4, 6, 8),
        "experts.batched_fc1_bias": (4, 6),
        "experts.batched_fc2_bias": (4, 8),
        "gates.0.wg.weight": (4, 8),
    }
    cosine = layer(gate_type={"type": "cosine_top", "proj_dim": 16}).gates[0]
    assert set(cosine.state_dict()) == {
        *("temperature", "sim_matrix", "cosine_projector.weight", "cosine_projector.bias"),
    }
    llama = layer(experts={**EXPERTS, "type": "llama_ffn"})
    torch.manual_seed(2)  # the seed of the experts
    for parameter in llama.experts.parameters():
        assert torch.equal(parameter, torch.empty(4 * 6 * 8).normal_(0, 0.01))
    assert {n: p.dim() for n, p in llama.experts.named_parameters()} == {"W_fc1": 1, "W_fc2": 1, "W_fc3": 1}
    assert llama(torch.randn(3, 8)).shape == (3, 8)


def test_loading(caplog):
    mixture, state = layer(), layer().state_dict()
    state["experts.batched_fc1_bias"] = torch.arange(24.0)  # the same values in another shape
    del state["experts.batched_fc2_bias"]
    mixture.load_state_dict(state)
    assert mixture.experts.batched_fc1_bias[1, 0] == 6 and not mixture.experts.batched_fc2_bias.any()
    assert "the state has no experts.batched_fc2_bias" in caplog.text
    state["_num_global_experts"] = torch.tensor(5)
    with pytest.raises(ValueError, match="_num_global_experts of the state is 5, expected 4"):
        mixture.load_state_dict(state)


def test_dictionaries_stay_as_they_are():
    gate, experts = {"type": "top", "k": 1}, dict(EXPERTS)
    for _ in range(2):
        moe.moe_layer(gate, 8, experts)
    assert (gate, experts) == ({"type": "top", "k": 1}, EXPERTS)


def test_seeds_scan_and_results():
    seen = []
    first = layer(scan_expert_func=lambda name, p: seen.append(name), result_func=lambda y: y * 0)
    assert seen == [name for name, _ in first.get_parameter_iterator("local_experts")]
    assert all(p._tutel_expert for p in first.experts.parameters())
    assert [n for n, _ in first.get_parameter_iterator("gate")] == ["0.wg.weight"]
    second = layer()
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)
    assert not first(torch.randn(2, 3, 8)).any()


def test_shapes_and_dtypes():
    mixture = layer(gate_type=[{"type": "top", "fp32_gate": True}, "Top2Gate"][:1]).bfloat16()
    x = torch.randn(2, 5, 8, dtype=torch.float32)
    y = mixture(x)
    assert (y.shape, y.dtype) == (x.shape, torch.float32)
    assert mixture.gates[0].wg.weight.dtype == torch.float32
    assert layer(gate_type="Top2Gate").gates[0].top_k == 2
    wide = layer(experts={**EXPERTS, "output_dim": 6})
    assert wide(torch.randn(3, 8)).shape == (3, 6)
    reserved = layer()(torch.randn(5, 2, 4), reserve_dims=2)
    assert reserved.shape == (5, 2, 4)
    assert layer()(torch.randn(0, 8)).shape == (0, 8)  # no tokens


def test_noise_and_its_loss():
    mixture = layer(gate_type={"type": "top", "k": 2, "gate_noise": 1.0}, is_gshard_loss=False)
    x = torch.randn(20, 8)
    torch.manual_seed(5)
    l_aux = mixture(x).l_aux
    torch.manual_seed(5)
    logits = mixture.gates[0](x)
    noisy = logits + torch.randn_like(logits) / 4
    ids = torch.topk(noisy, 2).indices
    expected = load_importance_loss(logits.softmax(1), noisy.gather(1, ids), 4, 1.0)
    torch.testing.assert_close(l_aux, expected)
    mixture.eval()
    with torch.no_grad():
        assert torch.equal(mixture(x), mixture(x))


def test_custom_gate_and_experts():
    class Gate(torch.nn.Module):
        def __init__(self, model_dim, num_global_experts, capacity_factor):
            super().__init__()
            self.top_k, self.wg = 1, torch.nn.Linear(model_dim, num_global_experts)

        def forward(self, x):
            return self.wg(x)

    class Old(torch.nn.Module):
        def __init__(self, model_dim, local_experts, sharded_count, scale):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.full((local_experts, 1, 1), scale))

        def forward(self, x, ctx):
            assert (ctx.num_global_experts, ctx.sharded_count, ctx.model_dim) == (4, 1, 8)
            return x * self.scale

    mixture = layer(
        gate_type={"type": "custom", "module": Gate, "capacity_factor": 0.0},
        experts={"type": "custom", "module": Old, "count_per_node": 4, "scale": 3.0},
    )
    assert mixture.gates[0].capacity_factor == 0.0 and mixture.gates[0].gate_noise == 0.0
    x = torch.randn(6, 8)
    gates = functional.softmax(mixture.gates[0](x), dim=1).amax(1, keepdim=True)
    torch.testing.assert_close(mixture(x), 3 * gates * x)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_dim": 7}, "model_dim is 7, expected an even number"),
        ({"gate_type": {"k": 1}}, "gate_type has no key 'type'"),
        (
            {"gate_type": {"type": "best"}},
            "gate_type has type 'best', expected one of top, cosine_top",
        ),
        ({"gate_type": {"type": "top", "n": 1}}, "gate_type has the key 'n'"),
        ({"gate_type": "Top"}, "gate_type is 'Top', expected a dictionary or 'Top<k>Gate'"),
        (
            {"experts": {**EXPERTS, "num_experts_per_device": -2}},
            "num_experts_per_device is -2, expected 1 or more",
        ),
        ({"parallel_type": "some"}, "parallel_type is 'some'"),
        ({"speed": 1}, "speed is not an argument"),
        ({"global_aux": True, "is_gshard_loss": False}, "global_aux is True and is_gshard_loss is False"),
    ],
)
def test_refused(options, message):
    with pytest.raises((ValueError, TypeError), match=f"moe_layer: {message}"):
        layer(**options)


def test_accepted():
    with pytest.warns(UserWarning, match="pad_samples is ignored"):
        mixture = layer(pad_samples=True, use_2dh=True, parallel_type="data", batch_prioritized_routing=True)
    mixture(torch.randn(9, 8), megablocks_size=1, adaptive_r=1, a2a_ffn_overlap_degree=3)
    assert mixture.a2a_ffn_overlap_degree == 3
    names = list(inspect.signature(mixture.forward).parameters)
    assert names == [
        *("input", "gate_index", "capacity_factor", "top_k", "a2a_ffn_overlap_degree", "reserve_dims"),
        *("inequivalent_tokens", "adaptive_r", "megablocks_size"),
    ]


# -- routing -----------------------------------------------------------------------------------------------


def test_critical():
    scores = torch.tensor([[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.1, 0.2, 0.7]], requires_grad=True)
    critical, loss = moe.top_k_routing(scores, 2, capacity_factor=1.0)
    experts, indices, locations, gates, capacity, counts = critical
    assert (experts, capacity) == (3, 2)
    assert [i.tolist() for i in indices] == [[0, 0, 2], [1, 1, 1]]  # ties: smaller expert first
    assert [i.tolist() for i in locations] == [[0, 1, 0], [0, 1, 2]]
    assert all(i.dtype == torch.int32 for i in indices + locations)
    torch.testing.assert_close(gates[0] + gates[1], torch.ones(3))
    assert counts.tolist() == [2, 3, 1]
    ids, same_counts = moe.get_topk_selection(critical)
    assert ids.tolist() == [[0, 1], [0, 1], [2, 1]] and same_counts is counts
    torch.testing.assert_close(loss, gshard_loss(scores, ids))
    torch.testing.assert_close(loss, (scores.sum(0) * torch.tensor([2.0, 0.0, 1.0])).sum() * 3 / 9)
    assert moe.extract_critical(scores, 1, loss_fn=None)[1] is None
    assert moe.get_reversed_sample_ids(critical).tolist() == [[0, 1], [0, 1], [2, -1]]
    assert moe.get_reversed_sample_ids(critical, "top_id").tolist() == [[0, 0], [1, 1], [0, -1]]


@pytest.mark.parametrize("factor", [0.0, -1.0, 1.0])
def test_counts_are_exact_with_priorities(factor):
    scores = torch.rand(10, 4, generator=torch.Generator().manual_seed(1)).softmax(1)
    plain = moe.extract_critical(scores, 2, capacity_factor=factor)[0]
    ranked = moe.extract_critical(scores, 2, capacity_factor=factor, batch_prioritized_routing=True)[0]
    assert plain[-1].tolist() == ranked[-1].tolist() and plain[4] == ranked[4]
    assert plain[-1].sum() == 20
    best = scores.amax(1).argmax()
    assert ranked[2][0][best] == 0


@pytest.mark.parametrize("is_postscore", [True, False])
def test_encode_and_decode(is_postscore):
    scores = torch.rand(10, 4).softmax(1).double().requires_grad_()
    critical, _ = moe.extract_critical(scores, 2, capacity_factor=0.0)
    data = torch.randn(10, 6, dtype=torch.float64, requires_grad=True)
    encoded = moe.fast_encode(data, critical, is_postscore)
    assert encoded.shape == (4, critical[4], 6)
    torch.testing.assert_close(moe.fast_decode(encoded, critical, is_postscore), data)
    dispatcher = moe.fast_dispatcher(4, critical[4], 6, torch.float64)
    dispatcher.update(critical[1], critical[2], critical[3], capacity=None, is_postscore=is_postscore)
    assert torch.equal(dispatcher.encode(data), encoded.flatten(0, 1))
    output = dispatcher.decode(dispatcher.encode(data))
    # A later routing does not change the gradient.
    dispatcher.update([i * 0 - 1 for i in critical[1]], critical[2], critical[3])
    output.sum().backward()
    torch.testing.assert_close(data.grad, torch.ones_like(data))
    assert scores.grad is not None
    with pytest.raises(ValueError, match=r"fast_dispatcher\.encode: data is strided"):
        dispatcher.encode(torch.ones(6, 10).T)


def test_no_tokens():
    critical, loss = moe.extract_critical(torch.zeros(0, 4, requires_grad=True), 2, capacity_factor=0.0)
    assert (critical[4], loss.item(), loss.requires_grad) == (0, 0.0, True)
    assert moe.fast_encode(torch.zeros(0, 6), critical).shape == (4, 0, 6)
    assert moe.fast_decode(torch.zeros(4, 0, 6), critical).shape == (0, 6)


def test_cumsum():
    mask = torch.tensor([[0, 1], [1, 1], [0, 1]])
    assert moe.fast_cumsum_sub_one(mask).tolist() == [[-1, 0], [0, 1], [0, 2]]
    with pytest.raises(ValueError, match="fast_cumsum_sub_one"):
        moe.fast_cumsum_sub_one(mask, dim=1)


# -- system and net ----------------------------------------------------------------------------------------


def test_one_process(tmp_path, capsys, monkeypatch):
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    session = system.init_data_model_parallel(backend="gloo")
    assert (session.global_rank, session.global_size, session.is_distributed) == (0, 1, False)
    assert system.get_local_session() is session
    session.dist_print("here")
    assert capsys.readouterr().out == "here\n"
    t = torch.arange(6.0).view(2, 3)
    assert net.simple_all_reduce(t) is t and net.all_to_all(t, 1, 0) is t
    assert torch.equal(net.simple_all_gather(t), t) and torch.equal(net.simple_reduce_scatter(t), t)
    part, shape = net.zero_scatter(t, net.simple_split)
    assert torch.equal(net.zero_gather(part, shape), t)
    assert net.create_groups_from_world(-1) is session
    with pytest.raises(
        ValueError, match="create_groups_from_world: group_count is 2, expected a divisor of 1"
    ):
        net.create_groups_from_world(2)
    name = system.apply_rank_size_from_pattern(f"{tmp_path}/parts/{{rank}}-{{size}}.npy", 0, 1)
    assert name == f"{tmp_path}/parts/0-1.npy"
    system.save(t, name)
    assert torch.equal(system.load(name), t)
    assert system.record_time() <= system.record_time()


def test_optimizer_of_one_process():
    """Takes the same steps as the optimizer that it wraps."""
    models, x = [layer(), layer()], torch.randn(9, 8)
    plain = torch.optim.SGD(models[0].parameters(), lr=0.1, momentum=0.9)
    wrapped = net.TutelDistributedOptimizer(models[1].parameters())
    wrapped = wrapped.warp_local(torch.optim.SGD, lr=0.1, momentum=0.9)
    for _ in range(2):
        for model, optimizer in zip(models, (plain, wrapped), strict=True):
            optimizer.zero_grad()
            model(x).square().sum().backward()
            optimizer.step()
    for a, b in zip(models[0].parameters(), models[1].parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_install():
    tutel.install()
    try:
        assert importlib.import_module("tutel.moe").moe_layer is moe.moe_layer
        assert importlib.import_module("tutel").net.barrier is net.barrier
    finally:
        tutel.uninstall()
    assert "tutel" not in sys.modules
