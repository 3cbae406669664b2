"""The training script into which faults are put: small, plain, and right as it stands.

A fault (faults.py) replaces one of the methods below or a function of PyTorch, as
somebody's own script, wrapper or kernel would be wrong.  What it trains is a Setup; the
data of a step are rows of one global batch, whoever works on them.
"""

import contextlib
import dataclasses
import os
import sys

import torch
import torch.distributed as dist
from torch import nn

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "python"))
import fsdp_trace  # noqa: E402

IGNORED = -100


@dataclasses.dataclass(frozen=True)
class Setup:
    model: str = "mlp"            # mlp, gpt2, llama, llama4
    wrapper: str = "fsdp2"        # fsdp2, hsdp (2 x W/2), fsdp1, ddp, hand (reduces by itself), none
    world: int = 2
    steps: int = 3
    batch: int = 3                # rows of a micro-batch
    micro: int = 1                # micro-batches of a rank and step
    sync: str = "each"            # or "last"
    optimizer: str = "sgd"        # or "adamw"
    options: tuple = ()           # of the optimizer, as pairs
    lrs: tuple = (0.05, 0.05, 0.05)
    clip: float = 0.0
    norm_type: float = 2.0
    param_dtype: torch.dtype = None
    reduce_dtype: torch.dtype = None
    dtype: torch.dtype = torch.float32
    activation: str = "relu"      # of the MLP
    ignored: bool = False         # some targets count nothing, not as many on each rank
    average: str = "rank"         # or "token"
    reshard: object = None        # reshard_after_forward


class MLP(nn.Module):
    WIDTHS = (12, 17, 17, 5)

    def __init__(self, activation):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(self.WIDTHS, self.WIDTHS[1:]))
        self.activation = {"relu": nn.ReLU(), "gelu": nn.GELU(), "gelu_tanh": nn.GELU("tanh")}[activation]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def gpt2_config():
    from transformers import GPT2Config
    return GPT2Config(n_layer=2, n_head=2, n_embd=16, vocab_size=37, n_positions=16, resid_pdrop=0.0,
                      embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False)


def llama_config(heads, key_heads):
    from transformers import LlamaConfig
    return LlamaConfig(num_hidden_layers=2, num_attention_heads=heads, num_key_value_heads=key_heads, hidden_size=16,
                       intermediate_size=24, vocab_size=37, max_position_embeddings=16, use_cache=False,
                       bos_token_id=0, eos_token_id=0)


