"""Writes fsdp_events.json: what PyTorch's FSDP2 does, and in which order.

Called by make_golden.py.  Small models are sharded over 1, 2 and 3 gloo
processes and trained for two steps, in float32 and in float64; both steps, all
ranks and both dtypes must do the same, and the gradients must be the mean of
the unsharded ones.  See README for the layout.
"""

import copy
import json
import os
import re
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn
import transformers
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import (
    checkpoint_wrapper)


def plain_name(name):
    """The name of a module or parameter without those of its wrappers."""
    return (name or "").replace("._checkpoint_wrapped_module", "")


def fqn_of(target):
    return plain_name(getattr(target, "_module_fqn", ""))


class Recorder:
    """Writes down what PyTorch's FSDPParamGroup does, in `log`.

    `unshard` and `post_backward` are recorded as PyTorch's own test does
    (test_fully_shard_backward_prefetch): unshard when it really starts,
    post_backward when it returns, each with the group's FQN and training state.
    The rest is recorded on entry, or only where it changes something.
    """

    def __init__(self):
        from torch.distributed.fsdp._fully_shard import _fsdp_param_group
        from torch.distributed.fsdp._fully_shard import _fsdp_state

        self.log, self.group = [], []
        group = _fsdp_param_group.FSDPParamGroup
        self.patch(group, "unshard", before=lambda g: (
            g._all_gather_result is None and not g.is_unsharded
            and (g.unshard_in_backward
                 or g._training_state.name != "PRE_BACKWARD")) and "unshard")
        self.patch(group, "wait_for_unshard", before=lambda g: (
            g._all_gather_result is not None) and "wait_for_unshard")
        self.patch(group, "reshard", changed=lambda g: g._sharded_state)
        self.patch(group, "post_backward",
                   before=lambda g: "post_backward_begin",
                   after=lambda g: "post_backward")
        for name in ("pre_forward", "post_forward", "pre_backward"):
            self.patch(group, name, before=lambda g, name=name: name)
        self.patch(_fsdp_state.FSDPState, "_root_post_backward_final_callback",
                   before=lambda state: "final_callback")
        self.patch_collective("all_gather_single", "all_gather", 1)
        self.patch_collective("reduce_scatter_single", "reduce_scatter", 1)
        self.patch_collective("all_reduce", "all_reduce", 0)

    def add(self, what, target):
        if what:
            self.log.append([what, fqn_of(target),
                             target._training_state.name])

    def patch(self, cls, name, before=None, after=None, changed=None):
        original = getattr(cls, name)

        def wrapper(target, *args, **kwargs):
            was = changed and changed(target)
            if before:
                self.add(before(target), target)
            self.group.append(fqn_of(target))
            result = original(target, *args, **kwargs)
            self.group.pop()
            if after:
                self.add(after(target), target)
            if changed and changed(target) != was:
                self.add(name, target)
            return result

        setattr(cls, name, wrapper)

    def patch_collective(self, function, what, position):
        original = getattr(dist, function)

        def wrapper(*args, **kwargs):
            tensor = kwargs.get("input")
            tensor = args[position] if tensor is None else tensor
            if self.group:  # not the comparison's own
                self.log.append([what, self.group[-1], tensor.numel()])
            return original(*args, **kwargs)

        setattr(dist, function, wrapper)


class Net(nn.Module):
    """Linear layers in groups of their own; stem and head belong to the root.

    `order` lists the uses of the layers, `dropped` those whose output is
    thrown away.
    """

    def __init__(self, stem=True, head=True, order=(0, 1, 2), dropped=()):
        super().__init__()
        self.order, self.dropped = order, dropped
        plain = order == (0, 1, 2) and not dropped
        widths = (5, 7, 6, 3) if plain else (5,) * (max(order) + 2)
        self.stem = nn.Linear(4, 5) if stem else None
        self.layers = nn.ModuleList(
            nn.Linear(i, o) for i, o in zip(widths, widths[1:]))
        self.head = nn.Linear(widths[-1], 2) if head else None

    def forward(self, x):
        if self.stem is not None:
            x = torch.relu(self.stem(x))
        for i in self.order:
            y = torch.relu(self.layers[i](x))
            x = x if i in self.dropped else y
        return x if self.head is None else self.head(x)

    def batch(self, dtype):
        return torch.randn(6, 4 if self.stem is not None else 5, dtype=dtype)


