"""Checks the golden values of this folder without PyTorch.  See README.

    python check_golden.py [FOLDER]

Every output, gradient, loss and optimizer step is computed again with numpy
and mpmath from formulas written out here.  The gradients of GPT-2 and Llama
are checked by complex steps: Im loss(p + i h d) / h is the derivative along d without
cancellation.  A difference must stay below k * 2^-53 * size, where k counts
the roundings of one value and size is the largest value of the tensor.
"""

import json
import os
import sys

import mpmath
import numpy as np
from safetensors.numpy import load_file

IGNORE = -100
EPS = 2.0**-53
WORST = [0.0, ""]


def close(name, got, expected, k, size=None):
    got, expected = np.asarray(got, float), np.asarray(expected, float)
    assert got.size == expected.size, (name, got.shape, expected.shape)
    off = np.abs(got.ravel() - expected.ravel())
    size = np.abs(expected).max() if size is None else np.ravel(size)
    used = (off / (k * EPS * size + 1e-300)).max()
    assert used <= 1, f"{name}: {used} times the bound"
    WORST[:] = max(WORST, [used, name])


class Case:
    """The tensors of one operator, by short name."""

    def __init__(self, tensors, name):
        self.name, self.tensors = name, tensors

    def __getitem__(self, key):
        return self.tensors[f"{self.name}.{key}"]

    def check(self, k=64, **expected):
        for key, value in expected.items():
            key = key.replace("grad_", "grad.")
            close(f"{self.name}.{key}", self[key], value, k)


# -- operators --------------------------------------------------------------


def check_linear(tensors):
    for name in ("linear", "linear_no_bias", "conv1d"):
        c = Case(tensors, name)
        x = c["x"]
        w = c["weight"] if name == "conv1d" else c["weight"].T
        g = c["grad_out"]
        gw = np.einsum("bti,bto->io", x, g)
        out = x @ w + (0 if name == "linear_no_bias" else c["bias"])
        c.check(out=out, grad_x=g @ w.T,
                grad_weight=gw if name == "conv1d" else gw.T)
        if name != "linear_no_bias":
            c.check(grad_bias=g.sum((0, 1)))


def check_embedding(tensors):
    c = Case(tensors, "embedding")
    grad = np.zeros_like(c["weight"])
    np.add.at(grad, c["index"], c["grad_out"])
    c.check(out=c["weight"][c["index"]], grad_weight=grad)


def check_layer_norm(tensors, name):
    """With mpmath: the far row cancels, so float64 would check nothing."""
    mpmath.mp.dps = 60
    c = Case(tensors, name)
    n = c["x"].shape[-1]
    rows = c["x"].reshape(-1, n), c["grad_out"].reshape(-1, n)
    weight = [mpmath.mpf(v) for v in c["weight"]]
    gw, gb = [mpmath.mpf(0)] * n, [mpmath.mpf(0)] * n
    out, gx, size = [], [], []
    for x, g in zip(*rows):
        x, g = [[mpmath.mpf(v) for v in row] for row in (x, g)]
        mean = sum(x) / n
        var = sum((v - mean) ** 2 for v in x) / n
        rstd = 1 / mpmath.sqrt(var + mpmath.mpf(float(c["eps"][0])))
        hat = [(v - mean) * rstd for v in x]
        gh = [a * b for a, b in zip(g, weight)]
        m1, m2 = sum(gh) / n, sum(a * b for a, b in zip(gh, hat)) / n
        out += [h * w + b for h, w, b in zip(hat, weight, c["bias"])]
        gx += [rstd * (a - m1 - h * m2) for a, h in zip(gh, hat)]
        gw = [s + a * h for s, a, h in zip(gw, g, hat)]
        gb = [s + a for s, a in zip(gb, g)]
        # an error of one ulp of x, seen through (x - mean) * rstd
        size += [float(rstd * max(abs(v) for v in x)) + 1] * n
    size = np.array(size)
    close(f"{name}.out", c["out"], out, 64, size * np.abs(c["weight"]).max())
    big = np.abs(np.array(gx, float)).reshape(-1, n).max(1).repeat(n)
    close(f"{name}.grad.x", c["grad.x"], gx, 64, size * big)
    close(f"{name}.grad.weight", c["grad.weight"], gw, 64, size.max())
    c.check(grad_bias=gb)


