"""Writes fsdp1_events.json: what PyTorch's FSDP1 does, and in which order.

Called by make_golden.py.  The models of fsdp_events.py are wrapped in
FullyShardedDataParallel over 1, 2, 3 and 4 gloo processes.  Its lazy init
refuses a device that is not available; the CPU counts as available in 2.13, so
device_id=torch.device("cpu") runs as it is, and nothing is patched but for
looking.  See README for the layout.
"""

import copy
import json
import os
import tempfile

import torch
import torch.distributed as dist
import torch.nn as nn

from fsdp_events import Net, frozen, loss_of, pretty

CPU = torch.device("cpu")


class Recorder:
    """Writes down what the runtime does with each FlatParamHandle, in `log`."""

    def __init__(self):
        import torch.distributed.fsdp._runtime_utils as runtime
        from torch.distributed.fsdp._flat_param import FlatParamHandle

        self.log, self.names, self.current = [], {}, []
        self.watch(runtime, "_unshard", 1, before=self.unshard)
        self.watch(runtime, "_pre_backward_hook", 2, before=self.pre_backward)
        self.watch(runtime, "_post_backward_hook", 1,
                   before=lambda h: "post_backward_begin",
                   after=lambda h: "post_backward")
        self.watch(runtime, "_post_backward_reshard_only_hook", 1,
                   before=lambda h: "reshard_only")
        self.watch(runtime, "_post_backward_final_callback", None,
                   before=lambda h: "final_callback")
        original = FlatParamHandle.reshard

        def reshard(handle, free):
            gathered = (handle.uses_sharded_strategy
                        and not handle.needs_unshard())
            original(handle, free)
            if gathered and handle.needs_unshard():
                self.add("reshard", handle)

        FlatParamHandle.reshard = reshard
        for function, what, position in (
                ("all_gather_single", "all_gather", 1),
                ("all_gather", "all_gather", 1),  # of CPU tensors
                ("reduce_scatter_single", "reduce_scatter", 1),
                ("all_reduce", "all_reduce", 0)):
            self.watch_collective(function, what, position)

    @staticmethod
    def unshard(handle):
        return handle.needs_unshard() and "unshard"

    @staticmethod
    def pre_backward(handle):
        return not handle._ran_pre_backward_hook and "pre_backward"

    def name(self, handle):
        return self.names[id(handle._fully_sharded_module)]

    def add(self, what, handle):
        if what and handle is None:
            self.log.append([what, "", "IDLE"])
        elif what:
            self.log.append([what, self.name(handle),
                             handle._training_state.name])

    def watch(self, module, function, position, before=None, after=None):
        original = getattr(module, function)

        def wrapper(*args, **kwargs):
            handle = args[position] if position is not None else None
            if position is not None and handle is None:
                return original(*args, **kwargs)
            if before:
                self.add(before(handle), handle)
            self.current.append(handle)
            result = original(*args, **kwargs)
            self.current.pop()
            if after:
                self.add(after(handle), handle)
            return result

        setattr(module, function, wrapper)

    def watch_collective(self, function, what, position):
        original = getattr(dist, function)

        def wrapper(*args, **kwargs):
            tensor = kwargs.get("input")
            tensor = args[position] if tensor is None else tensor
            if self.current:  # not those of this script
                self.log.append([what, self.name(self.current[-1]),
                                 tensor.numel()])
            return original(*args, **kwargs)

        setattr(dist, function, wrapper)


# How one training step is run.  `mark(phase)` ends a phase of the record.


def step_plain(model, x, mark):
    loss = loss_of(model(x))
    mark("forward")
    loss.backward()
    mark("backward")


def step_input_grad(model, x, mark):
    step_plain(model, x.clone().requires_grad_(), mark)


def step_evaluate_first(model, x, mark):
    with torch.no_grad():
        model(x)
    mark("evaluation")
    step_plain(model, x, mark)


def step_no_sync(model, x, mark):
    with model.no_sync():
        loss = loss_of(model(x[:3]))
        mark("forward 0")
        loss.backward()
        mark("backward 0")
    loss = loss_of(model(x[3:]))
    mark("forward 1")
    loss.backward()
    mark("backward 1")


