"""FSDP of PyTorch against libfsdp, live: `make check-pytorch` calls it.

    python check_pytorch.py [--fsdp PROGRAM] [--mpiexec COMMAND] [--keep FOLDER] [CASE...]

For each case of cases.py: PyTorch trains and is recorded (fsdp_trace.py), libfsdp
runs the recorded steps again on as many ranks (fsdp train --replay), and fsdp
compare judges.  Everything must be equal or within rounding; the last table shows
how much of the bound was used, by kind of tensor.  The exit status is 0 if so, 1
if not, 77 if PyTorch or transformers is missing.
"""

import argparse
import datetime
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false")
TIMEOUT = 120  # seconds of anything


def skip(reason):
    print(f"check-pytorch: skipped: {reason}")
    sys.exit(77)


try:
    import torch
    import torch.distributed as dist
    import transformers
    import transformers.models.gpt2.modeling_gpt2  # before the processes
    import transformers.models.llama.modeling_llama
except ImportError as error:
    skip(f"{error}; {sys.executable} -m pip install torch==2.13.0 transformers "
         "(or PYTHON=another one)")
if torch.__version__.split("+")[0] != "2.13.0":
    skip(f"PyTorch is {torch.__version__}, the comparison is with 2.13.0")

transformers.logging.set_verbosity_error()
warnings.simplefilter("ignore", FutureWarning)

from cases import CASES, FAULTY  # noqa: E402
from train import train  # noqa: E402


# ---- PyTorch -----------------------------------------------------------------


def worker(rank, world, cases, folder):
    """One process of a group, which trains case after case."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world,
        timeout=datetime.timedelta(seconds=TIMEOUT))
    for case in cases:
        try:
            theirs = os.path.join(folder, case.name, "theirs")
            compare_bits(train(case, rank, theirs), train(case, rank, None))
            dist.barrier()
            if rank == 0:
                open(os.path.join(theirs, "done"), "w").close()
        except BaseException:
            print(f"{case.name}, rank {rank}:")
            traceback.print_exc()
            sys.stdout.flush()
            os._exit(1)  # the others notice
    dist.destroy_process_group()


def compare_bits(recorded, plain):
    """Recording must not change the run."""
    for a, b in zip(recorded, plain, strict=True):
        if not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
            raise AssertionError("a recorded run ends with other bits")


def traced(case, folder):
    return os.path.exists(os.path.join(folder, case.name, "theirs", "done"))


def run_pytorch(cases, folder):
    """All cases of one number of processes.  Where one of them fails, the rest
    goes on in new processes."""
    while cases:
        run_group(cases, folder)
        missing = [c for c in cases if not traced(c, folder)]
        cases = cases[cases.index(missing[0]) + 1:] if missing else []


def run_group(cases, folder):
    world = cases[0].world
    store = os.path.join(folder, "store")
    if os.path.exists(store):
        os.remove(store)
    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=worker, args=(rank, world, cases, folder))
                 for rank in range(world)]
    for p in processes:
        p.start()
    for p in processes:
        p.join(len(cases) * TIMEOUT)
        if p.is_alive():
            p.kill()


# ---- libfsdp -----------------------------------------------------------------


def run(command, log):
    """The status; what it said is added to the file."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    with open(log, "ab") as out:
        out.write((" ".join(command) + "\n").encode())
        out.flush()
        try:
            return subprocess.run(command, stdout=out, stderr=out,
                                  timeout=TIMEOUT, env=environment).returncode
        except subprocess.TimeoutExpired:
            out.write(f"no end after {TIMEOUT} s\n".encode())
            return -1


def judge(case, folder, options):
    """(verdict, None) of fsdp compare, or (None, what went wrong)."""
    theirs, ours, log, out = (os.path.join(folder, case.name, name)
                              for name in ("theirs", "ours", "log", "verdict.json"))
    if not traced(case, folder):
        return None, "PyTorch's run did not end"
    replay = [*options.mpiexec.split(), "-n", str(case.world), options.fsdp,
              "train", "--replay", theirs, "--record", ours, "--threads", "1"]
    if run(replay, log) != 0:
        return None, "fsdp train --replay failed:\n" + tail(log)
    compare = [options.fsdp, "compare", ours, theirs, "--json", "--threads", "1"]
    with open(out, "wb") as file, open(log, "ab") as errors:
        status = subprocess.run(compare, stdout=file, stderr=errors,
                                timeout=TIMEOUT).returncode
    try:
        with open(out) as file:
            return json.load(file), None
    except ValueError:
        return None, f"fsdp compare ended with {status}:\n" + tail(log)


def tail(path):
    with open(path, errors="replace") as file:
        return "".join("    " + line for line in file.readlines()[-12:])