class Block(nn.Module):
    """A norm of its own and two linear layers in groups of their own."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(5)
        self.up, self.down = nn.Linear(5, 6), nn.Linear(6, 5)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class BlockNet(Net):
    def __init__(self):
        super().__init__(order=(0, 1))
        self.layers = nn.ModuleList(Block() for _ in range(2))


class TinyGPT2(transformers.GPT2LMHeadModel):
    def __init__(self):
        super().__init__(transformers.GPT2Config(
            n_layer=2, n_head=2, n_embd=8, vocab_size=17, n_positions=10,
            resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
            bos_token_id=None, eos_token_id=None))
        self.layers = self.transformer.h

    def batch(self, dtype):
        return torch.randint(17, (2, 9))


def loss_of(output):
    output = output if isinstance(output, torch.Tensor) else output.logits
    return output.square().sum()


# How one training step is run.  `mark(phase)` ends a phase of the record.


def step_plain(model, x, mark):
    loss = loss_of(model(x))
    mark("forward")
    loss.backward()
    mark("backward")


def step_input_grad(model, x, mark):
    step_plain(model, x.clone().requires_grad_(), mark)


def step_gpt2(model, tokens, mark):
    output = model(tokens, labels=tokens)
    mark("forward")
    output.loss.backward()
    mark("backward")


def step_evaluate_first(model, x, mark):
    with torch.no_grad():
        model(x)
    mark("evaluation")
    step_plain(model, x, mark)


def step_two_forwards_one_backward(model, x, mark):
    first = loss_of(model(x[:3]))
    mark("forward 0")
    second = loss_of(model(x[3:]))
    mark("forward 1")
    (first + second).backward()
    mark("backward")


def step_two_forwards_two_backwards(model, x, mark):
    first = loss_of(model(x[:3]))
    mark("forward 0")
    second = loss_of(model(x[3:]))
    mark("forward 1")
    second.backward()
    mark("backward 1")
    first.backward()
    mark("backward 0")


def step_accumulate(model, x, mark, sync=True, keep=False):
    for i in range(2):
        if isinstance(model, dist.fsdp.FSDPModule):
            model.set_requires_gradient_sync(sync or i == 1)
            model.set_reshard_after_backward(not keep or i == 1)
        loss = loss_of(model(x[3 * i:3 * i + 3]))
        mark(f"forward {i}")
        loss.backward()
        mark(f"backward {i}")


def step_deferred_all_reduce(model, x, mark):
    for i in range(2):
        if isinstance(model, dist.fsdp.FSDPModule):
            model.set_requires_all_reduce(i == 1)
        loss = loss_of(model(x[3 * i:3 * i + 3]))
        mark(f"forward {i}")
        loss.backward()
        mark(f"backward {i}")


def step_unshard_by_hand(model, x, mark):
    """All layers gathered at once before the forward."""
    if isinstance(model, dist.fsdp.FSDPModule):
        handles = [layer.unshard(async_op=True) for layer in model.layers]
        mark("unshard")
        for handle in handles:
            handle.wait()
        mark("wait")
    step_plain(model, x, mark)


def step_not_last(model, x, mark):
    for i in range(2):
        if isinstance(model, dist.fsdp.FSDPModule):
            model.set_is_last_backward(i == 1)
        loss = loss_of(model(x[3 * i:3 * i + 3]))
        mark(f"forward {i}")
        loss.backward()
        mark(f"backward {i}")


def step_no_sync(model, x, mark):
    step_accumulate(model, x, mark, sync=False)


def step_no_sync_keep(model, x, mark):
    step_accumulate(model, x, mark, sync=False, keep=True)


def frozen(*patterns):
    """A Net whose parameters that match any pattern are frozen."""
    def make():
        model = Net()
        for name, p in model.named_parameters():
            p.requires_grad_(not any(re.match(q, name) for q in patterns))
        return model
    return make


CHECKPOINT_INSIDE = "each checkpointed layer, then the root"
CHECKPOINT_AROUND = "each layer, checkpointed afterwards, then the root"
BLOCKS = "each block's linear layers, then the blocks, then the root"
CHECKPOINT_BLOCKS = ("each block's linear layers, then the checkpointed blocks,"
                     " then the root")
POLICIES = {"auto": None, "false": False, "true": True, "2": 2}


# Settings of a sharded model, made before its first forward.


def prefetch_next(count, backward):
    """Each layer lists the `count` layers that are needed after it."""
    def setup(model):
        layers = list(model.layers)
        if backward:
            layers.reverse()
        for i, layer in enumerate(layers):
            ahead = layers[i + 1:i + 1 + count]
            if backward:
                layer.set_modules_to_backward_prefetch(ahead)
            else:
                layer.set_modules_to_forward_prefetch(ahead)
    return setup


def prefetch_wrong(model):
    """Each layer lists one that has run already."""
    for i, layer in enumerate(model.layers):
        if i > 0:
            layer.set_modules_to_forward_prefetch([model.layers[i - 1]])
        if i + 1 < len(model.layers):
            layer.set_modules_to_backward_prefetch([model.layers[i + 1]])


def prefetch_from_root(model):
    model.set_modules_to_forward_prefetch(list(model.layers)[:2])
    model.set_modules_to_backward_prefetch(list(model.layers)[:0:-1])


def no_unshard_in_backward(model):
    model.layers[0].set_unshard_in_backward(False)


def scenarios(world_size):
    """(name, model maker, how to shard, reshard_after_forward, step, what to
    set)."""
    each = "each layer, then the root"
    if world_size == 1:
        return [("one_rank", Net, each, "auto", step_plain, None)]
    if world_size == 3:
        return [("three_ranks", Net, each, "auto", step_plain, None)]
    if world_size == 4:
        return [(name, Net, each, policy, step, None)
                for name, policy, step in (
                    ("groups_of_two", "2", step_plain),
                    ("hsdp_auto", "auto", step_plain),
                    ("hsdp_false", "false", step_plain),
                    ("hsdp_accumulate_no_sync", "auto", step_no_sync),
                    ("hsdp_accumulate_deferred", "auto",
                     step_deferred_all_reduce))]
    found = []
    for policy in POLICIES:
        for name, stem, head in (("mlp", False, False),
                                 ("head", False, True),
                                 ("stem_head", True, True)):
            make = lambda stem=stem, head=head: Net(stem, head)  # noqa: E731
            found.append((f"{name}_{policy}", make, each, policy, step_plain))
    for policy in ("auto", "false"):
        for uses in ((0, 1, 0), (0, 0), (0, 1, 0, 1)):
            label = "uses_" + "".join(map(str, uses))
            make = lambda uses=uses: Net(order=uses)  # noqa: E731
            found.append((f"{label}_{policy}", make, each, policy, step_plain))
    bare = lambda: Net(False, False)  # noqa: E731
    unused = lambda: Net(order=(0, 2))  # noqa: E731
    dropped = lambda: Net(order=(0, 1, 2), dropped=(1,))  # noqa: E731
    for name, make, shard, step in (
            ("gpt2", TinyGPT2, each, step_gpt2),
            ("root_only", Net, "the root", step_plain),
            ("list_group", Net, "[layer 0, layer 1], layer 2, then the root",
             step_plain),
            ("input_requires_grad", Net, each, step_input_grad),
            ("unused_module", unused, each, step_plain),
            ("unused_output", dropped, each, step_plain),
            ("frozen_layer", frozen(r"layers\.1\."), each, step_plain),
            ("frozen_bias", frozen(r"layers\.1\.bias"), each, step_plain),
            ("frozen_front", frozen(r"stem\.", r"layers\.0\."), each,
             step_plain),
            ("evaluate_first", Net, each, step_evaluate_first),
            ("evaluate_first_no_root", bare, each, step_evaluate_first),
            ("two_forwards_one_backward", Net, each,
             step_two_forwards_one_backward),
            ("two_forwards_two_backwards", Net, each,
             step_two_forwards_two_backwards),
            ("accumulate_sync", Net, each, step_accumulate),
            ("accumulate_no_sync", Net, each, step_no_sync),
            ("accumulate_no_sync_keep", Net, each, step_no_sync_keep)):
        found.append((name, make, shard, "auto", step))
    for policy in ("auto", "false"):
        for name, make, shard in (
                ("checkpoint_inside", Net, CHECKPOINT_INSIDE),
                ("checkpoint_around", Net, CHECKPOINT_AROUND),
                ("blocks", BlockNet, BLOCKS),
                ("checkpoint_blocks", BlockNet, CHECKPOINT_BLOCKS)):
            found.append((f"{name}_{policy}", make, shard, policy, step_plain))
    some = lambda: Net(order=(0, 2))  # noqa: E731
    pairs = "[layer 0, layer 1], layer 2, then the root"
    for policy in ("auto", "false"):
        found += [(f"{name}_{policy}", make, shard, policy, step, setup)
                  for name, make, shard, step, setup in (
            ("forward_prefetch_1", Net, each, step_plain,
             prefetch_next(1, False)),
            ("forward_prefetch_2", Net, each, step_plain,
             prefetch_next(2, False)),
            ("backward_prefetch_1", Net, each, step_plain,
             prefetch_next(1, True)),
            ("backward_prefetch_2", Net, each, step_plain,
             prefetch_next(2, True)),
            ("prefetch_wrong", Net, each, step_plain, prefetch_wrong),
            ("prefetch_from_root", Net, each, step_plain,
             prefetch_from_root),
            ("list_some_run", some, pairs, step_plain, None),
            ("unshard_by_hand", Net, each, step_unshard_by_hand, None),
            ("not_last_backward", Net, each, step_not_last, None))]
    head = lambda: Net(False, True)  # noqa: E731
    found.append(("no_unshard_in_backward", head, each, "auto", step_plain,
                  no_unshard_in_backward))
    found.append(("backward_prefetch_checkpoint", Net, CHECKPOINT_INSIDE,
                  "auto", step_plain, prefetch_next(1, True)))
    return [s if len(s) == 6 else (*s, None) for s in found]


def shard_model(model, how, mesh, policy):
    from torch.distributed.fsdp import fully_shard

    units = list(model.layers) if how != "the root" else []
    if how.startswith("["):
        units = [units[:2], units[2]]
    if how == CHECKPOINT_INSIDE:
        model.layers = nn.ModuleList(checkpoint_wrapper(u) for u in units)
        units = list(model.layers)
    if how in (BLOCKS, CHECKPOINT_BLOCKS):
        parts = [part for block in units for part in (block.up, block.down)]
        if how == CHECKPOINT_BLOCKS:
            model.layers = nn.ModuleList(checkpoint_wrapper(u) for u in units)
        units = parts + list(model.layers)
    for unit in units + [model]:
        fully_shard(unit, mesh=mesh, reshard_after_forward=POLICIES[policy])
    if how == CHECKPOINT_AROUND:
        model.layers = nn.ModuleList(checkpoint_wrapper(u) for u in units)


def assert_same_gradients(name, model, ref, world_size):
    """FSDP's gradients are the mean over ranks of the unsharded ones."""
    none = []
    for (key, p), q in zip(model.named_parameters(), ref.parameters()):
        assert (p.grad is None) == (q.grad is None), (name, key)
        if q.grad is None:
            none.append(key)
            continue
        dist.all_reduce(q.grad)
        q.grad /= world_size
        off = (p.grad.full_tensor() - q.grad).abs().max()
        bound = 4 * torch.finfo(p.dtype).eps * q.grad.abs().max()
        assert off <= bound, (name, key, off, bound)
    return none


