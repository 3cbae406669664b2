"""Records every faulty script, has `fsdp` judge it, and says whether verdict, place and cause are true.

    run.py [--fsdp build/fsdp] [--mpiexec mpiexec] [--out FOLDER] [--only PATTERN] [--quick] [--right]

Ours is `fsdp train --replay` of what an engineer has: of the faulty trace itself, with
the settings that were meant as options, where inputs, initial values and model are right
in it; else of the trace of the script that is known to be right (on the same ranks, as
small as here).  The script that is right must not be called wrong either, nor its variants.
"""

import argparse
import collections
import json
import multiprocessing
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import traceback

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

try:  # all of it before processes are forked
    import torch
    import torch.distributed as dist
    import transformers
    from transformers import GPT2LMHeadModel, LlamaForCausalLM  # noqa: F401
except ImportError as error:
    print(f"check-seeded: skipped: {error}; {sys.executable} -m pip install torch==2.13.0 transformers (or PYTHON=another one)")
    sys.exit(77)
if torch.__version__.split("+")[0] != "2.13.0":
    print(f"check-seeded: skipped: PyTorch is {torch.__version__}, not 2.13.0")
    sys.exit(77)
transformers.logging.set_verbosity_error()

import faults  # noqa: E402
import variants  # noqa: E402
from script import Script  # noqa: E402


# ---- theirs ------------------------------------------------------------------------------


def one_rank(rank, setup, put, directory, store, log):
    """A process of the script: forked, so that what a fault replaces is gone with it."""
    sys.stdout = sys.stderr = open(f"{log}.{rank}", "w")
    try:
        torch.set_num_threads(1)
        if setup.world > 1:
            dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=setup.world)
        script = Script(setup, directory)
        if put is not None:
            put(script)
        script.run()
        if setup.world > 1:
            dist.barrier()
        code = 0
    except BaseException:
        traceback.print_exc(file=sys.stderr)
        code = 1
    sys.stderr.flush()
    os._exit(code)


def record(setup, put, directory, seconds=60):
    shutil.rmtree(directory, ignore_errors=True)
    os.makedirs(os.path.dirname(directory), exist_ok=True)
    log, store = directory + ".log", tempfile.mktemp()
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=one_rank, args=(r, setup, put, directory, store, log)) for r in range(setup.world)]
    for p in ranks:
        p.start()
    end = time.time() + seconds
    for p in ranks:
        p.join(max(0.1, end - time.time()))
    late = [p for p in ranks if p.is_alive()]
    for p in late:
        p.kill()
        p.join()
    if os.path.exists(store):
        os.remove(store)
    bad = [r for r, p in enumerate(ranks) if p.exitcode != 0]
    if bad:
        with open(f"{log}.{bad[0]}") as f:
            raise RuntimeError(f"the script {'hung' if late else 'failed'} on rank {bad[0]}:\n{f.read()[-3000:]}")


# ---- ours ----------------------------------------------------------------------------------


class Bench:
    def __init__(self, a):
        self.a, self.known = a, {}

    def path(self, *parts):
        return os.path.join(self.a.out, *parts)

    def run(self, command, seconds=100):
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds)
        return done.returncode, done.stdout, done.stderr

    def right(self, setup):
        """The trace of the script that is right."""
        key = ("right", setup)
        if key not in self.known:
            self.known[key] = self.path("right-%d" % len(self.known))
            record(setup, None, self.known[key])
        return self.known[key]

    def replay(self, trace, ranks, options, ours):
        shutil.rmtree(ours, ignore_errors=True)
        command = [*self.a.mpiexec.split(), "-n", str(ranks), self.a.fsdp, "train", "--replay", trace, "--record", ours,
                   "--ledger", "off", *options]
        code, out, err = self.run(command)
        if code != 0:
            raise RuntimeError(f"{' '.join(command)}: exit {code}\n{out}{err}")

    def ours_of_right(self, setup, ranks=None, options=()):
        key = ("ours", setup, ranks, tuple(options))
        if key not in self.known:
            right = self.right(setup)
            self.known[key] = self.path("ours-%d" % len(self.known))
            self.replay(right, ranks or setup.world, options, self.known[key])
        return self.known[key]

    def compare(self, ours, theirs, *options):
        code, out, err = self.run([self.a.fsdp, "compare", ours, theirs, "--json", *options])
        if code not in (0, 1):
            raise RuntimeError(f"fsdp compare {ours} {theirs}: exit {code}\n{err}")
        verdict = json.loads(out)
        with open(theirs + ".verdict.json", "w") as f:
            f.write(out)
        return code, verdict


# ---- what is true ----------------------------------------------------------------------------


def place_of(first):
    return (first["step"], first["phase"], first["name"]) if first else None


def place_is_true(case, place):
    return place is not None and any(place[0] == step and re.fullmatch(phase, place[1]) and re.fullmatch(name, place[2])
                                     for step, phase, name in case.places)