class Script:
    VOCABULARY, CONTEXT = 37, 9

    def __init__(self, setup, directory):
        self.s, self.directory = setup, directory
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        self.seed = 7
        self.average = setup.average  # what it tells the recorder

    # -- model --

    def config(self):
        if self.s.model == "gpt2":
            return gpt2_config()
        return llama_config(4, 2) if self.s.model == "llama4" else llama_config(2, 1)

    def make_model(self):
        torch.manual_seed(self.seed)
        if self.s.model == "mlp":
            return MLP(self.s.activation).to(self.s.dtype)
        from transformers import GPT2LMHeadModel, LlamaForCausalLM
        kind = GPT2LMHeadModel if self.s.model == "gpt2" else LlamaForCausalLM
        model = kind(self.config())
        with torch.no_grad():  # at once far from symmetric, so that everything matters
            for p in model.parameters():
                p.add_(0.1 * torch.randn(p.shape))
        return model.to(self.s.dtype)

    def units(self, model):
        if self.s.model == "mlp":
            return model.layers
        return model.transformer.h if self.s.model == "gpt2" else model.model.layers

    def wrap(self, model):
        return getattr(self, "wrap_" + self.s.wrapper)(model)

    def shard(self, model, mesh):
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
        policy = MixedPrecisionPolicy(param_dtype=self.s.param_dtype, reduce_dtype=self.s.reduce_dtype)
        for unit in self.units(model):
            fully_shard(unit, mesh=mesh, mp_policy=policy, reshard_after_forward=self.s.reshard)
        return fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=self.s.reshard)

    def wrap_fsdp2(self, model):
        return self.shard(model, dist.init_device_mesh("cpu", (self.world,)))

    def wrap_hsdp(self, model):
        names = ("replicate", "shard")
        return self.shard(model, dist.init_device_mesh("cpu", (2, self.world // 2), mesh_dim_names=names))

    def wrap_fsdp1(self, model):
        from torch.distributed.fsdp import FullyShardedDataParallel
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy
        return FullyShardedDataParallel(model, device_id=torch.device("cpu"), use_orig_params=True,
                                        auto_wrap_policy=ModuleWrapPolicy({type(self.units(model)[0])}))

    def wrap_ddp(self, model):
        return nn.parallel.DistributedDataParallel(model)

    def wrap_hand(self, model):
        return model

    def wrap_none(self, model):
        return model

    # -- optimizer --

    def parameters(self):
        return self.model.parameters()

    def make_optimizer(self, parameters):
        kind = torch.optim.SGD if self.s.optimizer == "sgd" else torch.optim.AdamW
        return kind(parameters, lr=self.s.lrs[0], **dict(self.s.options))

    # -- data: rows of the step's global batch --

    def rows(self, step):
        g = torch.Generator().manual_seed(1000 + step)
        count = self.s.batch * self.s.micro * self.world
        if self.s.model == "mlp":
            x = torch.randn(count, MLP.WIDTHS[0], generator=g).to(self.s.dtype)
            y = torch.randint(MLP.WIDTHS[-1], (count,), generator=g)
        else:
            tokens = torch.randint(self.VOCABULARY, (count, self.CONTEXT + 1), generator=g)
            x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].clone()
        if self.s.ignored:
            for row in range(count):
                y.reshape(count, -1)[row, : row % 5] = IGNORED
        return x, y

    def number(self, j):
        """Of this rank's j-th micro-batch among all of the step."""
        return j * self.world + self.rank if self.s.sync == "each" else self.rank * self.s.micro + j

    def batch(self, step, j):
        x, y = self.rows(step)
        begin = self.number(j) * self.s.batch
        return x[begin:begin + self.s.batch], y[begin:begin + self.s.batch]

    # -- a step --

    def loss_of(self, logits, y):
        return nn.functional.cross_entropy(logits.reshape(y.numel(), -1), y.reshape(-1), ignore_index=IGNORED)

    def forward(self, x, y):
        out = self.model(x)
        return self.loss_of(out if isinstance(out, torch.Tensor) else out.logits, y)

    def weight(self, step, j, y):
        """What the mean loss of a micro-batch is multiplied with."""
        if self.s.average == "rank":
            return 1 / self.s.micro
        counted = (y != IGNORED).sum()
        total = (self.rows(step)[1] != IGNORED).sum()
        return counted * self.world / total

    def backward(self, loss):
        loss.backward()

    def syncs(self, j):
        return self.s.sync == "each" or j == self.s.micro - 1

    def syncing(self, j):
        """Sets or enters what decides whether this micro-batch's backward reduces."""
        if self.s.wrapper in ("fsdp2", "hsdp"):
            self.model.set_requires_gradient_sync(self.syncs(j))
        elif self.s.wrapper in ("fsdp1", "ddp") and not self.syncs(j):
            return self.model.no_sync()
        return contextlib.nullcontext()

    def micro_batch(self, step, j):
        x, y = self.batch(step, j)
        with self.syncing(j):
            loss = self.forward(x, y)
            weight = self.weight(step, j, y)
            self.backward(loss * weight if isinstance(weight, torch.Tensor) or weight != 1 else loss)

    def reduce(self, step):
        """By hand, where no wrapper does it."""
        if self.s.wrapper == "hand":
            for name, p in self.model.named_parameters():
                self.reduce_one(name, p)

    def reduce_one(self, name, p):
        dist.all_reduce(p.grad)
        p.grad /= self.world

    def clip(self, step):
        if self.s.clip == 0:
            return
        if self.s.wrapper == "fsdp1":
            self.model.clip_grad_norm_(self.s.clip, self.s.norm_type)
        else:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.s.clip, self.s.norm_type)

    def rate(self, step):
        return self.s.lrs[step - 1]

    def update(self, step):
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()

    def zero_grad(self, step):
        self.optimizer.zero_grad()

    def one_step(self, step):
        self.zero_grad(step)
        for j in range(self.s.micro):
            self.micro_batch(step, j)
        self.reduce(step)
        self.clip(step)
        self.update(step)

    def prepare(self):
        self.model = self.wrap(self.make_model())
        self.optimizer = self.make_optimizer(self.parameters())

    def record(self):
        """The three added lines, as it were."""
        mlp = {"widths": list(MLP.WIDTHS), "activation": self.s.activation} if self.s.model == "mlp" else None
        self.rec = fsdp_trace.record(self.model, self.optimizer, self.directory, mlp=mlp, average=self.average,
                                     gradient_sync=self.s.sync)

    def run(self):
        self.prepare()
        self.record()
        for step in range(1, self.s.steps + 1):
            self.one_step(step)
        self.rec.close()