def param_groups(model):
    from torch.distributed.fsdp._fully_shard._fsdp_state import (
        _get_module_fsdp_state)

    groups = []
    for module in model.modules():
        state = _get_module_fsdp_state(module)
        for g in state._fsdp_param_groups if state else []:
            if g not in groups:
                groups.append(g)
    return [{"fqn": fqn_of(g), "params": [
        {"name": plain_name(p._param_fqn), "shape": list(p._orig_size)}
        for p in g.fsdp_params]} for g in groups]


def phase_record(name, log):
    def numels(what):
        return [entry[2] for entry in log if entry[0] == what]

    return {"phase": name,
            "events": [e for e in log if e[0] in ("unshard", "post_backward")],
            "all_gather_numels": numels("all_gather"),
            "reduce_scatter_numels": numels("reduce_scatter"),
            "trace": log}


def run_scenario(scenario, recorder, mesh, rank, dtype):
    name, make, how, policy, step, setup = scenario
    world_size = mesh.size()
    if world_size == 4 and not name.startswith("hsdp"):
        mesh = dist.device_mesh.init_device_mesh("cpu", (4,))
    torch.manual_seed(0)
    model = make().to(dtype)
    ref = copy.deepcopy(model)
    shard_model(model, how, mesh, policy)
    if setup:
        setup(model)
    seen = []
    if name.startswith("unshard_by_hand"):  # names are known from then on
        step_plain(model, model.batch(dtype), lambda phase: None)
    for i in range(2):
        torch.manual_seed(100 * i + rank)
        x, phases = model.batch(dtype), []
        model.zero_grad()
        ref.zero_grad()
        recorder.log = []

        def mark(phase):
            phases.append(phase_record(phase, recorder.log))
            recorder.log = []

        step(model, x, mark)
        seen.append(phases)
        step(ref, x, lambda phase: None)
        none = assert_same_gradients(name, model, ref, world_size)
    assert seen[0] == seen[1], f"{name}: the second step differs"
    return {"name": name, "world_size": world_size, "sharded": how,
            "reshard_after_forward": policy, "groups": param_groups(model),
            "grads_none": none, "phases": seen[0]}


