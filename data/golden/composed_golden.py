"""Writes tensor_parallel.json, tensor_parallel.safetensors and moe.safetensors: what
PyTorch's tensor parallelism, alone and below FSDP2, has on which rank, and what it
trains; and what a mixture of experts gives.  Called by make_golden.py.

The perceptron's layers are ColwiseParallel and RowwiseParallel by turns, a last one
without a partner is left whole; over the other dimension of the mesh its layers, then
itself, are fully_shard()ed.  The experts are Hugging Face's MixtralExperts; its router
computes in float32 whatever the model has, so the routing here is written out.
"""

import functools
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (ColwiseParallel, RowwiseParallel,
                                               parallelize_module)
from transformers import MixtralConfig
from transformers.models.mixtral.modeling_mixtral import MixtralExperts


class Perceptron(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(*pair, dtype=torch.float64)
                                    for pair in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.relu(layer(x))
        return self.layers[-1](x)


def parallel(widths, dp, tp):
    """Parameters hold the numbers of their elements; TP first, then FSDP."""
    mesh = init_device_mesh("cpu", (dp, tp), mesh_dim_names=("dp", "tp"))
    model = Perceptron(widths)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.arange(p.numel(), dtype=p.dtype).reshape(p.shape))
    pairs = len(model.layers) // 2 * 2
    parallelize_module(model, mesh["tp"], {
        f"layers.{i}": RowwiseParallel() if i % 2 else ColwiseParallel() for i in range(pairs)})
    if dp > 1:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model


def local(p):
    return p.to_local() if isinstance(p, DTensor) else p


def elements(rank, dp, tp, widths):
    model = parallel(widths, dp, tp)
    return {name: [int(x) for x in local(p.detach()).flatten()]
            for name, p in model.named_parameters()}


def train(rank, widths, x, target, init):
    """Three steps of SGD with momentum on two ranks, float64."""
    model = parallel(widths, 1, 2)
    out = {}

    def whole(t):
        return (t.full_tensor() if isinstance(t, DTensor) else t).detach().clone()

    with torch.no_grad():
        for name, p in model.named_parameters():
            index = local(p.detach()).long()
            local(p).copy_(init[name].flatten()[index])
    sgd = torch.optim.SGD(model.parameters(), lr=0.125, momentum=0.5, foreach=False)
    for step in range(3):
        loss = F.cross_entropy(model(x[step]), target[step])
        loss.backward()
        out[f"step{step + 1}.loss"] = loss.detach().clone()
        for name, p in model.named_parameters():
            out[f"step{step + 1}.grad.{name}"] = whole(p.grad)
        sgd.step()
        sgd.zero_grad()
        for name, p in model.named_parameters():
            out[f"step{step + 1}.param.{name}"] = whole(p)
    return {k: v.tolist() for k, v in out.items()}


def process(rank, world, folder, function):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank,
                            world_size=world)
    with open(f"{folder}/{rank}.json", "w") as file:
        json.dump(function(rank), file)
    dist.destroy_process_group()


def on_ranks(world, function):
    """What it returns on each rank."""
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(process, (world, folder, function), nprocs=world)
        return [json.load(open(f"{folder}/{rank}.json")) for rank in range(world)]


def runs(indices):
    """[begin, count] of each run of neighbours."""
    out = []
    for i in indices:
        if out and sum(out[-1]) == i:
            out[-1][1] += 1
        else:
            out.append([i, 1])
    return out


def make_layouts(folder, versions):
    cases = []
    for dp, tp in ((1, 2), (2, 2), (1, 4), (3, 2), (2, 3), (4, 2), (2, 4)):
        widths = [3, 4 * tp, 5, 3 * tp, 17, 6]
        ranks = on_ranks(dp * tp, functools.partial(elements, dp=dp, tp=tp, widths=widths))
        cases.append({"dp": dp, "tp": tp, "widths": widths,
                      "ranks": [{k: runs(v) for k, v in r.items()} for r in ranks]})
    with open(os.path.join(folder, "tensor_parallel.json"), "w") as file:
        file.write(json.dumps({"versions": versions, "cases": cases},
                              separators=(",", ":")) + "\n")


def make_tensor_parallel(numbers, folder, write, versions):
    n, widths = numbers("tensor_parallel"), [3, 8, 5, 6, 17, 6]
    store = {"x": n.normal(3, 3, 3), "target": n.integers(6, 3, 3)}
    init = {}
    for name, p in Perceptron(widths).named_parameters():
        init[name] = n.normal(*p.shape, scale=0.5)
        store[f"init.{name}"] = init[name]
    first, second = on_ranks(2, functools.partial(
        train, widths=widths, x=store["x"], target=store["target"], init=init))
    assert first == second
    store.update({k: torch.tensor(v, dtype=torch.float64) for k, v in first.items()})
    write(f"{folder}/tensor_parallel.safetensors", store, versions)


def route(logits, k, normalize):
    p = torch.softmax(logits, -1)
    weight, expert = torch.topk(p, k, -1)
    if normalize:
        weight = weight / weight.sum(-1, keepdim=True)
    share = F.one_hot(expert, p.shape[1]).sum((0, 1)).double() / len(p)
    return weight, expert, p.shape[1] * (share * p.mean(0)).sum()


def make_moe(numbers, folder, write, versions):
    """Loss: the outputs times `upstream`, plus half the auxiliary loss."""
    tokens, channels, hidden, experts = 7, 6, 5, 6
    store = {}
    for top_k, normalize in ((2, True), (3, False), (1, False)):
        case = f"k{top_k}"
        n = numbers("moe." + case)
        layer = MixtralExperts(MixtralConfig(
            hidden_size=channels, intermediate_size=hidden, num_local_experts=experts,
            experts_implementation="eager")).double()
        leaves = {"x": n.normal(tokens, channels), "gate": n.normal(experts, channels),
                  "w1": n.normal(experts, hidden, channels, scale=0.5),
                  "w3": n.normal(experts, hidden, channels, scale=0.5),
                  "w2": n.normal(experts, channels, hidden, scale=0.5)}
        upstream = n.normal(tokens, channels)
        with torch.no_grad():
            layer.gate_up_proj.copy_(torch.cat([leaves["w1"], leaves["w3"]], 1))
            layer.down_proj.copy_(leaves["w2"])
        x, gate = (leaves[k].clone().requires_grad_() for k in ("x", "gate"))
        weight, expert, aux = route(F.linear(x, gate), top_k, normalize)
        y = layer(x, expert, weight)
        ((y * upstream).sum() + 0.5 * aux).backward()
        w1, w3 = layer.gate_up_proj.grad.chunk(2, 1)
        grads = {"x": x.grad, "gate": gate.grad, "w1": w1, "w3": w3,
                 "w2": layer.down_proj.grad}
        store.update({f"{case}.{k}": v for k, v in leaves.items()})
        store.update({f"{case}.upstream": upstream, f"{case}.y": y,
                      f"{case}.aux": 0.5 * aux, f"{case}.expert": expert})
        store.update({f"{case}.grad.{k}": v for k, v in grads.items()})
    write(f"{folder}/moe.safetensors", store, versions)


def make_composed(numbers, folder, write, versions):
    make_layouts(folder, versions)
    make_tensor_parallel(numbers, folder, write, versions)
    make_moe(numbers, folder, write, versions)