def step_accumulate(model, x, mark):
    for i in range(2):
        loss = loss_of(model(x[3 * i:3 * i + 3]))
        mark(f"forward {i}")
        loss.backward()
        mark(f"backward {i}")


def scenarios(world_size):
    """(name, model maker, strategy, options, step)"""
    from torch.distributed.fsdp import BackwardPrefetch

    pre = {"backward_prefetch": BackwardPrefetch.BACKWARD_PRE}
    post = {"backward_prefetch": BackwardPrefetch.BACKWARD_POST}
    none = {"backward_prefetch": None}
    forward = {**pre, "forward_prefetch": True}
    orig = {**pre, "use_orig_params": True}
    if world_size == 1:
        return [("one_rank", Net, "FULL_SHARD", pre, step_plain)]
    if world_size == 3:
        return [("three_ranks", Net, "FULL_SHARD", pre, step_plain),
                ("three_ranks_orig", Net, "FULL_SHARD", orig, step_plain)]
    if world_size == 4:
        return [("hybrid", Net, "HYBRID_SHARD", pre, step_plain),
                ("hybrid_zero2", Net, "_HYBRID_SHARD_ZERO2", pre, step_plain)]
    found = []
    for strategy in ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD"):
        for label, options in (("pre", pre), ("post", post), ("none", none),
                               ("forward", forward)):
            found.append((f"{strategy}_{label}", Net, strategy, options,
                          step_plain))
        for step in (step_evaluate_first, step_no_sync, step_accumulate):
            found.append((f"{strategy}_{step.__name__[5:]}", Net, strategy,
                          pre, step))
    full = "FULL_SHARD"
    for label, options in (("pre", pre), ("post", post), ("none", none)):
        for name, stem, head in (("mlp", False, False), ("head", False, True)):
            make = lambda stem=stem, head=head: Net(stem, head)  # noqa: E731
            found.append((f"{name}_{label}", make, full, options, step_plain))
        for uses in ((0, 1, 0), (0, 0), (0, 1, 0, 1)):
            make = lambda uses=uses: Net(order=uses)  # noqa: E731
            found.append(("uses_" + "".join(map(str, uses)) + f"_{label}",
                          make, full, options, step_plain))
    unused = lambda: Net(order=(0, 2))  # noqa: E731
    dropped = lambda: Net(order=(0, 1, 2), dropped=(1,))  # noqa: E731
    for name, make, options, step in (
            ("orig", Net, orig, step_plain),
            ("input_requires_grad", Net, pre, step_input_grad),
            ("unused_module", unused, pre, step_plain),
            ("unused_output", dropped, pre, step_plain),
            ("frozen_layer", frozen(r"layers\.1\."), pre, step_plain),
            ("frozen_bias", frozen(r"layers\.1\.bias"), orig, step_plain),
            ("frozen_front", frozen(r"stem\.", r"layers\.0\."), orig,
             step_plain)):
        found.append((name, make, full, options, step))
    return found


def wrap_model(model, recorder, mesh, strategy, options):
    from torch.distributed.fsdp import FullyShardedDataParallel, \
        ShardingStrategy

    recorder.names = {id(m): n for n, m in model.named_modules()}
    more = dict(options, device_id=CPU, device_mesh=mesh,
                sharding_strategy=ShardingStrategy[strategy])
    for i, layer in enumerate(model.layers):
        model.layers[i] = FullyShardedDataParallel(layer, **more)
    return FullyShardedDataParallel(model, **more)


def run_scenario(scenario, recorder, mesh, rank, dtype):
    name, make, strategy, options, step = scenario
    torch.manual_seed(0)
    model = wrap_model(make().to(dtype), recorder, mesh, strategy, options)
    steps = []
    for i in range(2):
        torch.manual_seed(100 * i + rank)
        x, phases = model.module.batch(dtype), []
        model.zero_grad()
        recorder.log = []

        def mark(phase):
            phases.append({"phase": phase, "trace": recorder.log})
            recorder.log = []

        step(model, x, mark)
        steps.append(phases)
    return {"name": name, "world_size": dist.get_world_size(),
            "mesh": list(mesh.shape), "strategy": strategy,
            "options": {k: getattr(v, "name", v) for k, v in options.items()},
            "steps": steps}