def event_worker(rank, world_size, folder):
    from torch.distributed.device_mesh import init_device_mesh

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous{world_size}",
        rank=rank, world_size=world_size)
    mesh = init_device_mesh("cpu", (world_size,))
    if world_size == 4:
        mesh = init_device_mesh("cpu", (2, 2),
                                mesh_dim_names=("replicate", "shard"))
    recorder, found = Recorder(), []
    for scenario in scenarios(world_size):
        results = [run_scenario(scenario, recorder, mesh, rank, dtype)
                   for dtype in (torch.float32, torch.float64)]
        assert results[0] == results[1], f"{scenario[0]}: float64 differs"
        everyone = [None] * world_size
        dist.all_gather_object(everyone, results[0])
        assert all(one == everyone[0] for one in everyone), scenario[0]
        found.append(results[0])
    if rank == 0:
        with open(f"{folder}/{world_size}.json", "w") as file:
            json.dump(found, file)
    dist.barrier()
    os._exit(0)  # gloo's threads sometimes abort Python's orderly exit


def shard_table():
    """Local and padded shapes that FSDP2 makes, each rank in turn."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore

    shapes, table = [(1,), (3, 2), (4,), (5, 3), (6, 2), (8,), (17, 2)], []
    for world_size in (1, 2, 3, 4, 5, 8):
        rows = [{"shape": list(shape), "world_size": world_size, "local": []}
                for shape in shapes]
        for rank in range(world_size):
            dist.init_process_group("fake", store=FakeStore(), rank=rank,
                                    world_size=world_size)
            model = nn.Module()
            model.params = nn.ParameterList(torch.zeros(s) for s in shapes)
            fully_shard(model, mesh=init_device_mesh("cpu", (world_size,)))
            group = fully_shard.state(model)._fsdp_param_groups[0]
            for row, p in zip(rows, group.fsdp_params):
                row["local"].append(list(p.sharded_param.to_local().shape))
                row["padded"] = list(p.padded_sharded_param_size)
            dist.destroy_process_group()
        table += rows
    return table


def pretty(value, indent=0):
    """JSON with everything on one line that fits on one."""
    flat = json.dumps(value)
    if indent + len(flat) <= 98 or not isinstance(value, (dict, list)):
        return flat
    inner = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        items = [json.dumps(k) + ": " + pretty(v, indent + 1)
                 for k, v in value.items()]
        return "{" + inner + ("," + inner).join(items) + "}"
    items = [pretty(v, indent + 1) for v in value]
    return "[" + inner + ("," + inner).join(items) + "]"


def make_fsdp_events(folder, versions):
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for world_size in (2, 1, 3, 4):
            torch.multiprocessing.spawn(event_worker, (world_size, scratch),
                                        nprocs=world_size)
            with open(f"{scratch}/{world_size}.json") as file:
                found += json.load(file)
    record = {"versions": versions, "shards": shard_table(),
              "scenarios": found}
    with open(f"{folder}/fsdp_events.json", "w") as file:
        file.write(pretty(record) + "\n")
