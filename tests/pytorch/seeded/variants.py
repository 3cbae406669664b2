"""What is as right as the script itself, and not the same bits: none of it may be called wrong."""

import dataclasses

import torch
import torch.distributed as dist
from torch import nn

from faults import ADAM, AdamW, GPT2, LLAMA, MLP3, change, loaded, own_adamw, reduce_all_by  # noqa: F401
from script import Setup
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str
    put: object
    setup: Setup
    ours: Setup = None            # whose right script's trace ours replays; None: the variant's own
    ranks: int = None             # of ours, if other than theirs
    options: tuple = ()


def reduced_backwards(script):
    """From the last rank to the first."""
    class Backwards(DefaultReduceScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            parts = [torch.empty_like(input_tensor) for _ in range(script.world)]
            dist.all_gather(parts, input_tensor, group=group)
            begin, n = script.rank * output_tensor.numel(), output_tensor.numel()
            total = parts[-1][begin:begin + n].clone()
            for part in reversed(parts[:-1]):
                total += part[begin:begin + n]
            output_tensor.copy_(total / script.world)
    reduce_all_by(script, Backwards())


def scaled_before(script):
    """Each term is divided before the sum, as one vendor's collectives do."""
    class Before(DefaultReduceScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            dist.reduce_scatter_single(output_tensor, input_tensor * (1 / script.world), group=group, op=dist.ReduceOp.SUM)
    reduce_all_by(script, Before())


def two_threads(script):
    torch.set_num_threads(2)


def no_mkldnn(script):
    torch.backends.mkldnn.set_flags(False)


def math_attention(script):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    forward = script.forward

    def by_math(x, y):
        with sdpa_kernel(SDPBackend.MATH):
            return forward(x, y)
    script.forward = by_math


def eager_attention(script):
    loaded(script, lambda model: model.set_attn_implementation("eager"))


def by_products_of_double(script):
    """Another BLAS: each product is made in float64 and rounded once."""
    real = nn.functional.linear

    class Linear(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w, b):
            ctx.save_for_backward(x, w)
            return real(x.double(), w.double(), None if b is None else b.double()).float()

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            g2, x2 = g.double().reshape(-1, g.shape[-1]), x.double().reshape(-1, x.shape[-1])
            return (g.double() @ w.double()).float(), (g2.t() @ x2).float(), g2.sum(0).float()
    nn.functional.linear = lambda x, w, b=None: Linear.apply(x, w, b)


def split_products(script):
    """Another BLAS: sums over k in two halves, the second first."""
    real = nn.functional.linear

    def linear(x, w, b=None):
        k = x.shape[-1] // 2
        y = real(x[..., k:], w[:, k:]) + real(x[..., :k], w[:, :k])
        return y if b is None else y + b
    nn.functional.linear = linear


FUSED = change(MLP3, **{**ADAM, "options": (*ADAM["options"], ("fused", True))})
FOREACH = change(MLP3, **{**ADAM, "options": (*ADAM["options"], ("foreach", True))})
SINGLE = change(MLP3, **{**ADAM, "options": (*ADAM["options"], ("foreach", False))})

VARIANTS = [
    Variant("reduced-backwards", reduced_backwards, change(MLP3, world=4)),
    Variant("scaled-before-the-sum", scaled_before, MLP3),
    Variant("two-threads", two_threads, GPT2),
    Variant("no-mkldnn", no_mkldnn, GPT2),
    Variant("math-attention", math_attention, change(GPT2, **ADAM)),
    Variant("eager-attention", eager_attention, LLAMA),
    Variant("products-of-double", by_products_of_double, MLP3),
    Variant("products-in-two-halves", split_products, change(MLP3, clip=0.2)),
    Variant("fused-adamw", None, FUSED),
    Variant("foreach-adamw", None, FOREACH),
    Variant("single-tensor-adamw", None, SINGLE),
    Variant("own-adamw", own_adamw(None), change(MLP3, **ADAM)),
    Variant("ddp", None, change(GPT2, wrapper="ddp"), ours=GPT2),
    Variant("fsdp1", None, change(MLP3, wrapper="fsdp1", clip=0.2), ours=change(MLP3, clip=0.2)),
    Variant("one-process", None, change(MLP3, wrapper="none", world=1, batch=9)),
    Variant("by-hand", None, change(MLP3, wrapper="hand", clip=0.2)),
    Variant("no-reshard", None, change(GPT2, reshard=False, micro=2, sync="last", clip=1.0)),
    Variant("hsdp-ours-fsdp", None, Setup(wrapper="hsdp", world=4, micro=2), ranks=2),
    Variant("other-micro-batches", None, change(MLP3, world=2, batch=6), ours=change(MLP3, world=2, batch=3, micro=2, sync="last")),
    Variant("float64", None, change(GPT2, dtype=torch.float64, **ADAM)),
    Variant("bf16", None, change(LLAMA, param_dtype=torch.bfloat16, reduce_dtype=torch.float32)),
    Variant("token-average", None, change(GPT2, ignored=True, average="token")),
    Variant("infinity-norm", None, change(MLP3, clip=0.05, norm_type=float("inf"))),
]

QUICK = ("reduced-backwards", "ddp", "bf16")
