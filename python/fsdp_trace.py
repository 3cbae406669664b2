"""Records a few training steps of a PyTorch model as a libfsdp trace.

    import fsdp_trace
    rec = fsdp_trace.record(model, optimizer, "theirs")   # after fully_shard(), DDP(), ...
    ...                                                   # train as ever
    rec.close()

The folder then holds, per step and rank, what python/trace_format.md says: inputs,
initial parameters, what each unit (each sharded module) received and returned, the
gathered parameters, gradients before and after reduction, the norm, updated parameters,
optimizer state and the collectives.  `fsdp train --replay theirs --record ours` runs
the same steps with libfsdp, `fsdp compare ours theirs` gives the verdict.

Works with FSDP2 (fully_shard), FSDP1, DDP and no wrapper, in one process or several
(each rank calls it and writes files of its own).  It looks on: the arithmetic of the
script stays as it is, and it may be wrong.  Needs PyTorch 2.13 and NumPy alone.
"""

import inspect
import json
import math
import os
import sys

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

FORMAT, VERSION = "libfsdp-trace", 1
WRAPPERS = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
ROOT = "(root)"
TYPES = {torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
         torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.uint8: "U8", torch.bool: "BOOL"}


COLLECTIVES = {"all_gather_single": "all_gather", "all_gather_into_tensor": "all_gather", "all_gather": "all_gather",
               "reduce_scatter_single": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter",
               "reduce_scatter": "reduce_scatter", "all_reduce": "all_reduce", "broadcast": "broadcast",
               "all_to_all_single": "all_to_all"}


def record(model, optimizer, directory, *, steps=10, first=1, now=1, units=None, mlp=None, average="rank",
           gradient_sync=None, groups=False):
    """Begins to record; see the top of this file.

    steps          how many are recorded; after that the hooks are gone
    first          the number of the first of them; what is before it just passes
    now            the number of the step that comes next, where a run is resumed
    units          names of modules that count as units, where nothing is wrapped (the
                   default: the members of the longest ModuleList or Sequential)
    mlp            {"widths": [64, 32, 10], "activation": "relu"|"gelu"|"gelu_tanh"} for a
                   multi-layer perceptron that is not an nn.Sequential
    average        "token" if the loss is the mean over all ranks' targets
    gradient_sync  "each", "last", "last-all-reduce": if guessing it would be wrong
    groups         True if the optimizer's groups have weight decays or rates of their own
                   on purpose; else all parameters are held to those of the first
    """
    return Recorder(model, optimizer, directory, (first, first + steps), now, units, mlp, average, gradient_sync,
                    groups)


# ---- safetensors ---------------------------------------------------------------------


