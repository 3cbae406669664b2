"""half.safetensors: what PyTorch makes of bfloat16.  See README.

Called by make_golden.py.  Values are written as float64, which holds every
bfloat16 and float32.
"""

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16


def rounded(values):
    return values.to(BF16)


def record_half(store, name, function, inputs, grad_out, integers=()):
    leaves = {k: rounded(v).requires_grad_() for k, v in inputs.items()}
    out = function(*leaves.values(), *integers.values()) if integers \
        else function(*leaves.values())
    assert out.dtype == BF16, name
    out.backward(rounded(grad_out))
    store.update({f"{name}.{k}": v.detach().double()
                  for k, v in leaves.items()})
    store.update({f"{name}.{k}": v for k, v in dict(integers).items()})
    store[f"{name}.out"] = out.detach().double()
    store[f"{name}.grad_out"] = rounded(grad_out).double()
    store.update({f"{name}.grad.{k}": v.grad.double()
                  for k, v in leaves.items()})


def make_operators_half(s, n):
    record_half(s, "linear", F.linear,
                dict(x=n.normal(2, 3, 40), weight=n.normal(24, 40),
                     bias=n.normal(24)), n.normal(2, 3, 24))
    record_half(s, "layer_norm",
                lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
                dict(x=n.normal(2, 3, 32, scale=2.0), weight=n.normal(32),
                     bias=n.normal(32)), n.normal(2, 3, 32))
    record_half(s, "embedding", lambda weight, index: F.embedding(index, weight),
                dict(weight=n.normal(7, 5)), n.normal(2, 4, 5),
                dict(index=torch.tensor([[3, 0, 3, 6], [1, 3, 0, 2]])))


def make_mlp_half(s, n):
    """8-8-4, ReLU, the loss of logits.float(), one step of SGD with rate 1/8."""
    p = {"layers.0.weight": n.normal(8, 8, scale=0.5),
         "layers.0.bias": n.normal(8, scale=0.5),
         "layers.1.weight": n.normal(4, 8, scale=0.5),
         "layers.1.bias": n.normal(4, scale=0.5)}
    p = {k: rounded(v).requires_grad_() for k, v in p.items()}
    x, target = rounded(n.normal(6, 8)), n.integers(4, 6)
    s.update({"mlp.x": x.double(), "mlp.target": target})
    s.update({f"mlp.init.{k}": v.detach().double() for k, v in p.items()})
    w0, b0, w1, b1 = p.values()
    logits = F.linear(torch.relu(F.linear(x, w0, b0)), w1, b1)
    loss = F.cross_entropy(logits.float(), target)
    assert loss.dtype == torch.float32
    loss.backward()
    s["mlp.loss"] = loss.detach().double()
    s.update({f"mlp.grad.{k}": v.grad.double() for k, v in p.items()})
    torch.optim.SGD(p.values(), lr=0.125, foreach=False).step()
    s.update({f"mlp.param.{k}": v.detach().double() for k, v in p.items()})


def make_optimizers_half(s, n):
    """64 elements: whole vectors, see src/tensor/half_optimizers.h."""
    for name, make, settings in (
            ("sgd", torch.optim.SGD, dict(
                lr=0.1, momentum=0.9, dampening=0.0, weight_decay=0.1,
                nesterov=True)),
            ("adamw", torch.optim.AdamW, dict(
                lr=0.01, betas=(0.9, 0.999), eps=1e-3, weight_decay=0.1))):
        p = torch.nn.Parameter(rounded(n.normal(64)))
        optimizer = make([p], foreach=False, **settings)
        s[f"{name}.init"] = p.detach().double()
        for step in (1, 2, 3):
            p.grad = rounded(n.normal(64))
            s[f"{name}.grad{step}"] = p.grad.double()
            optimizer.step()
            s[f"{name}.param{step}"] = p.detach().double()
            for key, value in optimizer.state[p].items():
                if key != "step" and value is not None:
                    assert value.dtype == BF16
                    s[f"{name}.{key}{step}"] = value.double()


def make_half(numbers, folder, write, versions):
    s, n = {}, numbers("half")
    make_operators_half(s, n)
    make_mlp_half(s, n)
    make_optimizers_half(s, n)
    write(f"{folder}/half.safetensors", s, versions)
