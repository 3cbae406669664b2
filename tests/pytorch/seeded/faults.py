"""Faults, one function each: what it does to the script, and, in the table at the end,
where that first shows and why.  The driver checks each place by itself, as the first bits
that differ from the script that is right.  Reports are named by their project and number; without one, the fault is our own."""

import contextlib
import dataclasses

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter

from script import IGNORED, MLP, Setup

# ---- tools -----------------------------------------------------------------------------


def local(t):
    return t._local_tensor if hasattr(t, "_local_tensor") else t


def parameter(script, name):
    return dict(script.model.named_parameters())[name]


def after_wrap(script, then):
    wrap = script.wrap

    def wrapped(model):
        model = wrap(model)
        then(model)
        return model
    script.wrap = wrapped


class Reducing(DefaultReduceScatter):
    """The usual reduction, and something done to its input, or to its output."""

    def __init__(self, before=None, after=None):
        self.before, self.after = before, after

    def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
        if self.before is not None:
            self.before(input_tensor)
        work = super().__call__(output_tensor, input_tensor, group, op, async_op)
        if self.after is not None:
            self.after(output_tensor)
        return work


def reduce_unit_by(script, comm, which=1):
    after_wrap(script, lambda model: script.units(model)[which].set_custom_reduce_scatter(comm))


def reduce_all_by(script, comm):
    after_wrap(script, lambda model: [m.set_custom_reduce_scatter(comm) for m in [*script.units(model), model]])


def before_update(script, then):
    update = script.update

    def updating(step):
        then(step)
        update(step)
    script.update = updating


def after_update_hook(script, then):
    """Runs at the end of optimizer.step(), as if a part of it."""
    make = script.make_optimizer

    def making(parameters):
        optimizer = make(parameters)
        optimizer.register_step_post_hook(lambda *_: then())
        return optimizer
    script.make_optimizer = making


def keep_in_update(script, kept):
    """What `kept` names (a list of (tensor, slice)) stays as it was, whatever the step does."""
    make, saved = script.make_optimizer, []

    def making(parameters):
        optimizer = make(parameters)
        optimizer.register_step_pre_hook(lambda *_: saved.extend((t, t.clone()) for t in kept()))
        optimizer.register_step_post_hook(lambda *_: [t.copy_(old) for t, old in saved] and saved.clear())
        return optimizer
    script.make_optimizer = making


class AdamW(torch.optim.AdamW):
    """Somebody's own AdamW; `fault` says what is wrong with it."""

    fault = None

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(group, local(p), local(p.grad), self.state[p])

    def update(self, group, p, g, state):
        (b1, b2), lr, eps, decay = group["betas"], group["lr"], group["eps"], group["weight_decay"]
        if not state:
            state.update(step=torch.zeros(()), exp_avg=torch.zeros_like(p), exp_avg_sq=torch.zeros_like(p))
        state["step"] += 1
        t, m, v = state["step"].item(), state["exp_avg"], state["exp_avg_sq"]
        if self.fault == "coupled":
            g = g + decay * p
        elif self.fault == "decay after":
            pass
        else:
            p.mul_(1 - lr * decay)
        m.mul_(b1).add_(g, alpha=1 - b1)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        c1, c2 = (1, 1) if self.fault == "no bias correction" else (1 - b1 ** t, 1 - b2 ** t)
        if self.fault == "eps inside":
            denominator = (v / c2 + eps).sqrt()
        elif self.fault == "eps before correction":
            denominator = (v.sqrt() + eps) / c2 ** 0.5
        else:
            denominator = v.sqrt() / c2 ** 0.5 + eps
        p.addcdiv_(m, denominator, value=-lr / c1)


def own_adamw(fault):
    def put(script):
        AdamW.fault = fault
        script.make_optimizer = lambda parameters: AdamW(parameters, lr=script.s.lrs[0], **dict(script.s.options))
    return put


# ---- reduction ---------------------------------------------------------------------------


def biases_not_reduced(script):
    reduce_one = script.reduce_one
    script.reduce_one = lambda name, p: None if name.endswith("bias") else reduce_one(name, p)


def biases_ignored_by_ddp(script):
    def wrap(model):
        names = [n for n, _ in model.named_parameters() if n.endswith("bias")]
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, names)
        return nn.parallel.DistributedDataParallel(model)
    script.wrap = wrap


def sum_not_mean(script):
    real = dist.reduce_scatter_single

    def reduce_scatter_single(*args, op=None, **kwargs):
        return real(*args, op=dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op, **kwargs)
    dist.reduce_scatter_single = reduce_scatter_single


def divided_twice(script):
    def after(output):
        output.div_(script.world)
    reduce_all_by(script, Reducing(after=after))


def loss_divided_by_world(script):
    script.weight = lambda step, j, y: 1 / script.world


def share_missing(script):
    reduce_unit_by(script, Reducing(before=lambda t: t.zero_() if script.rank == 1 else None))


def share_doubled(script):
    reduce_unit_by(script, Reducing(before=lambda t: t.mul_(2) if script.rank == 2 else None))


