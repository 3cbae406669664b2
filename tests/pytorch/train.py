"""The PyTorch side of a Case: an ordinary training script, recorded."""

import contextlib
import os
import sys
import zlib

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "python"))
import fsdp_trace  # noqa: E402

IGNORE = -100
BATCH, CONTEXT = 2, 9
WIDTHS, ROWS = [13, 12, 7, 5], 6
PERCEPTRONS = ("mlp", "sequential")


class MLP(nn.Module):
    """Linear layers with ReLU between."""

    def __init__(self, widths):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Linear(i, o) for i, o in zip(widths, widths[1:]))

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(F.relu(x) if i else x)
        return x


def make_mlp(_):
    return MLP(WIDTHS), lambda m: list(m.layers)


def make_sequential(_):
    """The same with GELU, of which the recorder need not be told."""
    layers = []
    for i, o in zip(WIDTHS, WIDTHS[1:]):
        layers += [nn.Linear(i, o), nn.GELU(approximate="tanh")]
    return nn.Sequential(*layers[:-1]), lambda m: list(m[::2])


def make_gpt2(tied):
    from transformers import GPT2Config, GPT2LMHeadModel
    config = GPT2Config(
        vocab_size=61, n_positions=16, n_embd=20, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0,
        eos_token_id=0, initializer_range=0.2, tie_word_embeddings=tied)
    return GPT2LMHeadModel(config), lambda m: list(m.transformer.h)


def make_llama(tied):
    from transformers import LlamaConfig, LlamaForCausalLM
    config = LlamaConfig(
        vocab_size=59, hidden_size=24, intermediate_size=38,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
        max_position_embeddings=16, bos_token_id=0, eos_token_id=0,
        initializer_range=0.2, tie_word_embeddings=tied)
    return LlamaForCausalLM(config), lambda m: list(m.model.layers)


MODELS = {
    "mlp": (make_mlp, None),
    "sequential": (make_sequential, None),
    "gpt2": (make_gpt2, True),
    "gpt2-untied": (make_gpt2, False),
    "llama": (make_llama, False),
    "llama-tied": (make_llama, True),
}


def make_model(case):
    """The same numbers on every rank, and the list of its blocks."""
    torch.manual_seed(zlib.crc32(case.name.encode()))
    make, tied = MODELS[case.model]
    model, blocks = make(tied)
    for p in model.parameters():  # biases and norms are no round numbers either
        p.data.add_(0.05 * torch.randn_like(p))
    model.to(getattr(torch, case.dtype))
    if case.checkpointing:
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": False})
    return model, blocks(model)


def make_batch(case, step, rank, j):
    """Micro-batch j of a rank in a step: (inputs, targets or labels)."""
    g = torch.Generator().manual_seed(1000 * step + 10 * rank + j + 1)
    if case.model in PERCEPTRONS:
        x = torch.randn(ROWS, WIDTHS[0], generator=g)
        targets = torch.randint(0, WIDTHS[-1], (ROWS,), generator=g)
        if case.ignored:
            targets[:1 + rank] = IGNORE
        return x.to(getattr(torch, case.dtype)), targets
    tokens = torch.randint(0, 59, (BATCH, CONTEXT), generator=g)
    labels = tokens.clone()
    if case.ignored:
        labels[0, 3:5 + rank] = IGNORE
    return tokens, labels


# ---- wrapping ----------------------------------------------------------------


def dtype_of(case, key):
    name = (case.policy or {}).get(key)
    return getattr(torch, name) if name else None


def shard_fsdp2(case, model, blocks):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    from torch.distributed.tensor import Shard
    names = ("replicate", "shard") if case.mesh else ("shard",)
    mesh = init_device_mesh("cpu", case.mesh or (case.world,),
                            mesh_dim_names=names)

    def place(p):
        even = p.dim() == 2 and p.shape[1] % case.world == 0
        return Shard(1 if case.columns and even else 0)

    for module in (*blocks, model):
        policy = MixedPrecisionPolicy(
            param_dtype=dtype_of(case, "param"),
            reduce_dtype=dtype_of(case, "reduce"),
            output_dtype=dtype_of(case, "output") if module is model else None)
        fully_shard(module, mesh=mesh, mp_policy=policy,
                    reshard_after_forward=case.reshard,
                    shard_placement_fn=place if case.columns else None)
    for module in model.modules():
        if case.force_sum and hasattr(module, "set_force_sum_reduction_for_comms"):
            module.set_force_sum_reduction_for_comms(True)
    return model