def event_worker(rank, world_size, folder):
    from torch.distributed.device_mesh import init_device_mesh

    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/rendezvous{world_size}",
        rank=rank, world_size=world_size)
    mesh = (init_device_mesh("cpu", (2, 2), mesh_dim_names=("r", "s"))
            if world_size == 4 else init_device_mesh("cpu", (world_size,)))
    recorder, found = Recorder(), []
    for scenario in scenarios(world_size):
        results = [run_scenario(scenario, recorder, mesh, rank, dtype)
                   for dtype in (torch.float32, torch.float64)]
        if not scenario[3].get("use_orig_params"):  # whose padding differs
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


SHAPES = [(5, 3), (1,), (4,), (2, 2, 3), (7,)]


def fake_rank(rank, world_size):
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", store=FakeStore(), rank=rank,
                            world_size=world_size)


def shard_table():
    """How FSDP1 lays out and cuts parameters of SHAPES, each rank in turn:
    numels with padding between, and [offset in the shard, first element,
    elements] of each parameter on each rank, null where it has none."""
    from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision

    table = []
    cases = [(w, orig, dtype, low) for w in (1, 2, 3, 4, 5, 8)
             for orig in (False, True)
             for dtype, low in ((torch.float32, None), (torch.float64, None),
                                (torch.float32, torch.bfloat16))]
    for world_size, orig, dtype, low in cases:
        row = {"world_size": world_size, "use_orig_params": orig,
               "dtype": str(dtype)[6:], "param_dtype": low and str(low)[6:],
               "shapes": SHAPES, "ranks": []}
        for rank in range(world_size):
            fake_rank(rank, world_size)
            model = nn.Module()
            model.params = nn.ParameterList(
                torch.zeros(s, dtype=dtype) for s in SHAPES)
            wrapped = FullyShardedDataParallel(
                model, device_id=CPU, use_orig_params=orig,
                mixed_precision=MixedPrecision(param_dtype=low))
            flat = wrapped._handle.flat_param
            row["numels"] = list(flat._numels_with_padding)
            row["is_padding"] = list(flat._is_padding_mask)
            row["shard_numel"] = flat.numel()
            row["ranks"].append([
                [i.offset_in_shard, i.intra_param_start_idx, i.numel_in_shard]
                if i.in_shard else None for i in flat._shard_param_infos])
            row.setdefault("values", []).append(
                flat.detach().double().flatten().tolist())
            dist.destroy_process_group()
        table.append(row)
    return table


def factor_table():
    """[R, S, pre, post] of HYBRID_SHARD."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import FullyShardedDataParallel, \
        ShardingStrategy

    table = []
    for r, s in ((1, 2), (1, 3), (2, 2), (2, 3), (3, 2), (2, 6), (4, 4),
                 (3, 4), (6, 2)):
        fake_rank(0, r * s)
        mesh = init_device_mesh("cpu", (r, s), mesh_dim_names=("r", "s"))
        wrapped = FullyShardedDataParallel(
            nn.Linear(2, 2), device_id=CPU, device_mesh=mesh,
            sharding_strategy=ShardingStrategy.HYBRID_SHARD)
        table.append([r, s, wrapped._gradient_predivide_factor,
                      wrapped._gradient_postdivide_factor])
        dist.destroy_process_group()
    return table


def make_fsdp1_events(folder, versions):
    found = []
    with tempfile.TemporaryDirectory() as scratch:
        for world_size in (2, 1, 3, 4):
            torch.multiprocessing.spawn(event_worker, (world_size, scratch),
                                        nprocs=world_size)
            with open(f"{scratch}/{world_size}.json") as file:
                found += json.load(file)
    record = {"versions": versions, "shards": shard_table(),
              "factors": factor_table(), "scenarios": found}
    with open(f"{folder}/fsdp1_events.json", "w") as file:
        file.write(pretty(record) + "\n")