def reduced_in_bf16(script):
    class Low(DefaultReduceScatter):
        def __call__(self, output_tensor, input_tensor, group, op, async_op=False):
            low = input_tensor.bfloat16()
            parts = [torch.empty_like(low) for _ in range(script.world)]
            dist.all_gather(parts, low, group=group)
            begin, n = script.rank * output_tensor.numel(), output_tensor.numel()
            total = parts[0][begin:begin + n].clone()
            for part in parts[1:]:
                total += part[begin:begin + n]
            output_tensor.copy_(total / script.world)
    reduce_all_by(script, Low())


def accumulated_in_bf16(script):
    """The policy was to name reduce_dtype."""
    script.s = dataclasses.replace(script.s, reduce_dtype=None)


def accumulator_in_bf16(script):
    from torch.distributed.fsdp._fully_shard import _fsdp_param as module
    real = module.FSDPParam.accumulate_unsharded_grad_if_needed

    def accumulate(p):
        real(p)
        if p.unsharded_accumulated_grad is not None:
            p.unsharded_accumulated_grad = p.unsharded_accumulated_grad.bfloat16().float()
    module.FSDPParam.accumulate_unsharded_grad_if_needed = accumulate
    module.FSDPParam.to_accumulated_grad_if_needed_real = module.FSDPParam.to_accumulated_grad_if_needed

    def to(p):
        module.FSDPParam.to_accumulated_grad_if_needed_real(p)
        if p.unsharded_accumulated_grad is not None:
            p.unsharded_accumulated_grad = p.unsharded_accumulated_grad.bfloat16().float()
    module.FSDPParam.to_accumulated_grad_if_needed = to


def replicas_not_reduced(script):
    """The second half of the reduction, over the replicas, is lost."""
    dist.all_reduce = lambda *args, **kwargs: None


def one_buffer_for_all(script):
    """Gradients are views of the reduction's output; the next one overwrites it."""
    class Shared(DefaultReduceScatter):
        store, calls = torch.empty(4096), 0

        def allocate(self, size, *, dtype, device):
            self.calls += 1
            if self.calls % 2:  # the input
                return torch.empty(*size, dtype=dtype, device=device)
            return self.store[:size[0]]
    reduce_all_by(script, Shared())


def sync_one_early(script):
    script.syncs = lambda j: j == script.s.micro - 2


def sync_set_after_forward(script):
    """DDP reads the flag in its forward."""
    def micro_batch(step, j):
        x, y = script.batch(step, j)
        loss = script.forward(x, y)
        script.model.require_backward_grad_sync = j == script.s.micro - 1
        script.backward(loss / script.s.micro)
        if j == script.s.micro - 1:
            script.model.require_backward_grad_sync = False
    script.micro_batch = micro_batch
    after_wrap(script, lambda model: setattr(model, "require_backward_grad_sync", False))


def reduced_twice(script):
    """DDP has reduced already."""
    def reduce(step):
        for p in script.model.parameters():
            dist.all_reduce(p.grad)
    script.reduce = reduce


def last_rank_reads_next(script):
    """The shard that a rank takes of the reduced gradient begins one row late."""
    def after(output):
        if script.rank == 1:
            row = MLP.WIDTHS[1]
            rows = (MLP.WIDTHS[2] + script.world - 1) // script.world
            output[:rows * row] = output[:rows * row].roll(-row)
    reduce_unit_by(script, Reducing(after=after))


# ---- accumulation, loss ----------------------------------------------------------------


def zero_grad_forgotten(script):
    script.zero_grad = lambda step: None


def not_divided_by_micro_batches(script):
    script.weight = lambda step, j, y: 1


def mean_of_ranks_means(script):
    script.weight = lambda step, j, y: 1


def mean_of_own_ranks_targets(script):
    """Over the targets of this rank's micro-batches, as if nobody else had any."""
    def weight(step, j, y):
        own = sum((script.batch(step, k)[1] != IGNORED).sum() for k in range(script.s.micro))
        return (y != IGNORED).sum() / own
    script.weight = weight


def weighted_by_share(script):
    """As over all ranks' targets, where all ranks were to count alike."""
    def weight(step, j, y):
        return (y != IGNORED).sum() * script.world / (script.rows(step)[1] != IGNORED).sum()
    script.weight = weight


def mean_of_ranks_means_unawares(script):
    script.weight = lambda step, j, y: 1
    script.average = "rank"


def ignored_targets_counted(script):
    """A sum over the targets that count, divided by all."""
    def loss_of(logits, y):
        return nn.functional.cross_entropy(logits.reshape(y.numel(), -1), y.reshape(-1), ignore_index=IGNORED,
                                           reduction="sum") / y.numel()
    script.loss_of = loss_of


def padding_learnt(script):
    """What is to be ignored is given the padding token instead."""
    batch = script.batch

    def padded(step, j):
        x, y = batch(step, j)
        return x, y.masked_fill(y == IGNORED, 0)
    script.batch = padded


def shifted_twice(script):
    """Hugging Face's model shifts labels; these are shifted already."""
    script.forward = lambda x, y: script.model(x, labels=y).loss


def same_data(script):
    script.number = lambda j: j * script.world