def check_activations(tensors):
    """Against 60 digits.  1 + erf cancels: the error is relative to x."""
    mpmath.mp.dps = 60
    half, pi = mpmath.mpf("0.5"), mpmath.pi
    s, kappa = mpmath.sqrt(2 / pi), mpmath.mpf("0.044715")

    def tanh_form(x):
        t = mpmath.tanh(s * (x + kappa * x**3))
        slope = (1 - t * t) * s * (1 + 3 * kappa * x * x)
        return half * x * (1 + t), half * (1 + t) + half * x * slope

    def erf_form(x):
        phi = half * mpmath.erfc(-x / mpmath.sqrt(2))
        return x * phi, phi + x * mpmath.exp(-x * x / 2) / mpmath.sqrt(2 * pi)

    def relu(x):
        return max(x, mpmath.mpf(0)), mpmath.mpf(1 if x > 0 else 0)

    for name, form in (("gelu_tanh", tanh_form), ("gelu_erf", erf_form),
                       ("relu", relu)):
        c = Case(tensors, name)
        x, g = c["x"].ravel(), c["grad_out"].ravel()
        exact = [form(mpmath.mpf(v)) for v in x]
        close(name, c["out"], [a for a, _ in exact], 16, np.abs(x))
        # the slope's own terms reach 4, and half an ulp of the argument of
        # tanh or exp is multiplied by up to x^4
        size = np.abs(g) * 4 * (1 + np.where(np.abs(x) < 12, x**4, 0))
        close(name, c["grad.x"], [d * h for (_, d), h in zip(exact, g)],
              16, size)


def check_attention(tensors):
    c = Case(tensors, "attention")
    H, (B, T, C3) = int(c["n_head"][0]), c["qkv"].shape
    D = C3 // 3 // H
    out, grad = np.zeros((B, T, H * D)), np.zeros((B, T, C3))
    for b in range(B):
        for h in range(H):
            at = [slice(p * H * D + h * D, p * H * D + (h + 1) * D)
                  for p in range(3)]
            q, k, v = (c["qkv"][b, :, a] for a in at)
            g = c["grad_out"][b, :, at[0]]
            score = q @ k.T / np.sqrt(D)
            score[np.triu_indices(T, 1)] = -np.inf
            p = np.exp(score - score.max(1, keepdims=True))
            p /= p.sum(1, keepdims=True)
            out[b, :, at[0]] = p @ v
            dp = g @ v.T
            ds = p * (dp - (p * dp).sum(1, keepdims=True)) / np.sqrt(D)
            for a, value in zip(at, (ds @ k, ds.T @ q, p.T @ g)):
                grad[b, :, a] = value
    # a score of 200 with an error of one ulp makes exp wrong by 200 ulp
    c.check(k=2048, out=out, grad_qkv=grad)


def rotate(x, theta=10000.0):
    """x [..., T, D]: the halves of D as real and imaginary parts."""
    T, half = x.shape[-2], x.shape[-1] // 2
    frequency = np.longdouble(theta) ** (-np.arange(half) / np.longdouble(half))
    angle = np.arange(T)[:, None] * frequency
    c, s = np.cos(angle).astype(float), np.sin(angle).astype(float)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, a * s + b * c], -1)


def split_heads(x, heads):
    return x.reshape(*x.shape[:2], heads, -1).swapaxes(1, 2)


def merge_heads(x):
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


def check_rms_norm(tensors, name):
    mpmath.mp.dps = 60
    c = Case(tensors, name)
    n = c["x"].shape[-1]
    weight = [mpmath.mpf(v) for v in c["weight"]]
    gw, out, gx, size = [mpmath.mpf(0)] * n, [], [], []
    for x, g in zip(c["x"].reshape(-1, n), c["grad_out"].reshape(-1, n)):
        x, g = [[mpmath.mpf(v) for v in row] for row in (x, g)]
        rstd = 1 / mpmath.sqrt(sum(v * v for v in x) / n + mpmath.mpf(1e-6))
        hat = [v * rstd for v in x]
        gh = [a * b for a, b in zip(g, weight)]
        mean = sum(a * b for a, b in zip(gh, hat)) / n
        out += [h * w for h, w in zip(hat, weight)]
        gx += [rstd * (a - h * mean) for a, h in zip(gh, hat)]
        gw = [s + a * h for s, a, h in zip(gw, g, hat)]
        # an ulp of the largest term of the difference, times rstd
        most = max(abs(a) for a in gh) + max(abs(h * mean) for h in hat)
        size += [float(rstd * most)] * n
    close(f"{name}.out", c["out"], out, 64)
    close(f"{name}.grad.x", c["grad.x"], gx, 64, size)
    close(f"{name}.grad.weight", c["grad.weight"], gw, 64)