# ---- results -----------------------------------------------------------------

PHASES = ("input", "gathered_parameter", "unit_input", "unit_output", "loss",
          "output_grad", "input_grad", "unreduced_grad", "reduced_grad", "grad",
          "norm", "clipped_grad", "parameter", "state.exp_avg",
          "state.exp_avg_sq", "state.momentum_buffer", "state.step")
GOOD = ("equal", "within rounding")


class Table:
    """Per phase: tensors, how many are the same bits, the most of a bound."""

    def __init__(self):
        self.rows = {}

    def add(self, case, verdict):
        for p in verdict["phases"]:
            row = self.rows.setdefault(
                p["phase"], {"tensors": 0, "equal": 0, "within": 0, "wrong": 0,
                             "unchecked": 0, "ratio": 0.0, "case": ""})
            for key in ("tensors", "equal", "within", "wrong", "unchecked"):
                row[key] += p[key]
            ratio = p["worst_ratio"]
            if ratio is not None and ratio > row["ratio"]:
                row.update(ratio=ratio, case=f"{case.name} ({p['worst_rule']})")

    def print(self):
        print(f"{'':24}{'tensors':>9}{'equal':>9}{'within':>9}{'wrong':>7}"
              f"{'unchecked':>11}  most of a bound")
        for phase in sorted(self.rows, key=PHASES.index):
            row = self.rows[phase]
            print(f"{phase:24}{row['tensors']:9}{row['equal']:9}"
                  f"{row['within']:9}{row['wrong']:7}{row['unchecked']:11}  "
                  f"{row['ratio']:.3g} {row['case']}")


def unseen(case, verdict):
    """What should have been compared and was not; None: nothing."""
    known = {"norm"} if not case.clip else set()
    if case.wrapper != "fsdp2":
        known.add("reduced_grad")  # only the step's is recorded
    for m in verdict["missing"]:
        if m["phase"] not in known:
            return (f"{m['tensors']} of {m['phase']} only in {m['only']}: "
                    f"{m['first']}")
    for p in verdict["phases"]:
        if p["unchecked"]:
            return f"{p['unchecked']} of {p['phase']} not checked"
    return None


def where(verdict):
    place = verdict.get("first_divergence")
    if not place:
        return json.dumps(verdict)[:300]
    causes = "; ".join(d["text"] for d in verdict["diagnosis"]) or place["why"]
    return (f"step {place['step']}, {place['phase']} of {place['name']}: {causes} "
            f"(theirs {place['theirs']}, expected {place['expected']}, "
            f"{place['ratio']} times the bound)")


def found(case, verdict):
    """Is the fault told: where it begins, and that all is W times too large?"""
    place = verdict["first_divergence"]
    return (verdict["verdict"] == "wrong" and place["step"] == 1
            and place["phase"] == "reduced_grad"
            and any(d["cause"] == "constant-factor"
                    and f"theirs is {case.world} times what" in d["text"]
                    and "number of ranks" in d["text"]
                    for d in verdict["diagnosis"]))


def check(case, folder, options, table):
    began = time.time()
    verdict, problem = judge(case, folder, options)
    good = problem is None and (found(case, verdict) if case.fault else
                                verdict["verdict"] in GOOD)
    if problem is None and not case.fault:
        table.add(case, verdict)
        problem = unseen(case, verdict)
        good = good and problem is None
    what = problem or verdict["verdict"]
    if problem is None and verdict["verdict"] not in GOOD:
        what += ": " + where(verdict)
    print(f"{'PASS' if good else 'FAIL'}: {case.name}: {what} "
          f"[{time.time() - began:.1f} s]", flush=True)
    return good


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="./fsdp")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--keep", help="the traces stay in this folder")
    parser.add_argument("case", nargs="*")
    return parser.parse_args()


def main():
    options = parse()
    options.fsdp = os.path.abspath(options.fsdp)
    folder = os.path.abspath(options.keep or tempfile.mkdtemp(prefix="fsdp-pytorch-"))
    os.makedirs(folder, exist_ok=True)
    cases = [c for c in [*CASES, *FAULTY] if not options.case or c.name in options.case]
    table, passed, began = Table(), 0, time.time()
    try:
        for world in sorted({c.world for c in cases}):
            run_pytorch([c for c in cases if c.world == world], folder)
            print(f"PyTorch on {world}: {time.time() - began:.0f} s", flush=True)
        for case in cases:
            passed += check(case, folder, options, table)
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    table.print()
    print(f"check-pytorch: {time.time() - began:.0f} s")
    print(f"{passed} passed, {len(cases) - passed} failed")
    return 0 if passed == len(cases) and passed else 1


if __name__ == "__main__":
    sys.exit(main())