def clipped_too_early(script):
    """After each micro-batch, not after the last."""
    micro_batch = script.micro_batch

    def clipping(step, j):
        micro_batch(step, j)
        Script_clip(step)
    Script_clip = script.clip
    script.micro_batch = clipping
    script.clip = lambda step: None


def micro_batch_left_out(script):
    """The gradient of the first micro-batch is thrown away with the buffers of the last step."""
    micro_batch = script.micro_batch

    def zeroing(step, j):
        if j == 1:
            script.optimizer.zero_grad()
        micro_batch(step, j)
    script.micro_batch = zeroing
    script.zero_grad = lambda step: None


# ---- norm and clipping ----------------------------------------------------------------


def clip_by(script, norm_of):
    def clip(step):
        norm = norm_of([local(p.grad) for p in script.model.parameters() if p.grad is not None])
        script.rec.norm(norm, script.s.clip, script.s.norm_type)
        for p in script.model.parameters():
            local(p.grad).mul_(torch.clamp(script.s.clip / (norm + 1e-6), max=1.0))
    script.clip = clip


def squares(grads):
    return sum((g.double() ** 2).sum() for g in grads)


def total(x, op=dist.ReduceOp.SUM, group=None):
    dist.all_reduce(x, op=op, group=group)
    return x


def local_norm(script):
    clip_by(script, lambda grads: squares(grads).sqrt().float())


def local_norm_of_fsdp1(script):
    """FSDP1 has a clip_grad_norm_() of its own for a reason."""
    script.clip = lambda step: nn.utils.clip_grad_norm_(script.model.parameters(), script.s.clip)


def norm_over_replicas(script):
    clip_by(script, lambda grads: total(squares(grads)).sqrt().float())


def norm_without_root(script):
    clip_by(script, lambda grads: total(squares(grads)).float())


def infinity_norm_root(script):
    def norm(grads):
        largest = max(g.abs().max() for g in grads if g.numel()).double()
        p = float("inf")
        return total(largest ** 0 * largest, dist.ReduceOp.MAX) ** (1 / p)
    clip_by(script, lambda grads: norm(grads).float())


def norm_of_sums(script):
    """Norms of ranks added up, not their squares."""
    clip_by(script, lambda grads: total(squares(grads).sqrt()).float())


def clip_coefficient_upside_down(script):
    """Gradients below the limit are scaled up to it."""
    def clip(step):
        norm = nn.utils.get_total_norm([p.grad for p in script.model.parameters()]).full_tensor()
        script.rec.norm(norm, script.s.clip, script.s.norm_type)
        for p in script.model.parameters():
            local(p.grad).mul_(script.s.clip / (norm + 1e-6))
    script.clip = clip


# ---- optimizer ---------------------------------------------------------------------------


def infinity_norm(script):
    script.s = dataclasses.replace(script.s, norm_type=float("inf"))


def clipped_to_more(script):
    script.s = dataclasses.replace(script.s, clip=2 * script.s.clip)


def divide_factor_one(script):
    def then(model):
        for m in [*script.units(model), model]:
            m.set_force_sum_reduction_for_comms(True)
            m.set_gradient_divide_factor(1.0)
    after_wrap(script, then)


def computed_in_bf16(script):
    script.s = dataclasses.replace(script.s, param_dtype=torch.bfloat16)


def adam_for_adamw(script):
    script.make_optimizer = lambda parameters: torch.optim.Adam(parameters, lr=script.s.lrs[0], **dict(script.s.options))


def dropout_left_on(script):
    def then(model):
        for m in model.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.1
    after_wrap(script, then)


def betas_swapped(script):
    b1, b2 = dict(script.s.options)["betas"]
    options = {**dict(script.s.options), "betas": (b2, b1)}
    script.s = dataclasses.replace(script.s, options=tuple(options.items()))


def dampening(script):
    options = {**dict(script.s.options), "dampening": 0.9}
    script.s = dataclasses.replace(script.s, options=tuple(options.items()))


def rate_off_by_one(script):
    script.rate = lambda step: script.s.lrs[min(step, len(script.s.lrs) - 1)]


def decay_not_on_biases(script):
    def make(parameters):
        named = dict(script.model.named_parameters())
        biases = [p for n, p in named.items() if n.endswith("bias")]
        rest = [p for n, p in named.items() if not n.endswith("bias")]
        return torch.optim.AdamW([{"params": rest}, {"params": biases, "weight_decay": 0.0}], lr=script.s.lrs[0],
                                 **dict(script.s.options))
    script.make_optimizer = make


def stepped_in_bf16(script):
    def rounding():
        with torch.no_grad():
            for p in script.model.parameters():
                local(p).copy_(local(p).bfloat16())
    after_update_hook(script, rounding)


def update_smaller(script):
    """The rate is scaled for another batch size on its way into the kernel, not in the group."""
    update = script.update

    def updating(step):
        before = [local(p).clone() for p in script.model.parameters()]
        script.befores = before
        update(step)

    def shrink():
        with torch.no_grad():
            for p, old in zip(script.model.parameters(), script.befores):
                local(p).copy_(old + (local(p) - old) / 1.5)
    script.update = updating
    after_update_hook(script, shrink)


