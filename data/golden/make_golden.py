"""Writes the golden values of this folder with PyTorch.  See README.

    python make_golden.py [FOLDER]

Nothing here knows libfsdp: every expected value is PyTorch's own, computed in
float64.  Inputs and initial parameters are exactly representable in float32,
so that a float32 and a float64 program can start from the same numbers.
half_golden.py makes bfloat16's, composed_golden.py those of tensor parallelism and
experts; fsdp_events.py and fsdp1_events.py, called at
the end, record what PyTorch's FSDP2 and FSDP1 do.
"""

import json
import os
import re
import struct
import sys
import zlib

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import transformers
from transformers.activations import NewGELUActivation
from transformers.models.llama import modeling_llama
from transformers.pytorch_utils import Conv1D

from composed_golden import make_composed
from fsdp1_events import make_fsdp1_events
from fsdp_events import make_fsdp_events
from half_golden import make_half

IGNORE = -100
VERSIONS = {
    "python": sys.version.split()[0],
    "torch": torch.__version__,
    "transformers": transformers.__version__,
    "numpy": np.__version__,
}


# -- numbers and files ------------------------------------------------------


class Numbers:
    """Random numbers keyed by a name, so that adding a case moves no other."""

    def __init__(self, name):
        seed = zlib.crc32(name.encode())
        self.rng = np.random.Generator(np.random.PCG64(seed))

    def normal(self, *shape, scale=1.0):
        values = self.rng.standard_normal(shape) * scale
        return torch.from_numpy(values.astype(np.float32).astype(np.float64))

    def integers(self, high, *shape):
        return torch.from_numpy(self.rng.integers(0, high, shape))


def exact(values):
    """float64 tensor of the nearest float32 values."""
    return torch.tensor(values, dtype=torch.float32).double()


def write_safetensors(path, tensors, metadata):
    """Plain safetensors, F64 and I32 only, the header in the order of the file.

    Integers stand last, so that every float64 is aligned to 8 bytes.
    """
    arrays = {}
    for name, value in tensors.items():
        value = torch.as_tensor(value).detach()
        floating = value.dtype.is_floating_point
        assert not floating or value.dtype == torch.float64, name
        array = value.contiguous().numpy().astype("<f8" if floating else "<i4")
        arrays[name] = array.reshape(array.shape or (1,))
    order = sorted(arrays, key=lambda name: arrays[name].dtype.kind == "i")
    header, offset = {"__metadata__": metadata}, 0
    for name in order:
        array = arrays[name]
        header[name] = {
            "dtype": "I32" if array.dtype.kind == "i" else "F64",
            "shape": list(array.shape),
            "data_offsets": [offset, offset + array.nbytes],
        }
        offset += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            file.write(arrays[name].tobytes())


# -- operators --------------------------------------------------------------


def record(store, name, function, inputs, integers=None, grad_out=None):
    """Stores inputs, output, upstream gradient and gradients of one case."""
    integers = integers or {}
    leaves = {k: v.clone().requires_grad_() for k, v in inputs.items()}
    out = function(*leaves.values(), *integers.values())
    if grad_out is None:
        grad_out = Numbers(name + ".grad_out").normal(*out.shape)
    for value in (*inputs.values(), grad_out):
        assert torch.equal(value, value.float().double()), name
    out.backward(grad_out.reshape(out.shape))
    store.update({f"{name}.{k}": v for k, v in {**inputs, **integers}.items()})
    store[f"{name}.out"] = out
    store[f"{name}.grad_out"] = grad_out
    store.update({f"{name}.grad.{k}": v.grad for k, v in leaves.items()})


def conv1d(x, weight, bias):
    """Hugging Face's Conv1D: weight [in, out]."""
    module = Conv1D(weight.shape[1], weight.shape[0]).double()
    return torch.func.functional_call(module, dict(weight=weight, bias=bias), x)