def check_llama_operators(tensors):
    check_rms_norm(tensors, "rms_norm")
    check_rms_norm(tensors, "rms_norm_hard")
    c = Case(tensors, "multiply")
    c.check(k=1, out=c["x"] * c["y"], grad_x=c["grad_out"] * c["y"],
            grad_y=c["grad_out"] * c["x"])
    c = Case(tensors, "silu")
    x, g = c["x"].ravel(), c["grad_out"].ravel()
    s = [1 / (1 + mpmath.exp(-mpmath.mpf(v))) for v in x]
    close("silu", c["out"], [v * a for v, a in zip(x, s)], 16, np.abs(x))
    slope = [a * (1 + v * (1 - a)) for v, a in zip(x, s)]
    close("silu.grad.x", c["grad.x"], [a * b for a, b in zip(slope, g)], 16,
          np.abs(g) * (1 + np.where(np.abs(x) < 40, np.abs(x), 0)))
    c = Case(tensors, "rotary")
    c.check(out=merge_heads(rotate(split_heads(c["x"], 2))),
            grad_x=merge_heads(turn_back(split_heads(c["grad_out"], 2))))
    check_grouped_attention(tensors)


def turn_back(x):
    """The inverse turn is the turn of the complex conjugate, conjugated."""
    sign = np.repeat([1.0, -1.0], x.shape[-1] // 2)
    return sign * rotate(sign * x)


def check_grouped_attention(tensors):
    c = Case(tensors, "grouped_attention")
    q, g = split_heads(c["q"], 6), split_heads(c["grad_out"], 6)
    k, v = (split_heads(c[n], 2).repeat(3, 1) for n in "kv")
    score = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
    score = score + np.triu(np.full(score.shape[2:], -np.inf), 1)
    p = np.exp(score - score.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    dp = g @ v.swapaxes(2, 3)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(q.shape[-1])

    def summed(x):
        B, H, T, D = x.shape
        return merge_heads(x.reshape(B, 2, 3, T, D).sum(2))

    c.check(k=2048, out=merge_heads(p @ v), grad_q=merge_heads(ds @ k),
            grad_k=summed(ds.swapaxes(2, 3) @ q),
            grad_v=summed(p.swapaxes(2, 3) @ g))


def softmax_loss(logits, target):
    keep = target != IGNORE
    shifted = logits - logits.real.max(1, keepdims=True)
    logp = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    rows = np.arange(len(target))[keep]
    loss = -logp[rows, target[keep]].mean()
    grad = np.exp(logp)
    grad[rows, target[keep]] -= 1
    return loss, np.where(keep[:, None], grad, 0) / keep.sum()


def check_losses(tensors):
    c = Case(tensors, "cross_entropy")
    loss, grad = softmax_loss(c["logits"], c["target"])
    c.check(k=256, out=loss, grad_logits=grad * c["grad_out"])
    c = Case(tensors, "linear_cross_entropy")
    loss, grad = softmax_loss(c["x"] @ c["weight"].T, c["target"])
    grad = grad * c["grad_out"]
    c.check(k=256, out=loss, grad_x=grad @ c["weight"],
            grad_weight=grad.T @ c["x"])
    c = Case(tensors, "mse_loss")
    off = c["x"] - c["target"]
    slope = 2 * off / off.size * c["grad_out"]
    c.check(out=(off**2).mean(), grad_x=slope, grad_target=-slope)
    c = Case(tensors, "residual")
    c.check(k=0, out=c["x"] + c["y"], grad_x=c["grad_out"],
            grad_y=c["grad_out"])


# -- training ---------------------------------------------------------------


def parameters(t, at):
    return {k[len(at):]: v for k, v in t.items() if k.startswith(at)}


def mlp_grads(p, x, target):
    layers = len(p) // 2
    inputs, grads = [x], {}
    for i in range(layers):
        y = inputs[-1] @ p[f"layers.{i}.weight"].T + p[f"layers.{i}.bias"]
        inputs.append(np.maximum(y, 0) if i < layers - 1 else y)
    loss, g = softmax_loss(inputs[-1], target)
    for i in reversed(range(layers)):
        if i < layers - 1:
            g = g * (inputs[i + 1] > 0)
        grads[f"layers.{i}.weight"] = g.T @ inputs[i]
        grads[f"layers.{i}.bias"] = g.sum(0)
        g = g @ p[f"layers.{i}.weight"]
    return loss, grads


def norm(x, weight, bias):
    x = x - x.mean(-1, keepdims=True)
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight + bias


def gpt2_loss(p, tokens, target, n_head):
    """Real or complex parameters; nothing here takes an absolute value."""
    p = {k.removeprefix("transformer."): v for k, v in p.items()}
    T = tokens.shape[1]
    x = p["wte.weight"][tokens] + p["wpe.weight"][:T]
    for i in range(sum(k.endswith("c_fc.weight") for k in p)):
        def get(name):
            return p[f"h.{i}.{name}.weight"], p[f"h.{i}.{name}.bias"]

        w, b = get("attn.c_attn")
        q, k, v = (m.reshape(*m.shape[:2], n_head, -1).swapaxes(1, 2)
                   for m in np.split(norm(x, *get("ln_1")) @ w + b, 3, -1))
        score = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        a = np.exp(score) * np.tril(np.ones((T, T)))
        a = (a / a.sum(-1, keepdims=True) @ v).swapaxes(1, 2).reshape(x.shape)
        w, b = get("attn.c_proj")
        x = x + a @ w + b
        w, b = get("mlp.c_fc")
        h = norm(x, *get("ln_2")) @ w + b
        h = h / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        w, b = get("mlp.c_proj")
        x = x + h @ w + b
    x = norm(x, p["ln_f.weight"], p["ln_f.bias"])
    logits = x @ p.get("lm_head.weight", p["wte.weight"]).T
    return softmax_loss(logits.reshape(-1, logits.shape[-1]), target.ravel())[0]


def rms(x, weight):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6) * weight


def llama_loss(p, tokens, target, heads):
    """heads: of queries, of keys.  As above."""
    T = tokens.shape[1]
    x = p["model.embed_tokens.weight"][tokens]
    for i in range(sum(k.endswith("up_proj.weight") for k in p)):
        def get(name):
            return p[f"model.layers.{i}.{name}.weight"]

        h = rms(x, get("input_layernorm"))
        q, k, v = (split_heads(h @ get(f"self_attn.{n}_proj").T, heads[n != "q"])
                   for n in "qkv")
        k, v = (m.repeat(heads[0] // heads[1], 1) for m in (rotate(k), v))
        score = rotate(q) @ k.swapaxes(2, 3) / np.sqrt(q.shape[-1])
        a = np.exp(score) * np.tril(np.ones((T, T)))
        a = merge_heads(a / a.sum(-1, keepdims=True) @ v)
        x = x + a @ get("self_attn.o_proj").T
        h = rms(x, get("post_attention_layernorm"))
        gate = h @ get("mlp.gate_proj").T
        h = gate / (1 + np.exp(-gate)) * (h @ get("mlp.up_proj").T)
        x = x + h @ get("mlp.down_proj").T
    x = rms(x, p["model.norm.weight"])
    logits = x @ p.get("lm_head.weight", p["model.embed_tokens.weight"]).T
    return softmax_loss(logits.reshape(-1, logits.shape[-1]), target.ravel())[0]


def check_model_grads(name, loss_of, p, micros, grads, heads):
    rng, h = np.random.default_rng(1), 1e-40
    for key, grad in grads.items():
        for _ in range(3):
            d = rng.standard_normal(grad.shape)
            moved = {**p, key: p[key] + 1j * h * d}
            slope = np.mean([loss_of(moved, x, y, heads).imag / h
                             for x, y in micros])
            close(f"{name}.{key}", (grad * d).sum(), slope, 4096,
                  np.abs(grad * d).sum())


def check_optimizer(name, t, at, before, hyper, step, state):
    norm = t[f"{at}.grad_norm"][0]
    grads = parameters(t, f"{at}.grad.")
    total = np.sqrt(sum((g * g).sum() for g in grads.values()))
    close(f"{name}.{at}.grad_norm", norm, total, 64)
    coef, lr = min(1.0, hyper["max_norm"] / (norm + 1e-6)), t[f"{at}.lr"][0]
    for key, p in before.items():
        g = grads[key] * coef
        if "momentum" in hyper:
            g = g + hyper["weight_decay"] * p
            old = state.get(key)
            b = g if old is None else hyper["momentum"] * old + g
            state[key] = t[f"{at}.momentum_buffer.{key}"]
            close(f"{name}.{at}.momentum_buffer.{key}", state[key], b, 16)
            p = p - lr * (g + hyper["momentum"] * b)
        else:
            (b1, b2), (m, v) = hyper["betas"], state.get(key, (0.0, 0.0))
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            state[key] = (t[f"{at}.exp_avg.{key}"], t[f"{at}.exp_avg_sq.{key}"])
            close(f"{name}.{at}.exp_avg.{key}", state[key][0], m, 16)
            close(f"{name}.{at}.exp_avg_sq.{key}", state[key][1], v, 16)
            p = p * (1 - lr * hyper["weight_decay"])
            m, v = m / (1 - b1**step), v / (1 - b2**step)
            p = p - lr * m / (np.sqrt(v) + hyper["eps"])
        close(f"{name}.{at}.param.{key}", t[f"{at}.param.{key}"], p, 16)


def check_training(folder, name):
    t = load_file(f"{folder}/{name}.safetensors")
    hyper = {k[6:]: v if len(v) > 1 else v[0] for k, v in t.items()
             if k.startswith("hyper.")}
    p, state = parameters(t, "init."), {}
    for value in p.values():
        assert (value == value.astype(np.float32)).all()
    for step in range(1, int(hyper["steps"]) + 1):
        at = f"step{step}"
        assert t[f"{at}.lr"][0] == hyper["lr"][step - 1]
        micros = [(t[f"{at}.micro{m}.input"], t[f"{at}.micro{m}.target"])
                  for m in range(int(hyper["micro_batches"]))]
        grads = parameters(t, f"{at}.grad.")
        if name.startswith("mlp"):
            found = [mlp_grads(p, *micro) for micro in micros]
            losses = [loss for loss, _ in found]
            for key, g in grads.items():
                close(f"{name}.{at}.grad.{key}", g,
                      sum(one[key] for _, one in found) / len(found), 256)
        else:
            loss_of, heads = gpt2_loss, int(hyper.get("n_head", 0))
            if name.startswith("llama"):
                loss_of, heads = llama_loss, (
                    int(hyper["num_attention_heads"]),
                    int(hyper["num_key_value_heads"]))
            losses = [loss_of(p, *micro, heads).real for micro in micros]
            check_model_grads(f"{name}.{at}.grad", loss_of, p, micros, grads,
                              heads)
        for m, loss in enumerate(losses):
            close(f"{name}.{at}.micro{m}.loss", t[f"{at}.micro{m}.loss"], loss,
                  1024)
        close(f"{name}.{at}.loss", t[f"{at}.loss"], np.mean(losses), 1024)
        check_optimizer(name, t, at, p, hyper, step, state)
        p = parameters(t, f"{at}.param.")


# -- FSDP2's arithmetic -----------------------------------------------------


def check_events(folder):
    with open(f"{folder}/fsdp_events.json") as file:
        record = json.load(file)

    def chunk(rows, world):
        return -(-rows // world)

    for row in record["shards"]:
        world, (n, *rest) = row["world_size"], row["shape"]
        c = chunk(n, world)
        local = [[max(0, min(n - r * c, c)), *rest] for r in range(world)]
        assert row["local"] == local and row["padded"] == [c, *rest], row
    for scenario in record["scenarios"]:
        world, numels = scenario["world_size"], {}
        for g in scenario["groups"]:
            numels[g["fqn"]] = sum(
                chunk(p["shape"][0], world) * int(np.prod(p["shape"][1:]))
                for p in g["params"])
        for phase in scenario["phases"]:
            for what, fqn, value in phase["trace"]:
                if what == "all_gather":
                    assert value == numels[fqn], scenario["name"]
                if what == "reduce_scatter" and not scenario["grads_none"]:
                    assert value == world * numels[fqn], scenario["name"]


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(
        os.path.abspath(__file__))
    tensors = load_file(f"{folder}/operators.safetensors")
    check_linear(tensors)
    check_embedding(tensors)
    check_layer_norm(tensors, "layer_norm")
    check_layer_norm(tensors, "layer_norm_hard")
    check_activations(tensors)
    check_attention(tensors)
    check_losses(tensors)
    check_llama_operators(tensors)
    for name in ("mlp_sgd", "mlp_adamw", "gpt2_sgd", "gpt2_adamw",
                 "gpt2_untied_sgd", "llama_sgd", "llama_adamw",
                 "llama_tied_sgd"):
        check_training(folder, name)
    check_events(folder)
    print(f"all values agree; the closest to its bound: {WORST[1]}, "
          f"{WORST[0]:.2f} of it")


if __name__ == "__main__":
    main()