def optimizer_before_sharding(script):
    def prepare():
        model = script.make_model()
        script.optimizer = script.make_optimizer(list(model.parameters()))
        script.model = script.wrap(model)
    script.prepare = prepare


def last_rows_not_updated(script):
    """Of the tied embedding, whose rows do not divide by the ranks."""
    def kept():
        p = parameter(script, "transformer.wte.weight")
        return [local(p)] if script.rank == script.world - 1 else []
    with_grad = torch.no_grad()
    keep_in_update(script, lambda: [t.detach() for t in kept()])
    del with_grad


def skipped_on_one_rank(script):
    """found_inf is not shared: rank 1 leaves step 2 out."""
    make = script.make_optimizer

    def making(parameters):
        optimizer = make(parameters)
        script.fused = optimizer
        return optimizer
    script.make_optimizer = making

    def then(step):
        if script.rank == 1 and step == 2:
            script.optimizer.found_inf = torch.ones(())
            script.optimizer.grad_scale = torch.ones(())
        elif hasattr(script.optimizer, "found_inf"):
            del script.optimizer.found_inf, script.optimizer.grad_scale
    before_update(script, then)


def frozen_by_mistake(script):
    make = script.make_model

    def making():
        model = make()
        model.layers[1].weight.requires_grad_(False)
        return model
    script.make_model = making


# ---- parameters ------------------------------------------------------------------------


def stale_gathered(script):
    """Nothing frees what was gathered, so the second step computes with the first's."""
    def then(model):
        model.set_reshard_after_backward(False)
    after_wrap(script, then)


def other_seed_by_rank(script):
    """And nothing broadcasts rank 0's weights."""
    script.seed = 7 + script.rank
    script.wrap = lambda model: nn.parallel.DistributedDataParallel(model, init_sync=False)


def other_seed(script):
    script.seed = 8


def loaded(script, change):
    make = script.make_model

    def making():
        model = make()
        with torch.no_grad():
            change(model)
        return model
    script.make_model = making


def weight_transposed(script):
    loaded(script, lambda model: model.layers[1].weight.copy_(model.layers[1].weight.t().clone()))


def rows_of_ranks_swapped(script):
    """A checkpoint's pieces are put together in another order."""
    def change(model):
        w = model.layers[0].weight
        w.copy_(torch.cat(list(reversed(w.clone().chunk(script.world)))))
    loaded(script, change)


def gathered_in_other_order(script):
    class Rotated(DefaultAllGather):
        def __call__(self, output_tensor, input_tensor, group, async_op=False):
            work = super().__call__(output_tensor, input_tensor, group, False)
            output_tensor.copy_(output_tensor.view(script.world, -1).roll(1, 0).reshape(-1))
            return work
    after_wrap(script, lambda model: script.units(model)[1].set_custom_all_gather(Rotated()))