def write_safetensors(path, tensors):
    """tensors: {key: CPU tensor}, contiguous; written under another name, then renamed."""
    header, offset = {}, 0
    for key, t in tensors.items():
        size = t.numel() * t.element_size()
        header[key] = {"dtype": TYPES[t.dtype], "shape": list(t.shape), "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path + ".tmp", "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(bytes_of(t))
    os.replace(path + ".tmp", path)


def bytes_of(t):
    if t.dtype == torch.bfloat16:  # NumPy has no such type
        t = t.view(torch.int16)
    return np.ascontiguousarray(t.numpy()).tobytes()


def write_json(path, value):
    with open(path + ".tmp", "w") as f:
        json.dump(value, f, indent=1, default=str, allow_nan=False)
        f.write("\n")
    os.replace(path + ".tmp", path)


def finite(value):
    """JSON has no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {str(k): finite(v) for k, v in value.items()}
    return [finite(v) for v in value] if isinstance(value, (list, tuple, set)) else value


# ---- what a rank keeps of a parameter ------------------------------------------------


class Kept:
    """One parameter as one rank keeps it.  `runs` tells where the kept elements belong in
    the row-major whole ([begin, count, stride, repeat]); None: all of it is here."""

    def __init__(self, name, unit, shape, dtype, runs, param, grad, state, group):
        self.name, self.unit, self.shape, self.dtype, self.runs = name, unit, list(shape), dtype, runs
        self.param, self.grad, self.state = param, grad, state  # functions: now
        self.group = group  # the optimizer's, None: it does not know the parameter


def box_runs(shape, local, offset):
    """The runs of a box that is cut along one dimension at most."""
    cut = [d for d in range(len(shape)) if local[d] != shape[d]]
    if len(cut) > 1:
        raise NotImplementedError(f"a shard that is cut along {len(cut)} dimensions cannot be recorded yet")
    if not cut:
        return None
    d = cut[0]
    inner = math.prod(shape[d + 1:])
    count = local[d] * inner
    return [[offset[d] * inner, count, shape[d] * inner, math.prod(shape[:d])]] if count else []


def local_of(t):
    return None if t is None else t._local_tensor if hasattr(t, "_local_tensor") else t


def kept_of_tensor(name, unit, p, optimizer):
    """FSDP2's DTensor, or a plain parameter."""
    runs = None
    if hasattr(p, "_local_tensor"):
        from torch.distributed.tensor import Shard
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        if any(p_.is_shard() and type(p_) is not Shard for p_ in p.placements):
            raise NotImplementedError(f"{name}: strided shards (tensor parallelism) cannot be recorded yet")
        shape, offset = compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
        runs = box_runs(tuple(p.shape), tuple(shape), tuple(offset))
    return Kept(name, unit, p.shape, p.dtype, runs, lambda: local_of(p), lambda: local_of(p.grad),
                lambda key: local_of(optimizer.state.get(p, {}).get(key)), group_of(p, optimizer))


def group_of(p, optimizer):
    return next((g for g in optimizer.param_groups if any(p is q for q in g["params"])), None)


def kept_of_flat(handle, unit, prefix, optimizer):
    """FSDP1: the original parameters within this rank's range of a flat one."""
    flat = handle.flat_param
    whole = not handle.uses_sharded_strategy
    offset = 0
    for i, (fqn, shape) in enumerate(zip(flat._fqns, flat._shapes)):
        numel, info = shape.numel(), flat._shard_param_infos[i]
        begin = offset_in_flat(flat, i) if whole else info.offset_in_shard
        count = numel if whole else info.numel_in_shard
        runs = None if whole else [[info.intra_param_start_idx, count, numel, 1]] if info.in_shard else []
        if not runs and not whole:
            begin, count = 0, 0
        yield Kept(prefix + fqn, unit, shape, flat.dtype, runs, *flat_functions(flat, i, begin, count, optimizer))
        offset += numel


def offset_in_flat(flat, i):
    """Where parameter i begins; alignment padding counts."""
    begin, seen = 0, -1
    for numel, padding in zip(flat._numels_with_padding, flat._is_padding_mask):
        seen += not padding
        if seen == i and not padding:
            return begin
        begin += numel
    raise IndexError(i)


def flat_functions(flat, i, begin, count, optimizer):
    original = flat._params[i] if flat._params is not None else None

    def part(t):
        return None if t is None else t.reshape(-1)[begin:begin + count]

    def param():
        return part(flat._local_shard if getattr(flat, "_local_shard", None) is not None else flat.data)

    def grad():
        if original is not None:
            return None if original.grad is None else original.grad.reshape(-1)
        saved = getattr(flat, "_saved_grad_shard", None)
        return part(flat.grad if flat.grad is not None else saved)

    def state(key):
        if original is not None:
            return optimizer.state.get(original, {}).get(key)
        value = optimizer.state.get(flat, {}).get(key)
        return value if key == "step" or value is None else part(value)

    return param, grad, state, group_of(original if original is not None else flat, optimizer)


# ---- looking at models ---------------------------------------------------------------


def canonical(name):
    return ".".join(p for p in name.split(".") if p not in WRAPPERS) if name else ""


def first_floating(value):
    """The first floating-point tensor in arguments or outputs."""
    if isinstance(value, torch.Tensor):
        return value if value.is_floating_point() else None
    members = value.values() if isinstance(value, dict) else value if isinstance(value, (list, tuple)) else ()
    return next((t for t in map(first_floating, members) if t is not None), None)


def replace_first(value, old, new):
    if value is old:
        return new
    if isinstance(value, dict):
        return {k: replace_first(v, old, new) for k, v in value.items()}
    return tuple(replace_first(v, old, new) for v in value) if isinstance(value, tuple) else value


def describe_model(model, mlp):
    """{"type", "config"}: Hugging Face's fields, or an MLP's widths."""
    inner = model
    while not hasattr(inner, "config") and hasattr(inner, "module"):
        inner = inner.module
    config = getattr(inner, "config", None)
    if hasattr(config, "to_dict"):
        fields = json.loads(json.dumps(finite(config.to_dict()), default=str))
        return {"type": fields.get("model_type"), "config": fields}
    if mlp is not None:
        return {"type": "mlp", "config": mlp}
    linears = [m for m in inner.modules() if isinstance(m, nn.Linear)]
    acts = {nn.ReLU: "relu", nn.GELU: "gelu"}
    used = {"gelu_tanh" if getattr(m, "approximate", "none") == "tanh" else acts[type(m)]
            for m in inner.modules() if type(m) in acts}
    if isinstance(inner, nn.Sequential) and linears and len(used) <= 1:
        widths = [linears[0].in_features] + [m.out_features for m in linears]
        return {"type": "mlp", "config": {"widths": widths, "activation": next(iter(used), "relu")}}
    return {"type": None, "config": {}}


def describe_optimizer(optimizer):
    g = optimizer.param_groups[0]
    name = type(optimizer).__name__.lower()
    keys = {"sgd": ("momentum", "dampening", "nesterov", "weight_decay"), "adamw": ("betas", "eps", "weight_decay"),
            "adam": ("betas", "eps", "weight_decay")}.get(name, ())
    return {"name": name, **{k: g[k] for k in keys}}


def type_name(dtype):
    return None if dtype is None else str(dtype).replace("torch.", "")


def guessed_units(model):
    lists = [(n, m) for n, m in model.named_modules() if isinstance(m, (nn.ModuleList, nn.Sequential))]
    if not lists:
        return []
    name, best = max(lists, key=lambda nm: len(nm[1]))
    return [(name + "." if name else "") + child for child, m in best.named_children() if any(True for _ in m.parameters())]


# ---- the recorder --------------------------------------------------------------------


class Recorder:
    def __init__(self, model, optimizer, directory, window, now, units, mlp, average, gradient_sync, groups):
        self.model, self.optimizer, self.directory = model, optimizer, directory
        self.window, self.average, self.sync_asked = window, average, gradient_sync
        self.on = dist.is_available() and dist.is_initialized()
        self.rank, self.world = (dist.get_rank(), dist.get_world_size()) if self.on else (0, 1)
        self.step, self.written, self.undo = now, [], []
        self.began, self.in_backward, self.closed, self.communicating = False, False, False, None
        self.clip = self.norm_type = self.loss_kind = self.ignore_index = None
        self.scales, self.losses_seen, self.scales_of_step = set(), [], []
        self.groups = groups
        self.parameter_names = [n for n, _ in model.named_parameters()]
        self.all_reduce = dist.all_reduce if self.on else None  # ours is not recorded
        self.about = {"model": describe_model(model, mlp), "optimizer": describe_optimizer(optimizer)}
        os.makedirs(directory, exist_ok=True)
        if os.path.exists(os.path.join(directory, "trace.json")) and self.rank == 0:
            os.remove(os.path.join(directory, "trace.json"))
        self.look_at_wrappers(units)
        self.new_step()
        self.patch()

    # -- what is there: FSDP2, FSDP1, DDP, none --

    def look_at_wrappers(self, units):
        from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
        from torch.nn.parallel import DistributedDataParallel
        modules = dict(self.model.named_modules())
        fsdp2 = {n: m for n, m in modules.items() if isinstance(m, FSDPModule)}
        fsdp1 = {n: m for n, m in modules.items() if isinstance(m, FullyShardedDataParallel)}
        ddp = isinstance(self.model, DistributedDataParallel)
        self.api = "fsdp2" if fsdp2 else "fsdp1" if fsdp1 else "ddp" if ddp else "none"
        self.wrapped = fsdp2 or fsdp1
        if units is not None:
            chosen = list(units)
        else:
            chosen = list(self.wrapped) if self.wrapped else guessed_units(self.model)
        by_name = {canonical(n): m for n, m in modules.items() if n != ""}
        self.units = {}
        for n in chosen:
            name = canonical(n)
            if name:
                self.units[name] = modules[n] if n in modules else by_name[name]
        self.units[ROOT] = self.model
        self.forward_order = []
        self.by_hand = self.api == "none" and self.world > 1  # the script itself reduces, after backward()
        self.mesh, self.dp_rank = self.look_at_mesh()
        # Before the wrapper casts inputs and gathers.
        first = self.model.register_forward_pre_hook(lambda m, a, k: self.begin_micro_batch(a, k), prepend=True, with_kwargs=True)
        self.undo.append(first.remove)
        for name, module in self.units.items():
            self.hook(module, name)

    def look_at_mesh(self):
        mesh, rank = {"replicate": self.world, "shard": 1}, self.rank
        if self.api == "fsdp2":
            info = self.first_group().mesh_info
            sizes = tuple(info.mesh.shape)
            mesh = {"replicate": 1, "shard": sizes[0]} if len(sizes) == 1 else {"replicate": sizes[0], "shard": sizes[1]}
            if len(sizes) == 1 and not hasattr(info, "shard_mesh_size"):
                mesh = {"replicate": sizes[0], "shard": 1}
            where = info.mesh.get_coordinate()
            rank = where[0] if len(sizes) == 1 else where[0] * sizes[1] + where[1]
        elif self.api == "fsdp1":
            root = next(iter(self.wrapped.values()))
            shards = 1 if root.sharding_strategy.name == "NO_SHARD" else root.process_group.size()
            mesh = {"replicate": self.world // shards, "shard": shards}
        return {**mesh, "tensor": 1}, rank

    def first_group(self):
        return next(group for module in self.wrapped.values() for group in groups_of(module))

    def unit_of(self, name):
        """The innermost unit whose module the parameter is in."""
        inside = [u for u in self.units if u != ROOT and (name + ".").startswith(u + ".")]
        return max(inside, key=len, default=ROOT)

    def kept(self):
        if self.api == "fsdp1":
            for n, module in self.wrapped.items():
                if module._handle is not None:
                    prefix = canonical(n) + "." if canonical(n) else ""
                    yield from kept_of_flat(module._handle, canonical(n) or ROOT, prefix, self.optimizer)
            return
        # The shards, also while the whole stands in its place.
        now = self.sharded_params() if self.api == "fsdp2" else dict(self.model.named_parameters())
        for n in self.parameter_names:
            if n in now:
                yield kept_of_tensor(canonical(n), self.unit_of(canonical(n)), now[n], self.optimizer)

    def sharded_params(self):
        params = dict(self.model.named_parameters())
        names = {id(module): name + "." if name else "" for name, module in self.model.named_modules()}
        for module in self.wrapped.values():
            for group in groups_of(module):
                for p in group.fsdp_params:
                    info = p._module_info
                    params[names[id(info.module)] + info.param_name] = p.sharded_param
        return params

    # -- one step's tensors --

    def new_step(self):
        self.micro, self.tensors, self.pieces, self.ledger = -1, {}, {}, []
        self.calls, self.reduced_in, self.targets_seen = {}, set(), []
        self.only_scattered = False  # all-reduces put off

    def active(self):
        return not self.closed and self.window[0] <= self.step < self.window[1]

    def add(self, phase, name, tensor, per_micro=True, kept=None):
        """Keeps a copy under (phase, which of this rank's micro-batches, name)."""
        if tensor is None or not self.active():
            return
        if tensor.device.type != "cpu":
            torch.accelerator.synchronize()  # it may come from another stream
        key = (phase, self.micro if per_micro else None, name)
        self.tensors[key] = tensor.detach().to("cpu", copy=True).contiguous()
        if kept is not None and kept.runs is not None:
            self.tensors[key] = self.tensors[key].reshape(-1)
            self.pieces[key] = {"shape": kept.shape, "runs": kept.runs}
        elif kept is not None:
            self.tensors[key] = self.tensors[key].reshape(kept.shape)

    # -- hooks on units --

    def hook(self, module, unit):
        outer, module = module, getattr(module, "_fsdp_wrapped_module", module)  # FSDP1 gathers between the two
        before = module.register_forward_pre_hook(lambda m, a, k: self.before_forward(outer, unit, a, k), with_kwargs=True)
        after = module.register_forward_hook(lambda m, a, k, out: self.after_forward(unit, out), with_kwargs=True)
        self.undo += [before.remove, after.remove]

    def before_forward(self, module, unit, args, kwargs):
        if not self.active() or self.in_backward or not torch.is_grad_enabled():
            return None
        count = self.calls[unit] = self.calls.get(unit, 0) + 1
        name = unit if count == 1 else f"{unit}#{count - 1}"
        self.add_gathered(module, unit)
        x = first_floating((args, kwargs))
        if x is None:
            return None
        self.add("unit_input", name, x)
        if not x.requires_grad:
            return None
        alias = x.view_as(x)  # so that its gradient is what leaves this unit alone
        alias.register_hook(lambda grad: self.add("input_grad", name, grad))
        return replace_first(args, x, alias), replace_first(kwargs, x, alias)

    def begin_micro_batch(self, args, kwargs):
        if not self.active() or self.in_backward or not torch.is_grad_enabled():
            return
        if not self.began:
            self.begin()
        self.micro += 1
        self.calls = {}
        x = kwargs.get("input_ids", next((a for a in args if isinstance(a, torch.Tensor)), None))
        if x is not None:
            self.tokens_shape = tuple(x.shape) if not x.is_floating_point() else None
            self.add("input", "x" if x.is_floating_point() else "tokens", x)

    def after_forward(self, unit, output):
        if not self.active() or self.in_backward or not torch.is_grad_enabled():
            return
        if unit not in self.forward_order:
            self.forward_order.append(unit)
        count = self.calls.get(unit, 1)
        name = unit if count == 1 else f"{unit}#{count - 1}"
        y = first_floating(output)
        if y is None or (unit == ROOT and not isinstance(output, torch.Tensor)) or y.dim() == 0:
            return
        self.add("unit_output", name, y)
        if y.requires_grad:
            y.register_hook(lambda grad: self.add("output_grad", name, grad))

    def add_gathered(self, module, unit):
        """What the unit computes with; parameters of inner units come with those."""
        if self.api == "fsdp2" and hasattr(module, "_get_fsdp_state"):
            for group in groups_of(module):
                for p in group.fsdp_params:
                    data = getattr(p, "_unsharded_param", None)
                    if data is not None and p.sharded_state.name == "UNSHARDED":
                        self.add("gathered_parameter", canonical(p._param_fqn), local_of(data))
        elif self.api in ("ddp", "none"):
            for n, p in self.model.named_parameters():
                if self.unit_of(canonical(n)) == unit:
                    self.add("gathered_parameter", canonical(n), p)
        elif self.api == "fsdp1" and getattr(module, "_handle", None) is not None:
            flat = module._handle.flat_param
            prefix = "" if unit == ROOT else unit + "."
            for i, (fqn, shape) in enumerate(zip(flat._fqns, flat._shapes)):
                begin = offset_in_flat(flat, i)
                if flat.numel() >= begin + shape.numel():
                    self.add("gathered_parameter", canonical(prefix + fqn), flat.data.reshape(-1)[begin:begin + shape.numel()].reshape(shape))

    # -- the first forward: initial parameters; hooks on the leaves --

    def begin(self):
        self.began = True
        self.micro = -1
        self.add_state()
        self.write_rank(self.step - 1)
        self.about["parameters"] = [{"name": k.name, "shape": k.shape, "dtype": type_name(k.dtype), "unit": k.unit,
                                     **self.own_settings(k)} for k in self.kept()]
        self.about["precision"] = self.precision()
        self.new_step()
        if self.api == "fsdp2":
            for module in self.wrapped.values():
                for group in groups_of(module):
                    for p in group.fsdp_params:
                        self.hook_leaf_when_made(p)
        elif self.api == "fsdp1":
            for n, module in self.wrapped.items():
                if module._handle is not None:
                    self.hook_flat(module._handle.flat_param, canonical(n) + "." if canonical(n) else "")
        else:
            for n, p in self.model.named_parameters():
                if p.requires_grad:
                    self.hook_leaf(p, canonical(n))

    def own_settings(self, k):
        """Of the parameter's group, where they are not the first one's."""
        first = self.optimizer.param_groups[0]
        if not self.groups or k.group is None or k.group is first:
            return {}
        factor = float(k.group["lr"]) / float(first["lr"]) if first["lr"] else 1.0
        return {"weight_decay": k.group.get("weight_decay", 0), "lr_factor": factor}

    def hook_leaf(self, leaf, name):
        handle = leaf.register_hook(lambda grad: self.add("unreduced_grad", name, local_of(grad)))
        self.undo.append(handle.remove)

    def hook_leaf_when_made(self, p):
        """FSDP2 makes the unsharded parameter at its first all-gather."""
        made = getattr(p, "_unsharded_param", None)
        if made is not None and made.requires_grad:
            self.hook_leaf(made, canonical(p._param_fqn))
        elif made is None:
            inner = p.init_unsharded_param

            def init():
                fresh = getattr(p, "_unsharded_param", None) is None
                inner()
                if fresh and p._unsharded_param.requires_grad:
                    self.hook_leaf(p._unsharded_param, canonical(p._param_fqn))
            p.init_unsharded_param = init

    def hook_flat(self, flat, prefix):
        def on_grad(grad):
            for i, (fqn, shape) in enumerate(zip(flat._fqns, flat._shapes)):
                begin = offset_in_flat(flat, i)
                self.add("unreduced_grad", canonical(prefix + fqn), grad.reshape(-1)[begin:begin + shape.numel()].reshape(shape))
        if flat.requires_grad:
            self.undo.append(flat.register_hook(on_grad).remove)

    # -- what is looked at from outside: backward, loss, clipping, optimizer, collectives --

    def replace(self, owner, name, make):
        old = getattr(owner, name)
        setattr(owner, name, make(old))
        self.undo.append(lambda: setattr(owner, name, old))

    def patch(self):
        self.replace(torch.autograd, "backward", self.make_backward)
        self.replace(nn.functional, "cross_entropy", self.make_cross_entropy)
        self.replace(nn.functional, "mse_loss", self.make_mse_loss)
        # What clip_grad_norm_() calls, wherever a script imported that from.
        self.replace(sys.modules["torch.nn.utils.clip_grad"], "_get_total_norm", self.make_total_norm)
        self.replace(sys.modules["torch.nn.utils.clip_grad"], "_clip_grads_with_norm_", self.make_clip)
        if self.api == "fsdp1":
            for module in self.wrapped.values():
                self.replace(module, "clip_grad_norm_", self.make_clip_of_fsdp1)
        if self.api == "fsdp2":
            from torch.distributed.fsdp._fully_shard import _fsdp_param_group
            self.replace(_fsdp_param_group, "foreach_reduce", self.make_reduce)
            self.replace(_fsdp_param_group, "foreach_all_gather", self.make_gather)
        for kind in COLLECTIVES:
            if self.on and hasattr(dist, kind):
                self.replace(dist, kind, lambda old, kind=kind: self.make_collective(old, kind))
        before = self.optimizer.register_step_pre_hook(lambda *_: self.before_update())
        after = self.optimizer.register_step_post_hook(lambda *_: self.after_update())
        self.undo += [before.remove, after.remove]

    def make_backward(self, inner):
        def backward(tensors, *args, **kwargs):
            self.in_backward = True
            try:
                first = tensors if isinstance(tensors, torch.Tensor) else next(iter(tensors), None)
                if self.active() and self.losses_seen and first is not None and first.numel() == 1:
                    self.scales_of_step.append((float(first.detach()), self.losses_seen[-1], self.targets_seen[-1]))
                return inner(tensors, *args, **kwargs)
            finally:
                self.in_backward = False
                self.after_backward()
        return backward

    def after_backward(self):
        if not self.by_hand:
            self.note_gradients()

    def note_gradients(self):
        if not self.active() or not self.began:
            return
        if getattr(self.model, {"ddp": "require_backward_grad_sync", "fsdp1": "_sync_gradients"}.get(self.api, ""), False):
            self.reduced_in.add(self.micro)
        for k in self.kept():
            self.add("grad", k.name, k.grad(), per_micro=False, kept=k)

    def note_loss(self, kind, loss, target, reduction, ignore_index=-100):
        if not self.active() or self.in_backward or not torch.is_grad_enabled() or self.micro < 0:
            return
        self.loss_kind, self.ignore_index = kind, ignore_index
        value = loss.detach()
        counted = int((target != ignore_index).sum()) if kind == "cross_entropy" else target.numel()
        if reduction == "sum":
            value = value / counted
        elif reduction == "none":
            value = value.mean()
        shape = getattr(self, "tokens_shape", None)
        fits = shape is not None and not target.is_floating_point() and target.numel() == math.prod(shape)
        self.add("input", "targets", target.reshape(shape) if fits else target)
        self.add("loss", "loss", value.reshape(1))
        self.losses_seen.append(float(value))
        self.targets_seen.append(counted)

    def make_cross_entropy(self, inner):
        def cross_entropy(input, target, *args, **kwargs):
            loss = inner(input, target, *args, **kwargs)
            reduction = args[4] if len(args) > 4 else kwargs.get("reduction", "mean")
            ignore = args[2] if len(args) > 2 else kwargs.get("ignore_index", -100)
            self.note_loss("cross_entropy", loss, target, reduction, ignore)
            return loss
        return cross_entropy

    def make_mse_loss(self, inner):
        def mse_loss(input, target, *args, **kwargs):
            loss = inner(input, target, *args, **kwargs)
            self.note_loss("mse", loss, target, args[2] if len(args) > 2 else kwargs.get("reduction", "mean"))
            return loss
        return mse_loss

    def make_clip(self, inner):
        def clip_grads_with_norm_(parameters, max_norm, total_norm, *args, **kwargs):
            if self.by_hand:
                self.note_gradients()
            self.note_norm(total_norm, max_norm, self.norm_type or 2.0)
            return inner(parameters, max_norm, total_norm, *args, **kwargs)
        return clip_grads_with_norm_

    def make_total_norm(self, inner):
        def get_total_norm(tensors, norm_type=2.0, *args, **kwargs):
            self.norm_type = float(norm_type)
            return inner(tensors, norm_type, *args, **kwargs)
        return get_total_norm

    def make_clip_of_fsdp1(self, inner):
        def clip_grad_norm_(max_norm, norm_type=2.0):
            norm = inner(max_norm, norm_type)
            self.note_norm(norm, max_norm, norm_type)
            return norm
        return clip_grad_norm_

    def note_norm(self, norm, max_norm, norm_type):
        """`norm` as PyTorch returns it; FSDP2's is summed over ranks only when it is asked for,
        as here (every rank has just been in a collective of the same function)."""
        if not self.active():
            return
        value = norm.full_tensor() if hasattr(norm, "full_tensor") else norm
        self.add("norm", "norm", torch.as_tensor(value).reshape(1), per_micro=False)
        self.clip, self.norm_type = float(max_norm), float(norm_type)

    def norm(self, value, max_norm=None, norm_type=2.0):
        """For scripts that clip without clip_grad_norm_(): tells the norm before they clip."""
        if self.by_hand:
            self.note_gradients()
        self.add("norm", "norm", torch.as_tensor(value).reshape(1), per_micro=False)
        if max_norm is not None:
            self.clip, self.norm_type = float(max_norm), float(norm_type)

    def make_gather(self, inner):
        def foreach_all_gather(fsdp_params, *args, **kwargs):
            self.communicating = self.unit_of(canonical(fsdp_params[0]._param_fqn or "")) if fsdp_params else None
            try:
                return inner(fsdp_params, *args, **kwargs)
            finally:
                self.communicating = None
        return foreach_all_gather

    def make_reduce(self, inner):
        def foreach_reduce(fsdp_params, *args, **kwargs):
            if not self.active():
                return inner(fsdp_params, *args, **kwargs)
            params = list(fsdp_params)
            given = inspect.signature(inner).bind(fsdp_params, *args, **kwargs).arguments
            self.only_scattered |= given["all_reduce_group"] is not None and not given["all_reduce_grads"]
            # A gradient that is added to one that is there already is taken apart, to be seen alone.
            had = {}
            for p in params:
                if p.sharded_param.grad is not None and not getattr(p.sharded_param, "_post_accumulate_grad_hooks", None):
                    had[p] = p.sharded_param.grad
                    p.sharded_param.grad = None
            self.communicating = self.unit_of(canonical(params[0]._param_fqn)) if params else None
            try:
                result = inner(fsdp_params, *args, **kwargs)
            finally:
                self.communicating = None
            for p in params:
                self.note_reduced(p)
                if p in had:
                    new = p.sharded_param.grad
                    p.sharded_param.grad = had[p]
                    if new is not None:
                        had[p]._local_tensor += new._local_tensor
            return result
        return foreach_reduce

    def note_reduced(self, p):
        grad = local_of(p.sharded_param.grad)
        if grad is not None and self.active():
            self.reduced_in.add(self.micro)
            name = canonical(p._param_fqn)
            self.add("reduced_grad", name, grad, kept=kept_of_tensor(name, None, p.sharded_param, self.optimizer))

    def make_collective(self, inner, kind):
        def collective(*args, **kwargs):
            if self.active():
                tensors = [t for t in (*args, *kwargs.values()) if isinstance(t, torch.Tensor)]
                small = min(tensors, key=lambda t: t.numel(), default=None)
                op = kwargs.get("op") or next((a for a in args if "ReduceOp" in type(a).__name__ or "RedOpType" in type(a).__name__), None)
                group = kwargs.get("group") or next((a for a in args if isinstance(a, dist.ProcessGroup)), None)
                self.ledger.append({
                    "sequence": len(self.ledger) + 1, "kind": COLLECTIVES[kind],
                    "unit": self.communicating, "dtype": type_name(small.dtype) if small is not None else None,
                    "bytes": small.numel() * small.element_size() if small is not None else 0,  # of one rank's shard
                    "op": str(op).split(".")[-1].lower() if op is not None else ("sum" if "reduce" in kind else None),
                    "group": self.group_name(group)})
            return inner(*args, **kwargs)
        return collective

    def group_name(self, group):
        """"shard" or "replicate", or PyTorch's name of it."""
        size = dist.get_world_size(group) if group is not None else self.world
        if self.mesh["replicate"] == 1 or self.mesh["shard"] == 1:
            if size == self.world:
                return "shard" if self.mesh["shard"] > 1 else "replicate"
        name = getattr(group, "group_desc", None)
        return {"mesh_" + part: part for part in ("shard", "replicate")}.get(name, name)

    # -- the end of a step --

    def before_update(self):
        if not self.active() or not self.began:
            return
        clipped = {}
        for k in self.kept():
            now, before = k.grad(), self.tensors.get(("grad", None, k.name))
            if now is None:
                continue
            if before is None:
                self.add("grad", k.name, now, per_micro=False, kept=k)
            elif self.clip or not same_bits(now, before):
                clipped[k.name] = (k, now)
        for name, (k, now) in clipped.items():
            self.add("clipped_grad", name, now, per_micro=False, kept=k)
        self.lr = float(self.optimizer.param_groups[0]["lr"])

    def after_update(self):
        if self.active() and self.began:
            self.add_state()
            self.write_rank(self.step)
            self.written.append({"step": self.step, "lr": self.lr})
            self.micro_batches = self.micro + 1
            self.note_scales()
            self.write_about()
        self.step += 1
        self.new_step()
        if self.step >= self.window[1]:
            self.close()

    def add_state(self):
        """Parameters and what the optimizer keeps of each, now."""
        for k in self.kept():
            self.add("parameter", k.name, k.param(), per_micro=False, kept=k)
            for key in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
                self.add("state." + key, k.name, k.state(key), per_micro=False, kept=k)
            step = k.state("step")
            if step is not None:
                self.add("state.step", k.name, torch.as_tensor(step, dtype=torch.float32).reshape(1), per_micro=False)

    def sync(self):
        """When gradients are brought together."""
        if self.sync_asked is not None:
            return self.sync_asked
        if self.only_scattered:
            return "last-all-reduce"
        return "each" if self.reduced_in and len(self.reduced_in) == self.micro + 1 else "last"

    def global_micro(self, j):
        m, n, shards = self.micro + 1, self.mesh["replicate"] * self.mesh["shard"], self.mesh["shard"]
        sync = self.sync()
        if sync == "each":
            return j * n + self.dp_rank
        if sync == "last-all-reduce":
            return (self.dp_rank // shards * m + j) * shards + self.dp_rank % shards
        return self.dp_rank * m + j

    def key(self, phase, j, name):
        if j is None:
            return f"{phase}/-/{name}"
        m, n = self.micro + 1, self.mesh["replicate"] * self.mesh["shard"]
        if phase == "reduced_grad":  # the highest micro-batch in the sum
            return f"{phase}/{(j + 1) * n - 1 if self.sync() == 'each' else n * m - 1}/{name}"
        return f"{phase}/{self.global_micro(j)}/{name}"

    def write_rank(self, step):
        folder = os.path.join(self.directory, f"step-{step:06d}")
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, f"rank-{self.rank:05d}")
        names = {k: self.key(*k) for k in self.tensors}
        write_safetensors(path + ".safetensors", {names[k]: t for k, t in self.tensors.items()})
        write_json(path + ".json", {
            "rank": self.rank, "step": step, "data_parallel_rank": self.dp_rank, "order": list(names.values()),
            "pieces": {names[k]: piece for k, piece in self.pieces.items()}, "ledger": self.ledger})
        self.gradient_sync = self.sync()

    def precision(self):
        dtype = next((type_name(k.dtype) for k in self.kept()), None)
        policy = {"dtype": dtype, "param_dtype": None, "reduce_dtype": None, "output_dtype": None, "cast_forward_inputs": True}
        if self.api == "fsdp2":
            p = next(iter(self.wrapped.values()))._get_fsdp_state()._mp_policy
            policy.update(param_dtype=type_name(p.param_dtype), reduce_dtype=type_name(p.reduce_dtype),
                          output_dtype=type_name(p.output_dtype), cast_forward_inputs=p.cast_forward_inputs)
        elif self.api == "fsdp1":
            p = next(iter(self.wrapped.values())).mixed_precision
            policy.update(param_dtype=type_name(p.param_dtype), reduce_dtype=type_name(p.reduce_dtype or p.param_dtype))
        return policy

    def note_scales(self):
        """With what times the loss, and its share of the targets if those are averaged, each backward() began."""
        total = torch.tensor([float(sum(self.targets_seen)), float(len(self.targets_seen))])
        if self.average == "token" and self.on:  # as many as the ranks that share the batch
            self.all_reduce(total)
        for value, loss, counted in self.scales_of_step:
            share = counted * float(total[1]) / float(total[0]) if self.average == "token" and total[0] > 0 else 1
            if loss != 0 and share != 0 and math.isfinite(value / loss):
                self.scales.add(simple(value / loss / share))
        self.scales_of_step = []

    def loss_scale(self):
        """None if it was not the same each time, to within a few roundings of float32."""
        scales = sorted(self.scales)
        if not scales or scales[-1] - scales[0] > 1e-6 * abs(scales[0]):
            return None
        return scales[len(scales) // 2]

    def divide_factor(self):
        if self.api != "fsdp2":
            return None
        return self.first_group().gradient_divide_factor

    def forces_sum(self):
        return self.api == "fsdp2" and self.first_group().force_sum_reduction_for_comms

    def averaging(self):
        """How PyTorch makes a mean of a sum over ranks."""
        p = self.about["precision"]
        if self.api == "fsdp1":
            return "pre-post"
        if self.api == "ddp":
            return "premultiply"
        if self.forces_sum():
            return "sum-then-divide"
        if (p["reduce_dtype"] or p["param_dtype"] or p["dtype"]) not in ("float32", "bfloat16"):
            return "pre-post"
        nccl = self.on and "nccl" in dist.get_backend()
        return "premultiply" if nccl or self.divide_factor() is not None else "sum-then-divide"

    def write_about(self):
        if self.rank != 0:
            return
        write_json(os.path.join(self.directory, "trace.json"), finite({
            "format": FORMAT, "version": VERSION, "producer": f"PyTorch {torch.__version__}", "api": self.api,
            "world_size": self.world, "ranks": list(range(self.world)), "mesh": self.mesh,
            "micro_batches": self.micro_batches, "gradient_sync": self.gradient_sync, "steps": self.written,
            "model": self.about["model"],
            "loss": {"kind": self.loss_kind, "ignore_index": self.ignore_index if self.ignore_index is not None else -100,
                     "average": self.average, "scale": self.loss_scale()},
            "optimizer": self.about["optimizer"], "grad_clip": self.clip or 0,
            "norm_type": "inf" if self.norm_type == math.inf else self.norm_type or 2, "precision": self.about["precision"],
            "averaging": self.averaging(), "force_sum": self.forces_sum(), "divide_factor": self.divide_factor(), "reduce_order": None, "dropout": self.dropout(),
            "parameters": self.about["parameters"], "units": self.forward_order}))

    def dropout(self):
        return max((m.p for m in self.model.modules() if isinstance(m, nn.Dropout) and m.training), default=0.0)

    def close(self):
        """Ends the recording; what was recorded stands."""
        if self.closed:
            return
        self.closed = True
        for undo in reversed(self.undo):
            undo()
        self.undo = []


def groups_of(module):
    state = module._get_fsdp_state()
    groups = getattr(state, "_fsdp_param_groups", None)
    if groups is None:
        groups = [state._fsdp_param_group] if state._fsdp_param_group is not None else []
    return list(groups)


def same_bits(a, b):
    a = a.detach().to("cpu").contiguous().reshape(-1)
    return a.numel() == b.numel() and bytes_of(a) == bytes_of(b.reshape(-1))


def simple(x):
    """The fraction p/q with q up to 64 that x is to within float32's rounding, or x."""
    for q in range(1, 65):
        if abs(x * q - round(x * q)) <= 4e-7 * abs(x * q) and round(x * q) != 0:
            return round(x * q) / q
    return x