def read_rank(trace, step, rank):
    """The tensors of a rank in the order in which they happened: [(phase, name, bytes)]."""
    path = os.path.join(trace, "step-%06d" % step, "rank-%05d" % rank)
    with open(path + ".json") as f:
        order = json.load(f)["order"]
    with open(path + ".safetensors", "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = f.read()
    for key in order:
        phase, micro, name = key.split("/", 2)
        begin, end = header[key]["data_offsets"]
        yield (phase, micro, name), (header[key]["dtype"], data[begin:end])


def first_changes(right, faulty, setup):
    """What the fault changed first on each rank, in every bit, without any help of what is tested."""
    for step in range(setup.steps + 1):
        found = set()
        for rank in range(setup.world):
            was = dict(read_rank(right, step, rank))
            now = list(read_rank(faulty, step, rank))
            have = {key for key, _ in now}
            lost = next((key for key in was if key not in have), None)
            changed = next((key for key, value in now if was.get(key) != value), None)
            found |= {(step, key[0], key[2]) for key in (changed, lost) if key is not None}
        if found:
            return found
    return set()


def causes_of(verdict):
    return [d["cause"] for d in verdict["diagnosis"]]


def run_case(bench, case):
    theirs = bench.path(case.name)
    record(case.setup, case.put, theirs)
    if case.options is None:
        ours = bench.ours_of_right(case.setup)
    else:
        ours = bench.path(case.name + ".ours")
        bench.replay(theirs, case.setup.world, case.options, ours)
    changes = first_changes(bench.right(case.setup), theirs, case.setup)
    if not any(place_is_true(case, change) for change in changes):
        raise RuntimeError(f"the fault does not change first what the table says, but {sorted(changes) or 'nothing'}")
    code, verdict = bench.compare(ours, theirs)
    place = place_of(verdict["first_divergence"])
    causes = causes_of(verdict)
    return {"wrong": code == 1 and verdict["verdict"] == "wrong", "place": place, "place ok": place_is_true(case, place),
            "causes": causes, "cause ok": any(c in case.causes for c in causes)}


def run_variant(bench, v):
    theirs = bench.path("variant-" + v.name)
    record(v.setup, v.put, theirs)
    ours = bench.path("variant-" + v.name + ".ours")
    if v.ours is None:
        bench.replay(theirs, v.ranks or v.setup.world, v.options, ours)
    else:
        ours = bench.ours_of_right(v.ours, v.ranks, v.options)
    code, verdict = bench.compare(ours, theirs)
    return {"wrong": code == 1, "verdict": verdict["verdict"], "place": place_of(verdict["first_divergence"]),
            "causes": causes_of(verdict)}


# ---- the table -------------------------------------------------------------------------------


def say(name, *columns):
    print(f"{name:30s} " + "  ".join(f"{c:<8s}" for c in columns[:3]) + "  " + "  ".join(columns[3:]), flush=True)


def words(place):
    return "step %d %s %s" % place if place else "-"


def run_faults(bench, cases):
    count = collections.Counter()
    say("fault", "verdict", "place", "cause", "first wrong", "causes named", "report")
    for case in cases:
        try:
            r = run_case(bench, case)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            count["failed"] += 1
            say(case.name, "FAILED", "-", "-", str(e))
            continue
        for key in ("wrong", "place ok", "cause ok"):
            count[key] += r[key]
        say(case.name, "wrong" if r["wrong"] else "NOT WRONG", "true" if r["place ok"] else "FALSE", "true" if r["cause ok"] else "none",
            words(r["place"]), ",".join(r["causes"]) or "-", case.report)
    return count


def run_variants(bench, chosen):
    false = 0
    say("correct variant", "verdict", "", "", "first wrong")
    for v in chosen:
        try:
            r = run_variant(bench, v)
        except (RuntimeError, subprocess.TimeoutExpired) as e:
            false += 1
            say(v.name, "FAILED", "-", "-", str(e))
            continue
        false += r["wrong"]
        say(v.name, r["verdict"] if not r["wrong"] else "CALLED WRONG", "", "", words(r["place"]), ",".join(r["causes"]))
    return false


def judge_right(bench):
    """Each script that a fault was put into, as it is without."""
    return [variants.Variant("right-%d-%s-%s" % (i, s.model, s.wrapper), None, s)
            for i, s in enumerate(sorted({c.setup for c in faults.CASES}, key=repr))]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fsdp", default="./fsdp")
    parser.add_argument("--mpiexec", default=os.environ.get("MPIEXEC", "mpiexec"))
    parser.add_argument("--out")
    parser.add_argument("--only", default="")
    parser.add_argument("--quick", action="store_true", help="a few of each kind")
    parser.add_argument("--right", action="store_true", help="also judge each script that is right as it is")
    a = parser.parse_args()
    a.fsdp, keep = os.path.abspath(a.fsdp), a.out is not None
    a.out = os.path.abspath(a.out or tempfile.mkdtemp(prefix="fsdp-seeded-"))
    cases = [c for c in faults.CASES if re.search(a.only, c.name) and (not a.quick or c.name in faults.QUICK)]
    chosen = [v for v in variants.VARIANTS if re.search(a.only, v.name) and (not a.quick or v.name in variants.QUICK)]
    if a.right:
        chosen += [v for v in judge_right(Bench(a)) if re.search(a.only, v.name)]
    bench = Bench(a)
    start = time.time()
    count = run_faults(bench, cases)
    false = run_variants(bench, chosen)
    print(f"{len(cases)} faults: {count['wrong']} found wrong, {count['place ok']} at the true place, {count['cause ok']} with the true cause, "
          f"{count['failed']} failed; {len(chosen)} correct variants: {false} called wrong; {time.time() - start:.0f} s")
    if not keep:
        shutil.rmtree(a.out, ignore_errors=True)
    missed = len(cases) - count["place ok"]
    uncaused = len(cases) - count["cause ok"]
    too_few = uncaused > len(cases) // 6  # causes; the suite asks for 25 of 30
    bad = count["failed"] + missed + false + too_few
    print(f"{max(0, len(cases) + len(chosen) - bad)} passed, {bad} failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