def tail_not_loaded(script):
    """Rows that do not fill all ranks are left at zero when a checkpoint is loaded."""
    def change(model):
        w = model.layers[1].weight
        w[w.shape[0] // script.world * script.world:] = 0
    loaded(script, change)


# ---- the model ---------------------------------------------------------------------------


def dropout_on_one_rank(script):
    def then(model):
        for m in model.modules():
            if isinstance(m, nn.Dropout):
                m.p = 0.1 if script.rank == 1 else 0.0
    after_wrap(script, then)


def causal_mask_off(script):
    real = nn.functional.scaled_dot_product_attention

    def attention(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **kwargs):
        return real(q, k, v, attn_mask=None, dropout_p=dropout_p, is_causal=False, **kwargs)
    nn.functional.scaled_dot_product_attention = attention


def attention_of(script, change):
    """Attention with what it is given changed: (queries, keys, values, other arguments)."""
    real = nn.functional.scaled_dot_product_attention

    def attention(q, k, v, **kwargs):
        return real(*change(q, k, v, kwargs), **kwargs)
    nn.functional.scaled_dot_product_attention = attention


def causal_mask_late(script):
    def change(q, k, v, kwargs):
        seen = torch.ones(q.shape[-2], k.shape[-2], dtype=torch.bool).tril(1)
        kwargs.update(attn_mask=seen, is_causal=False)
        return q, k, v
    attention_of(script, change)


def attention_not_scaled(script):
    def change(q, k, v, kwargs):
        kwargs.update(scale=1.0)
        return q, k, v
    attention_of(script, change)


def attention_scaled_by_channels(script):
    def change(q, k, v, kwargs):
        kwargs.update(scale=(q.shape[1] * q.shape[3]) ** -0.5)
        return q, k, v
    attention_of(script, change)


def key_heads_dealt(script):
    def change(q, k, v, kwargs):
        if not kwargs.pop("enable_gqa", False):  # they are repeated by now
            k, v = (t[:, ::2] for t in (k, v))
        return q, k.repeat(1, 2, 1, 1), v.repeat(1, 2, 1, 1)
    attention_of(script, change)


def rotated_as_neighbours(script):
    from transformers.models.llama import modeling_llama

    def rotate(x):
        return torch.stack((-x[..., 1::2], x[..., ::2]), -1).flatten(-2)

    def apply(q, k, cos, sin, *args, **kwargs):
        cos, sin = (t[..., : t.shape[-1] // 2].repeat_interleave(2, -1).unsqueeze(1) for t in (cos, sin))
        return q * cos + rotate(q) * sin, k * cos + rotate(k) * sin
    modeling_llama.apply_rotary_pos_emb = apply


def not_rotated(script):
    from transformers.models.llama import modeling_llama
    modeling_llama.apply_rotary_pos_emb = lambda q, k, *args, **kwargs: (q, k)


def positions_left_out(script):
    loaded(script, lambda model: model.transformer.wpe.register_forward_hook(lambda m, x, y: 0 * y))


def gelu_of_llama(script):
    loaded(script, lambda model: [setattr(b.mlp, "act_fn", nn.GELU()) for b in model.model.layers])


def other_gelu(script):
    def then(model):
        model.activation.approximate = "none"
    after_wrap(script, then)


def other_gelu_of_gpt2(script):
    loaded(script, lambda model: [setattr(b.mlp, "act", nn.GELU()) for b in model.transformer.h])


def other_layer_norm_eps(script):
    loaded(script, lambda model: [setattr(m, "eps", 1e-6) for m in model.modules() if isinstance(m, nn.LayerNorm)])


def configured(script, **fields):
    """A setting of the model's own configuration, which the trace then names, too."""
    config = script.config

    def changed():
        c = config()
        for key, value in fields.items():
            setattr(c, key, value)
        return c
    script.config = changed


def configured_layer_norm_eps(script):
    configured(script, layer_norm_epsilon=1e-6)


def configured_rms_norm_eps(script):
    configured(script, rms_norm_eps=1e-5)


def configured_activation(script):
    script.s = dataclasses.replace(script.s, activation="gelu")


def other_rope_base(script):
    def change(model):
        rotary = model.model.rotary_emb
        dim = rotary.inv_freq.numel() * 2
        rotary.inv_freq.copy_(1.0 / 500000.0 ** (torch.arange(0, dim, 2) / dim))
    loaded(script, change)


def positions_off_by_one(script):
    def forward(x, y):
        positions = torch.arange(1, x.shape[1] + 1).expand_as(x)
        return script.loss_of(script.model(x, position_ids=positions).logits, y)
    script.forward = forward


class Recomputed(torch.autograd.Function):
    """A checkpoint that forgets under which autocast the forward ran."""

    @staticmethod
    def forward(ctx, run, x, *parameters):
        ctx.run, ctx.parameters = run, parameters
        ctx.save_for_backward(x)
        with torch.no_grad():
            return run(x)

    @staticmethod
    def backward(ctx, grad):
        x = ctx.saved_tensors[0].detach().requires_grad_()
        with torch.enable_grad(), torch.autocast("cpu", torch.bfloat16):
            y = ctx.run(x)
        grads = torch.autograd.grad(y, (x, *ctx.parameters), grad)
        return None, *grads


def recomputed_in_bf16(script):
    def change(model):
        block = model.transformer.h[1].mlp
        run = block.forward
        block.forward = lambda x: Recomputed.apply(run, x, *block.parameters())
    loaded(script, change)


# ---- the table ---------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    put: object                   # the function that puts the fault in
    setup: Setup
    place: tuple                  # accepted: (step, phase, regular expression of the name)
    causes: tuple                 # accepted identifiers of the diagnosis (src/verify/diagnosis)
    report: str = ""
    options: tuple = None         # of `fsdp train --replay THEIRS`; None: ours replays the right script's trace

    @property
    def places(self):
        return self.place if isinstance(self.place[0], tuple) else (self.place,)


MLP2, MLP3, MLP4 = (Setup(world=w) for w in (2, 3, 4))
ADAM = dict(optimizer="adamw", lrs=(0.01, 0.01, 0.01),
            options=(("betas", (0.9, 0.95)), ("eps", 1e-8), ("weight_decay", 0.1)))
GPT2 = Setup(model="gpt2", batch=2, world=2)
LLAMA = Setup(model="llama", batch=2, world=2)
LLAMA4 = Setup(model="llama4", batch=2, world=2)  # 4 heads, 2 of keys
HSDP = Setup(wrapper="hsdp", world=4)


def change(setup, **kwargs):
    return dataclasses.replace(setup, **kwargs)


REDUCED = r"layers\.1\.(weight|bias)"
LAST = r"layers\.2\.(weight|bias)"

CASES = [
    # reduction
    Case("biases-not-reduced", biases_not_reduced, change(MLP2, wrapper="hand"),
         (1, "grad", r"layers\.0\.bias"), ("not-reduced",), "llm_parallelisms.c", ()),
    Case("biases-ignored-by-ddp", biases_ignored_by_ddp, change(MLP3, wrapper="ddp"),
         (1, "grad", r"layers\.0\.bias"), ("not-reduced",), "llm_parallelisms.c", ()),
    Case("sum-not-mean", sum_not_mean, MLP3, (1, "reduced_grad", LAST), ("constant-factor",), "pytorch#162338", ()),
    Case("divided-twice", divided_twice, MLP3, (1, "reduced_grad", LAST), ("constant-factor",), "semantics 2", ()),
    Case("loss-divided-by-world", loss_divided_by_world, MLP3,
         ((1, "output_grad", r"layers\.2"), (1, "unreduced_grad", LAST), (1, "reduced_grad", LAST)), ("constant-factor",), "torchtune#2172", ()),
    Case("share-missing", share_missing, MLP3, (1, "reduced_grad", REDUCED), ("rank-missing",), "verl#7493", ()),
    Case("share-doubled", share_doubled, MLP4, (1, "reduced_grad", REDUCED), ("rank-doubled",), "", ()),
    Case("reduced-in-bf16", reduced_in_bf16, MLP3, (1, "reduced_grad", LAST), ("lower-precision-reduction", "lower-precision"), "pytorch#106395", ()),
    Case("policy-without-reduce-dtype", accumulated_in_bf16,
         change(MLP2, param_dtype=torch.bfloat16, reduce_dtype=torch.float32, micro=4, sync="last"),
         (1, "reduced_grad", LAST), ("lower-precision-reduction", "lower-precision"), "PR pytorch#194628", ("--reduce-dtype", "float32")),
    Case("accumulator-in-bf16", accumulator_in_bf16,
         change(MLP2, param_dtype=torch.bfloat16, reduce_dtype=torch.float32, micro=4, sync="last"),
         (1, "reduced_grad", LAST), ("lower-precision-accumulation",), "PR pytorch#160279", ()),
    Case("replicas-not-reduced", replicas_not_reduced, HSDP, ((1, "reduced_grad", LAST), (1, "grad", r"layers\.0\.weight")),
         ("replicas-not-reduced", "not-reduced"), "verl#7493", ()),
    Case("one-buffer-for-all", one_buffer_for_all, MLP2, (1, "grad", r"layers\.[012]\.weight"), ("other-tensor",),
         "PR pytorch#180900", ()),
    Case("sync-one-early", sync_one_early, change(MLP2, micro=3, sync="last"), (1, "reduced_grad", LAST),
         ("micro-batch-missing",), "FunASR#3472", ()),
    Case("sync-set-after-forward", sync_set_after_forward, change(MLP3, wrapper="ddp", micro=2, sync="last"),
         (1, "grad", r"layers\.0\.weight"), ("not-reduced",), "build-nanogpt#30", ()),
    Case("reduced-twice", reduced_twice, change(MLP3, wrapper="ddp"), ((1, "grad", r"layers\.0\.weight"),
         (1, "clipped_grad", r"layers\.0\.weight")), ("constant-factor",), "", ()),
    Case("shard-begins-one-row-late", last_rank_reads_next, MLP2, (1, "reduced_grad", r"layers\.1\.weight"),
         ("rows-shifted",), "", ()),
    # accumulation, loss, data
    Case("zero-grad-forgotten", zero_grad_forgotten, MLP2, (2, "grad", r"layers\.0\.weight"), ("not-zeroed",), "", ()),
    Case("not-divided-by-micro-batches", not_divided_by_micro_batches, change(MLP2, micro=2),
         ((1, "output_grad", r"\(root\)|layers\.2"), (1, "unreduced_grad", LAST), (1, "reduced_grad", LAST), (1, "grad", r"layers\.0\.weight")),
         ("constant-factor",), "DeepSpeed#1488", ()),
    Case("mean-of-ranks-means", mean_of_ranks_means, change(GPT2, ignored=True, average="token"),
         ((1, "output_grad", r".*"), (1, "unreduced_grad", r".*(ln_f.*|wte.weight)"), (1, "reduced_grad", r".*")),
         ("token-mean",), "torchtune#2172"),
    Case("mean-of-own-ranks-targets", mean_of_own_ranks_targets, change(GPT2, ignored=True, average="token", micro=2, sync="last"),
         ((1, "output_grad", r".*"), (1, "unreduced_grad", r".*(ln_f.*|wte.weight)"), (1, "reduced_grad", r".*")),
         ("token-mean",), ""),
    Case("weighted-by-share", weighted_by_share, change(GPT2, ignored=True),
         ((1, "output_grad", r".*"), (1, "unreduced_grad", r".*(ln_f.*|wte.weight)"), (1, "reduced_grad", r".*")),
         ("token-mean",), ""),
    Case("mean-of-ranks-means-unawares", mean_of_ranks_means_unawares, change(GPT2, ignored=True, average="token"),
         ((1, "output_grad", r".*"), (1, "unreduced_grad", r".*(ln_f.*|wte.weight)"), (1, "reduced_grad", r".*")),
         ("token-mean",), "torchtune#2172"),
    Case("ignored-targets-counted", ignored_targets_counted, change(GPT2, ignored=True),
         ((1, "output_grad", r".*"), (1, "unreduced_grad", r".*(ln_f.*|wte.weight)"), (1, "reduced_grad", r".*"), (1, "loss", "loss")),
         ("ignored-targets",), "miles#3231"),
    Case("padding-learnt", padding_learnt, change(GPT2, ignored=True), ((1, "input", "targets"), (1, "loss", "loss")),
         ("padding-learnt",), "verl#5625"),
    Case("labels-shifted-twice", shifted_twice, GPT2, ((1, "input", "targets"), (1, "loss", "loss")), ("labels-shifted",), ""),
    Case("same-data-on-two-ranks", same_data, MLP2, (1, "input", "x|targets"), ("same-data",), "", ()),
    Case("clipped-too-early", clipped_too_early, change(MLP2, micro=2, clip=0.3),
         (1, "grad", r"layers\.0\.weight"), ("clipped-too-early",), "", ()),
    Case("micro-batch-left-out", micro_batch_left_out, change(MLP2, micro=2), (1, "grad", r"layers\.0\.weight"),
         ("micro-batch-missing", "rank-missing"), "DeepSpeed#966", ()),
    Case("divide-factor-one", divide_factor_one, MLP3, (1, "reduced_grad", LAST), ("constant-factor",), "semantics 2", ()),
    Case("computed-in-bf16", computed_in_bf16, MLP2, ((1, "unit_input", r"\(root\)"), (1, "gathered_parameter", r"layers\.0\.(weight|bias)")), ("lower-precision",), "PR pytorch#160279"),
    # norm and clipping
    Case("infinity-norm-for-2-norm", infinity_norm, change(MLP2, clip=0.2), (1, "norm", "norm"), ("norm-of-another-kind",), ""),
    Case("clipped-to-more", clipped_to_more, change(MLP2, clip=0.1), (1, "clipped_grad", r"layers\.0\.weight"), ("constant-factor",), ""),
    Case("local-norm", local_norm, change(MLP2, clip=0.2), (1, "norm", "norm"), ("local-norm",), "pytorch#170862", ()),
    Case("local-norm-of-fsdp1", local_norm_of_fsdp1, change(MLP3, wrapper="fsdp1", clip=0.2), (1, "norm", "norm"), ("local-norm",),
         "pytorch#88621", ()),
    Case("norm-over-replicas", norm_over_replicas, change(HSDP, clip=0.2), (1, "norm", "norm"), ("norm-counts-replicas", "constant-factor"),
         "VeOmni#862", ()),
    Case("norm-without-root", norm_without_root, change(MLP2, clip=0.2), (1, "norm", "norm"), ("norm-not-rooted",), "", ()),
    Case("infinity-norm-root", infinity_norm_root, change(MLP2, clip=0.05, norm_type=float("inf")), (1, "norm", "norm"),
         ("norm-of-another-kind",), "torchrec#3199", ()),
    Case("norms-added", norm_of_sums, change(MLP3, clip=0.2), (1, "norm", "norm"), ("local-norm",), "pytorch#149768", ()),
    Case("scaled-up-to-the-limit", clip_coefficient_upside_down, change(MLP2, clip=5.0), (1, "clipped_grad", r"layers\.0\.weight"),
         ("clipped-though-small", "constant-factor"), "", ()),
    # optimizer
    Case("eps-inside-the-root", own_adamw("eps inside"), change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.weight"),
         ("epsilon-inside-root",), "", ()),
    Case("eps-before-bias-correction", own_adamw("eps before correction"), change(MLP2, **{**ADAM, "options": (
        ("betas", (0.9, 0.95)), ("eps", 1e-4), ("weight_decay", 0.1))}), (1, "parameter", r"layers\.0\.weight"),
         ("epsilon-before-correction",), "", ()),
    Case("no-bias-correction", own_adamw("no bias correction"), change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.weight"),
         ("bias-correction-missing",), "", ()),
    Case("decay-coupled", own_adamw("coupled"), change(MLP2, **ADAM), (1, r"parameter|state\.exp_avg", r"layers\.0\.weight"), ("weight-decay-coupled",), "", ()),
    Case("adam-for-adamw", adam_for_adamw, change(MLP2, **ADAM), (1, r"parameter|state\.exp_avg", r"layers\.0\.weight"),
         ("weight-decay-coupled",), "", ("--optimizer", "adamw", "--weight-decay", "0.1", "--beta2", "0.95")),
    Case("decay-forgotten", own_adamw("decay after"), change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.weight"), ("weight-decay-missing",), "", ()),
    Case("decay-not-on-biases", decay_not_on_biases, change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.bias"), ("weight-decay-missing",), "", ()),
    Case("betas-swapped", betas_swapped, change(MLP2, **ADAM), (1, r"parameter|state\.exp_avg(_sq)?", r"layers\.0\.weight"),
         ("betas-swapped",), "", ("--beta1", "0.9", "--beta2", "0.95")),
    Case("momentum-dampened", dampening, change(MLP2, options=(("momentum", 0.9),)),
         ((2, "parameter", r"layers\.0\.weight"), (2, r"state\.momentum_buffer", r"layers\.0\.weight")), ("dampening",), ""),
    Case("rate-off-by-one", rate_off_by_one, change(MLP2, lrs=(0.01, 0.02, 0.03)), (1, "parameter", r"layers\.0\.weight"),
         ("learning-rate", "learning-rate-of-another-step"), ""),
    Case("update-smaller", update_smaller, change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.weight"), ("learning-rate",),
         "Megatron-LM#5974", ()),
    Case("stepped-in-bf16", stepped_in_bf16, MLP2, (1, "parameter", r"layers\.0\.weight"), ("lower-precision",),
         "HF deepspeed-to-fsdp", ()),
    Case("optimizer-before-sharding", optimizer_before_sharding, change(MLP2, **ADAM), (1, "parameter", r"layers\.0\.weight"),
         ("stale-value",), "pytorch#149205", ()),
    Case("last-rows-not-updated", last_rows_not_updated, change(GPT2, world=4, batch=1), (1, "parameter", r"transformer\.wte\.weight"),
         ("slice-not-updated",), "pytorch#176076", ()),
    Case("skipped-on-one-rank", skipped_on_one_rank, change(MLP2, **{**ADAM, "options": (*ADAM["options"], ("fused", True))}),
         (2, "parameter", r"layers\.0\.weight"), ("slice-not-updated",), "fairscale#754", ()),
    Case("frozen-by-mistake", frozen_by_mistake, MLP2, ((1, "parameter", r"layers\.1\.weight"), (1, "unreduced_grad", r"layers\.1\.weight"),
         (1, "grad", r"layers\.1\.weight")), ("stale-value",), ""),
    # parameters
    Case("stale-gathered", stale_gathered, change(MLP2, reshard=False), (2, "gathered_parameter", r"layers\.0\.weight"), ("stale-value",),
         "semantics 3", ()),
    Case("weights-not-broadcast", other_seed_by_rank, change(MLP2, wrapper="ddp"), (0, "parameter", r"layers\.0\.weight"),
         ("copies-differ", "not-broadcast"), "pytorch#90465", ()),
    Case("another-seed", other_seed, MLP2, (0, "parameter", r"layers\.0\.weight"), ("initial-values",), "torchtitan#1777"),
    Case("weight-transposed", weight_transposed, MLP2, (0, "parameter", r"layers\.1\.weight"), ("transposed",), ""),
    Case("pieces-in-reverse", rows_of_ranks_swapped, MLP3, (0, "parameter", r"layers\.0\.weight"), ("rows-permuted",), "pytorch#105840"),
    Case("gathered-in-other-order", gathered_in_other_order, MLP3, (1, "gathered_parameter", REDUCED), ("rows-shifted", "rows-permuted"),
         "", ()),
    Case("tail-not-loaded", tail_not_loaded, MLP3, (0, "parameter", r"layers\.1\.weight"), ("slice-zero",), "torchtitan#1136"),
    # the model
    Case("dropout-on-one-rank", dropout_on_one_rank, GPT2, (1, "unit_input", r"transformer\.h\.0"), ("dropout",), "", ()),
    Case("dropout-left-on", dropout_left_on, GPT2, (1, "unit_input", r"transformer\.h\.0"), ("dropout",), "", ("--dropout", "0")),
    Case("causal-mask-off", causal_mask_off, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("attention-mask",), "", ()),
    Case("causal-mask-off-of-llama", causal_mask_off, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("attention-mask",), "", ()),
    Case("causal-mask-one-late", causal_mask_late, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("attention-mask",), "", ()),
    Case("attention-not-scaled", attention_not_scaled, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("attention-scale",), "", ()),
    Case("attention-scaled-by-channels", attention_scaled_by_channels, LLAMA, (1, "unit_output", r"model\.layers\.0"),
         ("attention-scale",), "", ()),
    Case("key-heads-dealt", key_heads_dealt, LLAMA4, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",), "", ()),
    Case("rotated-as-neighbours", rotated_as_neighbours, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",), "", ()),
    Case("not-rotated", not_rotated, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",), "", ()),
    Case("positions-left-out", positions_left_out, GPT2, (1, "unit_input", r"transformer\.h\.0"), ("model-configuration",), "", ()),
    Case("gelu-of-llama", gelu_of_llama, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",), "", ()),
    Case("other-gelu", other_gelu, change(MLP2, activation="gelu_tanh"), (1, "unit_input", r"layers\.1"), ("model-configuration",), "", ()),
    Case("other-gelu-of-gpt2", other_gelu_of_gpt2, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("model-configuration",), "", ()),
    Case("other-layer-norm-eps", other_layer_norm_eps, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("model-configuration",), "", ()),
    Case("configured-layer-norm-eps", configured_layer_norm_eps, GPT2, (1, "unit_output", r"transformer\.h\.0"), ("model-configuration",)),
    Case("configured-rms-norm-eps", configured_rms_norm_eps, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",)),
    Case("configured-activation", configured_activation, change(MLP2, activation="gelu_tanh"), (1, "unit_input", r"layers\.1"),
         ("model-configuration",)),
    Case("other-rope-base", other_rope_base, LLAMA, (1, "unit_output", r"model\.layers\.0"), ("model-configuration",), "", ()),
    Case("positions-off-by-one", positions_off_by_one, GPT2, (1, "unit_input", r"transformer\.h\.0"), ("model-configuration",), "", ()),
    Case("recomputed-in-bf16", recomputed_in_bf16, GPT2, (1, "unreduced_grad", r"transformer\.h\.1\..*"), ("lower-precision",), "", ()),
]

# For a look in between: one of each kind.
QUICK = ("biases-not-reduced", "sum-not-mean", "zero-grad-forgotten", "local-norm", "decay-coupled", "weight-transposed")
