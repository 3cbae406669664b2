"""Reads a run of a bundle of `fsdp golden` with NumPy alone and redoes each reduction:

    python3 read_golden.py BUNDLE HASH

HASH is the run's in bundle.json when the test was written: a bundle of another
configuration is refused.  Each reduced gradient must be the mean of the ranks' own,
within the rounding of so many additions in float32.  See trace_format.md.
"""
import json
import sys

import numpy as np


def tensors(path):
    """The tensors of a safetensors file by name."""
    kinds = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "I64": "<i8", "I32": "<i4"}
    raw = open(path, "rb").read()
    begin = 8 + int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8:begin])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(raw[begin:][slice(*t["data_offsets"])],
                                kinds[t["dtype"]]) for name, t in header.items()}


def elements(piece, size):
    """Which elements of the whole a shard has."""
    runs = piece["runs"] if piece else [[0, size, 0, 1]]
    return np.array([begin + r * stride + i for begin, count, stride, repeat in runs
                     for r in range(repeat) for i in range(count)], int)


def check_step(folder, trace):
    """How many reduced values there are, and how many are wrong."""
    ranks = trace["world_size"]
    files = ["%s/rank-%05d" % (folder, r) for r in range(ranks)]
    mine = [tensors(f + ".safetensors") for f in files]
    own = {key: v for t in mine for key, v in t.items() if key.startswith("unreduced")}
    compared = wrong = 0
    for file, rank in zip(files, mine):
        pieces = json.load(open(file + ".json")).get("pieces", {})
        for key in (k for k in rank if k.startswith("reduced_grad/")):
            _, last, name = key.split("/", 2)  # micro-batches are counted over all ranks
            first = int(last) + 1 - ranks if trace["gradient_sync"] == "each" else 0
            terms = np.float64([own["unreduced_grad/%d/%s" % (m, name)]
                                for m in range(first, int(last) + 1)])
            terms = terms[:, elements(pieces.get(key), terms.shape[1])] / trace["divide_factor"]
            bound = (len(terms) + 2) * 2.0**-24 * np.abs(terms).sum(0)
            wrong += int((np.abs(rank[key] - terms.sum(0)) > bound).sum())
            compared += len(bound)
    return compared, wrong


def main(bundle, wanted):
    runs = json.load(open(bundle + "/bundle.json"))["runs"]
    folder = [bundle + "/" + r["trace"] for r in runs if r["hash"] == wanted]
    if not folder:
        print("stale: no run has the hash " + wanted, file=sys.stderr)
        return 2
    trace = json.load(open(folder[0] + "/trace.json"))
    counts = [check_step("%s/step-%06d" % (folder[0], s["step"]), trace) for s in trace["steps"]]
    compared, wrong = np.sum(counts, 0)
    print("%d reduced values, %d wrong" % (compared, wrong))
    return int(wrong != 0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) == 3 else __doc__)
