"""Reads a bundle of `fsdp golden` with NumPy alone and recomputes each reduction:

    python3 read_golden.py BUNDLE NAME RANKS HASH

HASH is the run's in bundle.json of the day on which the test was written: a
bundle of another configuration is refused before any value is looked at.  Every
reduced gradient must be the ranks' own gradients summed and divided, within the
rounding of that many additions in float32.  See trace_format.md.
"""
import json
import os
import sys

import numpy as np


def tensors(path):
    """Tensors of a safetensors file by name, as float64, and the data's order."""
    kinds = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8",
             "I32": "<i4", "BF16": "<u2"}
    with open(path, "rb") as file:
        raw = file.read()
    begin = 8 + int.from_bytes(raw[:8], "little")
    out = {}
    for name, t in json.loads(raw[8:begin]).items():
        if name == "__metadata__":
            continue
        a, b = (begin + x for x in t["data_offsets"])
        v = np.frombuffer(raw[a:b], kinds[t["dtype"]])
        if t["dtype"] == "BF16":  # the upper half of a float32
            v = (v.astype("<u4") << 16).view("<f4")
        out[name] = v.astype(np.float64)
    return out


def elements(piece, numel):
    """Which elements of the whole a shard has."""
    if piece is None:
        return np.arange(numel)
    runs = [np.arange(begin + r * stride, begin + r * stride + count)
            for begin, count, stride, repeat in piece["runs"]
            for r in range(repeat)]
    return np.concatenate(runs + [np.arange(0)]).astype(int)


def check_step(folder, trace, ranks):
    """How many reduced values were compared, and how many are wrong."""
    where = [os.path.join(folder, "rank-%05d" % r) for r in range(ranks)]
    mine = [tensors(w + ".safetensors") for w in where]
    pieces = [json.load(open(w + ".json")).get("pieces", {}) for w in where]
    own = {}
    for t in mine:
        own.update({k: v for k, v in t.items() if k[:9] == "unreduced"})
    compared = wrong = 0
    for rank, key in ((r, k) for r in range(ranks) for k in mine[r]):
        if not key.startswith("reduced_grad/"):
            continue
        _, last, name = key.split("/", 2)
        first = 0 if trace["gradient_sync"] == "last" else int(last) + 1 - ranks
        terms = np.stack([own["unreduced_grad/%d/%s" % (g, name)]
                          for g in range(first, int(last) + 1)])
        at = elements(pieces[rank].get(key), terms.shape[1])
        terms = terms[:, at] / trace["divide_factor"]
        bound = (len(terms) + 2) * 2.0**-24 * np.abs(terms).sum(0)
        wrong += int((np.abs(mine[rank][key] - terms.sum(0)) > bound).sum())
        compared += len(at)
    return compared, wrong


def main(bundle, name, ranks, expected):
    runs = json.load(open(os.path.join(bundle, "bundle.json")))["runs"]
    run = [r for r in runs if r["name"] == name and r["ranks"] == int(ranks)]
    if not run or run[0]["hash"] != expected:
        sys.stderr.write("this test and the bundle are of different "
                         "configurations: %s\n" % [r["hash"] for r in run])
        return 2
    folder = os.path.join(bundle, run[0]["trace"])
    trace = json.load(open(os.path.join(folder, "trace.json")))
    compared = wrong = 0
    for step in trace["steps"]:
        path = os.path.join(folder, "step-%06d" % step["step"])
        c, w = check_step(path, trace, int(ranks))
        compared, wrong = compared + c, wrong + w
    print("%d reduced values compared, %d wrong" % (compared, wrong))
    return 2 if compared == 0 else int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 5 else __doc__)