def causal_attention(qkv, n_head=3):
    """qkv [B, T, 3C], heads side by side as in GPT-2; out [B, T, C]."""
    B, T, C3 = qkv.shape
    q, k, v = (
        part.view(B, T, n_head, -1).transpose(1, 2)
        for part in qkv.split(C3 // 3, dim=2)
    )
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return out.transpose(1, 2).reshape(B, T, C3 // 3)


def cross_entropy(logits, target):
    return F.cross_entropy(logits, target, ignore_index=IGNORE)


def hard_activation_inputs():
    """Zeros, subnormals, tiny, ordinary, large: [2, 24]."""
    positive = [0.0, 1e-40, 1e-30, 1e-15, 1e-8, 1e-4, 0.01, 0.1, 0.25, 0.5,
                0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.5, 8.0,
                10.0, 20.0, 1e4, 1e10]  # fmt: skip
    return exact([positive, [-v for v in positive]])


def layer_norm_hard_inputs():
    """Rows with nothing to divide by, tiny, far from zero, one outlier."""
    n = Numbers("layer_norm_hard")
    constant = torch.full((1, 9), 0.375, dtype=torch.float64)
    tiny, far = n.normal(1, 9, scale=1e-6), 1000.0 + n.normal(1, 9)
    outlier = torch.cat([torch.zeros(1, 8), torch.full((1, 1), 256.0)], dim=1)
    return exact(torch.cat([constant, tiny, far, outlier.double()]).tolist())


def rms_norm(x, weight):
    return F.rms_norm(x, x.shape[-1:], weight, 1e-6)


def rms_norm_hard_inputs():
    """Rows of nothing, of tiny numbers, far from zero, one outlier."""
    n = Numbers("rms_norm_hard")
    zero = torch.zeros(1, 9, dtype=torch.float64)
    tiny, far = n.normal(1, 9, scale=1e-6), 1000.0 + n.normal(1, 9)
    outlier = torch.cat([torch.zeros(1, 8), torch.full((1, 1), 256.0)], dim=1)
    return exact(torch.cat([zero, tiny, far, outlier.double()]).tolist())


def rotary_table(positions, head_dim, theta):
    """cos and sin [positions, head_dim], in long double, then rounded: PyTorch
    has no such type, and its float64 pow() would be felt."""
    i = np.arange(head_dim // 2, dtype=np.longdouble)
    frequency = np.longdouble(theta) ** (-2 * i / head_dim)
    angle = np.arange(positions, dtype=np.longdouble)[:, None] * frequency
    angle = np.concatenate([angle, angle], axis=1)
    return (torch.from_numpy(np.cos(angle).astype(np.float64)),
            torch.from_numpy(np.sin(angle).astype(np.float64)))


def rotary(x, n_head=2, theta=10000.0):
    """x [B, T, heads head_dim]; Hugging Face's rotation."""
    B, T, C = x.shape
    cos, sin = (t[None] for t in rotary_table(T, C // n_head, theta))
    x = x.view(B, T, n_head, -1).transpose(1, 2)
    x, _ = modeling_llama.apply_rotary_pos_emb(x, x, cos, sin)
    return x.transpose(1, 2).reshape(B, T, C)


def grouped_attention(q, k, v, n_head=6, n_kv_head=2):
    B, T, C = q.shape
    q, k, v = (x.view(B, T, n, -1).transpose(1, 2)
               for x, n in ((q, n_head), (k, n_kv_head), (v, n_kv_head)))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True,
                                         enable_gqa=True)
    return out.transpose(1, 2).reshape(B, T, C)


def make_llama_operators(s):
    n = Numbers("llama operators")
    record(s, "rms_norm", rms_norm,
           dict(x=n.normal(2, 3, 7, scale=2.0), weight=n.normal(7)))
    record(s, "rms_norm_hard", rms_norm,
           dict(x=rms_norm_hard_inputs(), weight=n.normal(9)))
    record(s, "silu", F.silu, dict(x=hard_activation_inputs()))
    record(s, "multiply", torch.mul, dict(x=n.normal(3, 5), y=n.normal(3, 5)))
    record(s, "rotary", rotary, dict(x=n.normal(2, 7, 24)))
    q, k, v = n.normal(2, 13, 24), n.normal(2, 13, 8), n.normal(2, 13, 8)
    q[1, :, 0:4] = exact((q[1, :, 0:4] * 40).tolist())  # scores to +-200
    q[0, 12, 4:8] = 0.0  # one query that likes all keys the same
    record(s, "grouped_attention", grouped_attention, dict(q=q, k=k, v=v))
    # What Hugging Face's module itself makes, in float32.
    config = transformers.LlamaConfig(hidden_size=24, num_attention_heads=2,
                                      max_position_embeddings=64)
    module = modeling_llama.LlamaRotaryEmbedding(config)
    cos, sin = module(torch.zeros(1), torch.arange(64)[None])
    s["rotary_table.cos"], s["rotary_table.sin"] = cos[0].double(), \
        sin[0].double()


def make_operators(folder):
    s, n = {}, Numbers("operators")
    x, w, b = n.normal(2, 3, 5), n.normal(7, 5), n.normal(7)
    record(s, "linear", F.linear, dict(x=x, weight=w, bias=b))
    record(s, "linear_no_bias", F.linear, dict(x=x, weight=w))
    record(s, "conv1d", conv1d,
           dict(x=n.normal(2, 3, 6), weight=n.normal(6, 11), bias=n.normal(11)))
    record(s, "embedding", lambda weight, index: F.embedding(index, weight),
           dict(weight=n.normal(7, 5)),
           dict(index=torch.tensor([[3, 0, 3, 6], [1, 3, 0, 2]])))

    def layer_norm(x, weight, bias):
        return F.layer_norm(x, x.shape[-1:], weight, bias, 1e-5)

    record(s, "layer_norm", layer_norm,
           dict(x=n.normal(2, 3, 7, scale=2.0), weight=n.normal(7),
                bias=n.normal(7)))
    record(s, "layer_norm_hard", layer_norm,
           dict(x=layer_norm_hard_inputs(), weight=n.normal(9),
                bias=n.normal(9)))
    hard = hard_activation_inputs()
    record(s, "gelu_tanh", NewGELUActivation().forward, dict(x=hard))
    record(s, "gelu_erf", F.gelu, dict(x=hard))
    record(s, "relu", F.relu, dict(x=hard))

    qkv = n.normal(2, 13, 45)
    qkv[1, :, 0:5] = exact((qkv[1, :, 0:5] * 40).tolist())  # scores to +-200
    qkv[0, 12, 5:10] = 0.0  # one query that likes all keys the same
    record(s, "attention", causal_attention, dict(qkv=qkv))
    s["attention.n_head"] = torch.tensor([3])
    record(s, "residual", torch.add,
           dict(x=n.normal(3, 5), y=n.normal(3, 5)))

    logits = n.normal(7, 11, scale=3.0)
    logits[1] = 0.625  # all equal
    logits[2, 4], logits[2, 7] = 80.0, -80.0
    logits[4] = exact(torch.where(torch.arange(11) == 9, 80.0, -80.0).tolist())
    target = torch.tensor([3, 10, 7, IGNORE, 9, IGNORE, 0])
    record(s, "cross_entropy", cross_entropy, dict(logits=logits),
           dict(target=target), exact([0.75]))
    record(s, "linear_cross_entropy",
           lambda x, weight, target: cross_entropy(F.linear(x, weight), target),
           dict(x=n.normal(9, 6), weight=n.normal(13, 6)),
           dict(target=torch.tensor([0, 12, IGNORE, 5, 5, 7, IGNORE, 2, 11])),
           exact([0.5]))
    record(s, "mse_loss", F.mse_loss,
           dict(x=n.normal(4, 5), target=n.normal(4, 5)),
           grad_out=exact([1.25]))
    s["layer_norm.eps"] = s["layer_norm_hard.eps"] = torch.tensor(
        [1e-5], dtype=torch.float64)
    make_llama_operators(s)
    write_safetensors(f"{folder}/operators.safetensors", s,
                      {**VERSIONS, "ignore_index": str(IGNORE)})


# -- training ---------------------------------------------------------------

STEPS, MICRO_BATCHES = 3, 2
SGD = dict(momentum=0.9, dampening=0.0, weight_decay=0.01, nesterov=True)
ADAMW = dict(betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1)
OPTIMIZERS = {
    "sgd": (torch.optim.SGD, SGD, [0.1, 0.05, 0.025]),
    "adamw": (torch.optim.AdamW, ADAMW, [0.01, 0.0075, 0.0025]),
}


class MLP(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def gpt2_config(tied):
    return transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=8, vocab_size=17, n_positions=10,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
        activation_function="gelu_new", layer_norm_epsilon=1e-5,
        tie_word_embeddings=tied, use_cache=False, bos_token_id=None,
        eos_token_id=None, attn_implementation="eager")


def llama_config(tied):
    # "eager" takes its softmax in float32 whatever the model's type
    return transformers.LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        hidden_size=8, head_dim=4, intermediate_size=12, vocab_size=17,
        max_position_embeddings=10, rms_norm_eps=1e-6, attention_bias=False,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
        mlp_bias=False, attention_dropout=0.0, tie_word_embeddings=tied,
        use_cache=False, bos_token_id=None, eos_token_id=None,
        attn_implementation="sdpa")


class Float64Norm(nn.Module):
    """LlamaRMSNorm without its float32, which it insists on."""

    def __init__(self, norm):
        super().__init__()
        self.weight, self.eps = norm.weight, norm.variance_epsilon

    def forward(self, x):
        variance = x.pow(2).mean(-1, keepdim=True)
        return self.weight * (x * torch.rsqrt(variance + self.eps))


class Float64Rotary(nn.Module):
    """LlamaRotaryEmbedding, likewise."""

    def __init__(self, config):
        super().__init__()
        self.table = rotary_table(
            config.max_position_embeddings, config.head_dim,
            config.rope_parameters["rope_theta"])

    def forward(self, x, position_ids):
        return tuple(t[position_ids] for t in self.table)


def llama_model(config):
    """LlamaForCausalLM in float64, with the two modules above.  Checked against
    the model as it is, in float32: loss and gradients agree to 1e-5."""
    model = transformers.LlamaForCausalLM(config).train()
    set_parameters(model, "llama")
    tokens, target = gpt2_batches()[0][0]
    plain = gpt2_loss(model, tokens, target)
    plain.backward()
    grads = {k: p.grad.double() for k, p in model.named_parameters()}
    model.zero_grad()
    names = [n for n, m in model.named_modules()
             if isinstance(m, modeling_llama.LlamaRMSNorm)]
    model = model.double()
    for name in names:
        parent, _, last = name.rpartition(".")
        norm = getattr(model.get_submodule(parent), last)
        setattr(model.get_submodule(parent), last, Float64Norm(norm))
    model.model.rotary_emb = Float64Rotary(config)
    loss = gpt2_loss(model, tokens, target)
    loss.backward()
    assert abs(loss.item() - plain.item()) < 1e-5 * loss.item()
    for k, p in model.named_parameters():
        off = (p.grad - grads[k]).abs().max() / p.grad.abs().max()
        assert off < 1e-5, (k, off)
    model.zero_grad()
    return model


def set_parameters(model, name):
    """Larger than the usual initial values: no gradient shall be faint."""
    n = Numbers(name)
    with torch.no_grad():
        for key, p in model.named_parameters():
            norm = re.search(r"(ln_\w+|norm)\.weight$", key) is not None
            scale = 0.1 if norm or key.endswith("bias") else 0.4
            p.copy_(n.normal(*p.shape, scale=scale) + (1.0 if norm else 0.0))
            p.copy_(p.float().double())


def mlp_batches():
    n = Numbers("mlp batches")
    return [[(n.normal(4, 5), n.integers(3, 4)) for _ in range(MICRO_BATCHES)]
            for _ in range(STEPS)]


def gpt2_batches():
    """Tokens 0..8 are the input, 1..9 the targets; one target is ignored."""
    n = Numbers("gpt2 batches")
    tokens = n.integers(17, STEPS, MICRO_BATCHES, 2, 10)
    targets = tokens[..., 1:].clone()
    targets[1, 0, 1, 4] = IGNORE
    return [[(tokens[s, m, :, :-1], targets[s, m])
             for m in range(MICRO_BATCHES)] for s in range(STEPS)]


def mlp_loss(model, x, target):
    return cross_entropy(model(x), target)


def gpt2_loss(model, tokens, target):
    logits = model(input_ids=tokens).logits
    return cross_entropy(logits.flatten(0, 1), target.flatten())


def numbers_of(settings):
    """{'betas': (a, b), 'nesterov': True} -> float64 vectors by name."""
    return {f"hyper.{k}": torch.tensor(
        [float(x) for x in (v if isinstance(v, (tuple, list)) else [v])],
        dtype=torch.float64) for k, v in settings.items()}


def train(path, model, loss_of, batches, optimizer_name, max_norm, shape):
    make, settings, lrs = OPTIMIZERS[optimizer_name]
    params = dict(model.named_parameters())
    optimizer = make(params.values(), lr=lrs[0], foreach=False, **settings)
    hyper = {**shape, "lr": lrs, **settings, "max_norm": max_norm,
             "steps": STEPS, "micro_batches": MICRO_BATCHES}
    s = numbers_of(hyper)
    s.update({f"init.{k}": p.clone() for k, p in params.items()})
    norms = []
    for step, (micros, lr) in enumerate(zip(batches, lrs), start=1):
        at = f"step{step}"
        optimizer.param_groups[0]["lr"] = lr
        optimizer.zero_grad()
        losses = []
        for m, (x, target) in enumerate(micros):
            loss = loss_of(model, x, target)
            (loss / MICRO_BATCHES).backward()
            losses.append(loss.detach())
            s.update({f"{at}.micro{m}.input": x,
                      f"{at}.micro{m}.target": target,
                      f"{at}.micro{m}.loss": losses[-1]})
        s[f"{at}.lr"] = torch.tensor([lr], dtype=torch.float64)
        s[f"{at}.loss"] = sum(losses) / MICRO_BATCHES
        s.update({f"{at}.grad.{k}": p.grad.clone() for k, p in params.items()})
        norms.append(nn.utils.clip_grad_norm_(params.values(), max_norm,
                                              foreach=False))
        s[f"{at}.grad_norm"] = norms[-1]
        optimizer.step()
        for k, p in params.items():
            s[f"{at}.param.{k}"] = p.detach().clone()
            for name, value in optimizer.state[p].items():
                if name != "step":
                    s[f"{at}.{name}.{k}"] = value.clone()
    print(os.path.basename(path), [f"{v.item():.4f}" for v in norms], max_norm)
    assert min(norms) < max_norm < max(norms), "clipping must bite, not always"
    write_safetensors(path, s, {
        **VERSIONS, "optimizer": optimizer_name,
        **{k: json.dumps(v) for k, v in hyper.items()}})


def make_training(folder):
    for optimizer, max_norm in (("sgd", 0.625), ("adamw", 0.625)):
        widths = [5, 7, 6, 3]
        model = MLP(widths).double()
        set_parameters(model, "mlp")
        train(f"{folder}/mlp_{optimizer}.safetensors", model, mlp_loss,
              mlp_batches(), optimizer, max_norm, {"widths": widths})
    for name, optimizer, tied, max_norm in (
            ("gpt2_sgd", "sgd", True, 1.375),
            ("gpt2_adamw", "adamw", True, 1.5),
            ("gpt2_untied_sgd", "sgd", False, 1.75)):
        config = gpt2_config(tied)
        model = transformers.GPT2LMHeadModel(config).double().train()
        set_parameters(model, "gpt2")
        shape = {k: getattr(config, k) for k in (
            "n_layer", "n_head", "n_embd", "vocab_size", "n_positions",
            "layer_norm_epsilon", "tie_word_embeddings")}
        train(f"{folder}/{name}.safetensors", model, gpt2_loss, gpt2_batches(),
              optimizer, max_norm, shape)

    for name, optimizer, tied, max_norm in (
            ("llama_sgd", "sgd", False, 2.25),
            ("llama_adamw", "adamw", False, 2.25),
            ("llama_tied_sgd", "sgd", True, 1.875)):
        config = llama_config(tied)
        shape = {k: getattr(config, k) for k in (
            "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
            "hidden_size", "head_dim", "intermediate_size", "vocab_size",
            "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings")}
        shape["rope_theta"] = config.rope_parameters["rope_theta"]
        train(f"{folder}/{name}.safetensors", llama_model(config), gpt2_loss,
              gpt2_batches(), optimizer, max_norm, shape)


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(
        os.path.abspath(__file__))
    torch.set_num_threads(1)
    make_operators(folder)
    make_training(folder)
    make_half(Numbers, folder, write_safetensors, VERSIONS)
    make_fsdp_events(folder, VERSIONS)
    make_fsdp1_events(folder, VERSIONS)
    make_composed(Numbers, folder, write_safetensors, VERSIONS)


if __name__ == "__main__":
    main()