def wrap(case, model, blocks):
    if case.wrapper == "fsdp2":
        return shard_fsdp2(case, model, blocks)
    if case.wrapper == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if case.wrapper == "fsdp1":
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        return FullyShardedDataParallel(
            model, device_id=torch.device("cpu"),
            auto_wrap_policy=ModuleWrapPolicy({type(blocks[0])}),
            use_orig_params=case.groups)
    return model


def set_sync(case, model, last):
    """How gradients of this micro-batch are brought together; a context."""
    if case.sync == "each" or case.wrapper == "none":
        return contextlib.nullcontext()
    if case.wrapper in ("ddp", "fsdp1"):
        return contextlib.nullcontext() if last else model.no_sync()
    if case.sync == "last":
        model.set_requires_gradient_sync(last)
    else:
        model.set_requires_all_reduce(last)
    return contextlib.nullcontext()


def clip(case, model):
    if case.wrapper == "fsdp1":
        model.clip_grad_norm_(case.clip, case.norm_type)
    else:
        nn.utils.clip_grad_norm_(model.parameters(), case.clip, case.norm_type)


# ---- training ----------------------------------------------------------------


def count(case, targets):
    """How many of them count in the loss."""
    if case.model not in PERCEPTRONS:
        targets = targets[:, 1:]  # they are shifted, the first predicts nothing
    return (targets != IGNORE).sum().item()


def targets_of_all(case, step):
    """On average over the ranks: FSDP divides the gradients by their number."""
    return sum(count(case, make_batch(case, step, rank, j)[1])
               for rank in range(case.world)
               for j in range(case.micros)) / case.world


def loss_of(case, step, model, inputs, targets):
    """What backward() begins with."""
    token = case.average == "token"
    if case.model in PERCEPTRONS:
        logits = model(inputs)
        if logits.dtype == torch.bfloat16:
            logits = logits.float()
        if token:
            return (F.cross_entropy(logits, targets, reduction="sum")
                    / targets_of_all(case, step))
        return F.cross_entropy(logits, targets) / case.micros
    options = {"num_items_in_batch": targets_of_all(case, step)} if token else {}
    loss = model(input_ids=inputs, labels=targets, use_cache=False, **options).loss
    return loss if token else loss / case.micros


def sum_for_average(case):
    """gloo's fault of pytorch#162338: AVG is a sum that nobody divides.  Returns
    what ends it."""
    reduce_scatter = dist.reduce_scatter_single

    def faulty(output, input, op=dist.ReduceOp.SUM, **kwargs):
        if op == dist.ReduceOp.AVG:
            op = dist.ReduceOp.SUM
        return reduce_scatter(output, input, op=op, **kwargs)

    if case.fault == "sum for average":
        dist.reduce_scatter_single = faulty
    return lambda: setattr(dist, "reduce_scatter_single", reduce_scatter)


def make_optimizer(case, model):
    name, options = case.optimizer
    make = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW}[name]
    if not case.groups:
        return make(model.parameters(), **options)
    vectors = [n for n, p in make_model(case)[0].named_parameters()
               if p.dim() == 1]
    groups = [[], []]
    for n, p in model.named_parameters():
        groups[fsdp_trace.canonical(n) in vectors].append(p)
    return make([{"params": groups[0]},
                 {"params": groups[1], "weight_decay": 0.0,
                  "lr": options["lr"] / 2}], **options)


def train_step(case, rank, step, model, optimizer):
    for group in optimizer.param_groups:
        group.setdefault("initial_lr", group["lr"])
        group["lr"] = group["initial_lr"] * (1 - 0.1 * step)
    optimizer.zero_grad()
    for j in range(case.micros):
        with set_sync(case, model, j == case.micros - 1):
            inputs, targets = make_batch(case, step, rank, j)
            loss_of(case, step, model, inputs, targets).backward()
    if case.clip:
        clip(case, model)
    optimizer.step()


def train(case, rank, folder):
    """Trains, recorded if there is a folder; the parameters that this rank has
    in the end."""
    undo = sum_for_average(case)
    model, blocks = make_model(case)
    model = wrap(case, model, blocks)
    optimizer = make_optimizer(case, model)
    mlp = {"widths": WIDTHS, "activation": "relu"} if case.model == "mlp" else None
    begin = case.first - 1 if case.resumed else 0
    for step in range(begin):
        train_step(case, rank, step, model, optimizer)
    rec = folder and fsdp_trace.record(model, optimizer, folder, mlp=mlp,
                                       first=case.first, now=begin + 1,
                                       average=case.average,
                                       groups=case.groups)
    for step in range(begin, case.steps):
        train_step(case, rank, step, model, optimizer)
    if rec:
        rec.close()
    undo()
    return [getattr(p, "_local_tensor", p).detach() for p in model.parameters()]
