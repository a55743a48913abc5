"""Models of transformers with Turnout's experts: random weights, small sizes, no downloads."""

import copy
import logging

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    DeepseekV3Config,
    GptOssConfig,
    MixtralConfig,
    OlmoeConfig,
    Qwen2MoeConfig,
    Qwen3MoeConfig,
)
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, use_experts_implementation

import turnout.compat.transformers
from turnout import check

pytestmark = pytest.mark.torch

SIZES = {
    **{"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2},
    **{"vocab_size": 64, "max_position_embeddings": 64, "num_experts_per_tok": 2},
}
YARN = {"rope_type": "default", "rope_theta": 10000.0}
CONFIGS = {
    "qwen3_moe": Qwen3MoeConfig(**SIZES, moe_intermediate_size=24, num_experts=6, head_dim=16),
    "qwen2_moe": Qwen2MoeConfig(
        **SIZES,
        moe_intermediate_size=24,
        num_experts=6,
        intermediate_size=40,
        shared_expert_intermediate_size=24,
    ),
    "olmoe": OlmoeConfig(**SIZES, intermediate_size=24, num_experts=6),
    "mixtral": MixtralConfig(**SIZES, intermediate_size=24, num_local_experts=4),
    "mixtral, gelu": MixtralConfig(**SIZES, intermediate_size=24, num_local_experts=4, hidden_act="gelu"),
    "deepseek_v3": DeepseekV3Config(
        **{**SIZES, "moe_intermediate_size": 24, "intermediate_size": 40, "n_routed_experts": 8},
        **{"n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1},
        **{
            "q_lora_rank": 8,
            "kv_lora_rank": 8,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 16,
        },
    ),
    "gpt_oss": GptOssConfig(
        **SIZES, intermediate_size=24, num_local_experts=4, head_dim=16, rope_parameters=YARN
    ),
}
IDS = torch.arange(20).reshape(2, 10) * 7 % 64


@pytest.fixture(autouse=True)
def installed():
    turnout.compat.transformers.install()
    yield
    turnout.compat.transformers.uninstall()


@pytest.fixture
def fused_calls(monkeypatch):
    """Counts calls of the fused operator, because a fallback would also give the right numbers."""
    calls, real = [], turnout.compat.transformers.moe_experts

    def counting(*args, **kwargs):
        calls.append(kwargs)
        return real(*args, **kwargs)

    monkeypatch.setattr(turnout.compat.transformers, "moe_experts", counting)
    return calls


def model_of(name, **options):
    """Returns a model with larger weights: the default ones are small, and biases are zero."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIGS[name], **options).eval()
    for parameter in model.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    return model


def in_both_ways(model, function):
    results = []
    for implementation in ("eager", "turnout"):
        model.set_experts_implementation(implementation)
        results.append(function(model))
    return results


@pytest.mark.parametrize("name", CONFIGS)
def test_logits_and_generate(name, fused_calls):
    model = model_of(name)
    with torch.no_grad():
        eager, fused = in_both_ways(model, lambda m: m(IDS).logits)
        torch.testing.assert_close(fused, eager, rtol=1e-4, atol=1e-5)
        assert fused_calls
        eager, fused = in_both_ways(
            model, lambda m: m.generate(IDS, max_new_tokens=3, do_sample=False, pad_token_id=0)
        )
    assert torch.equal(fused, eager)


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss"])
def test_a_training_step(name, fused_calls):
    def step(model):
        model = copy.deepcopy(model).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(IDS, labels=IDS).loss.backward()
        gradients = {n: p.grad for n, p in model.named_parameters()}
        optimizer.step()
        return gradients, model(IDS, labels=IDS).loss.detach()

    (eager, eager_loss), (fused, fused_loss) = in_both_ways(model_of(name), step)
    assert fused_calls
    assert any("experts" in n for n in fused)
    for n, gradient in fused.items():
        torch.testing.assert_close(gradient, eager[n], rtol=1e-3, atol=1e-5, msg=n)
    torch.testing.assert_close(fused_loss, eager_loss, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "deepseek_v3", "gpt_oss"])
def test_bf16_is_closer_to_f64_than_eager(name):
    """Compares the experts of the last layer on tokens as large as a norm's output."""
    model = model_of(name).bfloat16()
    experts = model.model.layers[-1].mlp.experts
    tokens, ids = torch.randn(64, 32).bfloat16(), torch.rand(64, 4).topk(2).indices
    weights = torch.full((64, 2), 0.5, dtype=torch.bfloat16)
    with torch.no_grad():
        eager, fused = in_both_ways(model, lambda _: experts(tokens, ids, weights).double())
        model.set_experts_implementation("eager")
        exact = experts.double()(tokens.double(), ids, weights.double())
    assert (fused - exact).norm() < 0.7 * (eager - exact).norm()


def test_from_config_and_compile(fused_calls):
    model = model_of("qwen3_moe", experts_implementation="turnout")
    expected = model(IDS, labels=IDS).loss
    assert fused_calls
    expected.backward()
    gradients = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    torch.compiler.reset()
    loss = torch.compile(model, backend="aot_eager")(IDS, labels=IDS).loss
    torch.testing.assert_close(loss, expected)
    loss.backward()
    for found, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(found.grad, gradient)


def test_from_pretrained(tmp_path, fused_calls):
    model_of("mixtral").save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, experts_implementation="turnout")
    with torch.no_grad():
        torch.testing.assert_close(loaded(IDS).logits, model_of("mixtral")(IDS).logits, rtol=1e-4, atol=1e-5)
    assert fused_calls


class Plain(torch.nn.Module):
    """Experts like those of transformers, whose decorator adds the shared parts."""

    def __init__(self, config, act_fn):
        super().__init__()
        self.num_experts, self.act_fn = 3, act_fn
        self.gate_up_proj = torch.nn.Parameter(torch.randn(3, 8, 8))
        self.up_proj = torch.nn.Parameter(torch.randn(3, 4, 8))
        self.down_proj = torch.nn.Parameter(torch.randn(3, 8, 4))
        self.post_expert_norm = torch.nn.LayerNorm(8)

    def forward(self):
        raise NotImplementedError("the tests choose an implementation")


class Clamped(Plain):
    def _apply_gate(self, gate_up):
        gate, up = gate_up.chunk(2, dim=-1)
        return self.act_fn(gate).clamp(max=1) * up


def experts_of(base, act_fn, **options):
    torch.manual_seed(0)
    made = use_experts_implementation(type(f"{base.__name__}Experts", (base,), {}), **options)
    return made(type("Config", (), {"_experts_implementation": "turnout"})(), act_fn)


def run(experts, implementation):
    torch.manual_seed(1)
    experts.config._experts_implementation = implementation
    return experts(torch.randn(6, 8), torch.randint(0, 3, (6, 2)), torch.rand(6, 2))


@pytest.mark.parametrize("act_fn", [torch.nn.SiLU(), torch.nn.ReLU()])
def test_experts_without_a_gate(act_fn, fused_calls):
    experts = experts_of(Plain, act_fn, has_gate=False)
    torch.testing.assert_close(run(experts, "turnout"), run(experts, "grouped_mm"), rtol=1e-4, atol=1e-4)
    assert fused_calls


@pytest.mark.parametrize(
    ("base", "act_fn", "options", "reason"),
    [
        (Plain, torch.nn.Tanh(), {}, "its activation is Tanh"),
        (Clamped, torch.nn.SiLU(), {}, "its gate is Clamped._apply_gate"),
        (Plain, torch.nn.SiLU(), {"has_post_expert_norm": True}, "it has a norm after each expert"),
    ],
)
def test_other_forms_fall_back_and_say_so(base, act_fn, options, reason, fused_calls, caplog, monkeypatch):
    monkeypatch.setattr(turnout.compat.transformers, "_told", set())
    experts = experts_of(base, act_fn, **options)
    with caplog.at_level(logging.INFO, "turnout"):
        for _ in range(2):
            assert torch.equal(run(experts, "turnout"), run(experts, "grouped_mm"))
    assert not fused_calls
    name = f"{base.__name__}Experts"
    assert [record.getMessage() for record in caplog.records] == [
        f"moe_experts: {name} is not fused, because {reason}; it uses grouped_mm of transformers"
    ]


def test_uninstall():
    turnout.compat.transformers.install("another")
    assert "another" in ALL_EXPERTS_FUNCTIONS
    turnout.compat.transformers.uninstall("another")
    assert "another" not in ALL_EXPERTS_FUNCTIONS


def test_pack():
    model = model_of("gpt_oss")
    model.set_experts_implementation("turnout")
    with torch.inference_mode():
        before = model(IDS).logits
    assert turnout.compat.transformers.pack(model) == 2
    packed = [m.gate_up_proj for m in model.modules() if hasattr(m, "gate_up_proj")]
    assert all(weight.stride(1) == 1 for weight in packed)
    with torch.inference_mode():
        torch.testing.assert_close(model(IDS).logits, before, rtol=1e-4, atol=1e-5)
    assert turnout.compat.transformers.pack(model_of("mixtral")) == 0


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("name", ["qwen3_moe", "gpt_oss"])
def test_quantize(name, bits):
    """A rounded model equals the original with the dequantized weights."""
    config = copy.deepcopy(CONFIGS[name])
    setattr(config, "intermediate_size" if name == "gpt_oss" else "moe_intermediate_size", 32)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    original = copy.deepcopy(model)
    assert turnout.compat.transformers.quantize(model, bits=bits) == 2
    for rounded, block in zip(model.modules(), original.modules(), strict=True):
        if not hasattr(block, "down_proj_scale") and not hasattr(rounded, "down_proj_scale"):
            continue
        for weight in ("gate_up_proj", "down_proj"):
            values, scale = getattr(rounded, weight), getattr(rounded, f"{weight}_scale")
            assert values.dtype == {8: torch.int8, 4: torch.uint8}[bits]
            kept = torch.from_numpy(check.dequantized(values.numpy(), scale.numpy()).astype("float32"))
            getattr(block, weight).data.copy_(kept.mT if block.is_transposed else kept)
    with torch.inference_mode():
        torch.testing.assert_close(model(IDS).logits, original(IDS).logits, rtol=1e-4, atol=1e-5)
        assert model.generate(IDS, max_new_tokens=3, do_sample=False, pad_token_id=0).shape[1] > 10
    assert "gate_up_proj_scale" in " ".join(model.state_dict())


def test_a_quantized_model_is_saved_as_a_state_dict_only(tmp_path):
    """from_pretrained() would ignore the scales and return a model with other logits."""
    config = copy.deepcopy(CONFIGS["qwen3_moe"])
    config.moe_intermediate_size = 32
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(tmp_path / "before")
    turnout.compat.transformers.quantize(model)
    for part in (model, model.model, copy.deepcopy(model)):
        with pytest.raises(
            NotImplementedError, match=r"save_pretrained: .* torch.save\(model.state_dict\(\)"
        ):
            part.save_pretrained(tmp_path / "after")
    assert not (tmp_path / "after").exists()
    torch.save(model.state_dict(), tmp_path / "state")
    other = AutoModelForCausalLM.from_config(config).eval()
    turnout.compat.transformers.quantize(other)
    other.load_state_dict(torch.load(tmp_path / "state"))
    assert torch.equal(other(IDS).logits, model(IDS).logits)


def test_quantize_refuses_and_changes_nothing():
    config = copy.deepcopy(CONFIGS["qwen3_moe"])
    config.hidden_size, config.moe_intermediate_size = 32, 48  # gate_up_proj can be rounded, down_proj cannot
    model = AutoModelForCausalLM.from_config(config).eval()
    before = model(IDS).logits
    with pytest.raises(
        ValueError, match=r"quantize: down_proj of \w+.shape\[2\] is 48, expected a multiple of 32"
    ):
        turnout.compat.transformers.quantize(model, bits=4)
    assert torch.equal(model(IDS).logits, before)
    with pytest.raises(ValueError, match=r"^quantize: bits is 5, expected 8 or 4"):
        turnout.compat.transformers.quantize(model, bits=5)
    last = [m for m in model.modules() if hasattr(m, "down_proj") and m.down_proj.dim() == 3][-1]
    kept, last.down_proj.data[2, 0, 0] = last.down_proj.data.clone(), torch.nan
    with pytest.raises(ValueError, match=r"quantize: down_proj of \w+ has a value in expert 2 that is not"):
        turnout.compat.transformers.quantize(model, bits=8)
    last.down_proj.data = kept
    assert torch.equal(model(IDS).logits, before)
    turnout.compat.transformers.quantize(model, bits=8)
    rounded = model(IDS).logits
    with pytest.raises(ValueError, match=r"gate_up_proj of \w+ has dtype torch.int8, .*already rounded"):
        turnout.compat.transformers.quantize(model, bits=8)
    assert torch.equal(model(IDS).logits, rounded)
    with pytest.raises(TypeError, match="model is of type Linear, expected a model of transformers"):
        turnout.compat.transformers.quantize(torch.nn.Linear(2, 2))
