"""Hugging Face's folders, live: what save_pretrained() writes is read here, and what
is written here, from_pretrained() reads, byte for byte.

    python hf_files.py [--fsdp PROGRAM] [--mpiexec COMMAND] [--text FILE] [CASE...]

Small random models of GPT-2 and Llama, in one file and in several, in each type,
go through `fsdp train --model FOLDER --steps 0 --save FOLDER/` on 1 and 3 ranks.
The last line is "N passed, N failed"; the exit status is 77 if transformers is
missing.
"""

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

os.environ.update(OMP_NUM_THREADS="1", HF_HUB_OFFLINE="1",
                  TOKENIZERS_PARALLELISM="false")
try:
    import tokenizers
    import tokenizers.decoders
    import tokenizers.models
    import tokenizers.pre_tokenizers
    import tokenizers.trainers
    import torch
    import transformers
    from safetensors import safe_open
except ImportError as error:
    print(f"hf_files: skipped: {error}; pip install torch transformers")
    sys.exit(77)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

TEXT = "Once upon a time a fox had 3 plans, and 12 of them weren't good.\n" * 60


def gpt2(**changes):
    return transformers.GPT2Config(
        **{"vocab_size": 300, "n_positions": 32, "n_embd": 24, "n_layer": 2,
           "n_head": 3, "bos_token_id": 7, "eos_token_id": 7, "resid_pdrop": 0.0,
           "embd_pdrop": 0.0, "attn_pdrop": 0.0, **changes})


def llama(**changes):
    return transformers.LlamaConfig(
        **{"vocab_size": 300, "max_position_embeddings": 32, "hidden_size": 24,
           "intermediate_size": 40, "num_hidden_layers": 2,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 6,
           "bos_token_id": 7, "eos_token_id": 7, **changes})


GPT2 = transformers.GPT2LMHeadModel
LLAMA = transformers.LlamaForCausalLM
BF16, FP16 = torch.bfloat16, torch.float16
CASES = {  # class, configuration, type, save_pretrained's size of a file, ours
    "gpt2": (GPT2, gpt2(), None, None, None),
    "gpt2-untied": (GPT2, gpt2(tie_word_embeddings=False), None, None, None),
    "gpt2-bf16-files": (GPT2, gpt2(), BF16, "12KB", "9K"),
    "gpt2-fp16": (GPT2, gpt2(layer_norm_epsilon=1e-6), FP16, None, "40K"),
    "gpt2-without-head": (transformers.GPT2Model, gpt2(), None, "30KB", None),
    "llama": (LLAMA, llama(), None, None, None),
    "llama-tied-files": (LLAMA, llama(tie_word_embeddings=True), None, "20KB", "1K"),
    "llama-bf16": (LLAMA, llama(), BF16, None, None),
    "llama-biases": (LLAMA, llama(attention_bias=True, mlp_bias=True), None, "9KB",
                     "50K"),
    "llama-theta": (LLAMA, llama(rope_parameters={"rope_type": "default",
                                                  "rope_theta": 500000.0},
                                 rms_norm_eps=1e-5), FP16, None, None),
}


def run(options, ranks, *arguments):
    done = subprocess.run(
        [*options.mpiexec.split(), "-n", str(ranks), options.fsdp, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
        timeout=120)
    if done.returncode != 0:
        raise AssertionError(f"fsdp {' '.join(arguments)}: exit status "
                             f"{done.returncode}: {done.stderr}")
    return done.stdout


def stored(folder):
    """Every tensor of a folder's files: its type and bytes, by its bare name."""
    tensors = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                bare = name.removeprefix("transformer.").removeprefix("model.")
                tensor = file.get_tensor(name).contiguous()
                assert bare not in tensors, f"{bare} is there twice"
                tensors[bare] = (tensor.dtype, tuple(tensor.shape),
                                 tensor.view(torch.uint8).numpy().tobytes())
    return tensors


def check_index(folder):
    """An index names every tensor once, and all of their bytes."""
    index = pathlib.Path(folder, "model.safetensors.index.json")
    files = sorted(p.name for p in pathlib.Path(folder).glob("*.safetensors"))
    assert index.exists() == (len(files) > 1), f"{files}, index: {index.exists()}"
    if index.exists():
        text = json.loads(index.read_text())
        assert sorted(set(text["weight_map"].values())) == files
        assert text["metadata"]["total_size"] == sum(
            len(b) for _, _, b in stored(folder).values())
    return len(files)


def check(name, options, folder):
    kind, config, dtype, theirs, ours = CASES[name]
    torch.manual_seed(sum(name.encode()))
    model = kind(config)
    with torch.no_grad():  # biases and norms that are not all alike
        for p in model.parameters():
            p.add_(torch.randn_like(p) * 0.02)
    model = model.to(dtype or torch.float32).eval()
    first = f"{folder}/{name}"
    model.save_pretrained(first, **({"max_shard_size": theirs} if theirs else {}))
    their_files, our_files = check_index(first), set()
    for ranks in (1, 3):
        again = f"{folder}/{name}-{ranks}"
        run(options, ranks, "train", "--model", first, "--data", options.text,
            "--steps", "0", "--context", "16", "--batch-size", "6",
            "--micro-batch-size", "1", "--eval-batches", "1", "--save", again + "/",
            *(["--max-shard-size", ours] if ours else []))
        assert stored(first) == stored(again), "other bytes"
        our_files.add(check_index(again))
        loaded = (GPT2 if kind is transformers.GPT2Model else kind).from_pretrained(
            again, dtype="auto")
        state = loaded.state_dict()
        for key, value in model.state_dict().items():
            key = key if key in state else "transformer." + key
            assert value.dtype == state[key].dtype, f"{key}: another type"
            assert torch.equal(value, state[key]), f"{key}: other values"
        assert loaded.config.eos_token_id == 7, "config.json lost what it had"
    assert not theirs or their_files > 1
    print(f"PASS {name}: {len(stored(first))} tensors, {dtype or torch.float32}, "
          f"their files {their_files}, ours {sorted(our_files)}", flush=True)


def check_text(options, folder):
    """The same tokens as Hugging Face's package has, and the likeliest text."""
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    tokenizer.train_from_iterator([TEXT], tokenizers.trainers.BpeTrainer(
        vocab_size=300, show_progress=False, special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    for name, kind, config in ("gpt2", GPT2, gpt2()), ("llama", LLAMA, llama()):
        first = f"{folder}/text-{name}"
        torch.manual_seed(3)
        model = kind(config).eval()
        with torch.no_grad():  # far from the flat answers of an untrained model
            for p in model.parameters():
                p.add_(torch.randn_like(p) * 0.3)
        model.save_pretrained(first)
        transformers.PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, eos_token="<|endoftext|>").save_pretrained(first)
        ids = tokenizer.encode(TEXT).ids
        run(options, 1, "tokenize", "--tokenizer", first, "--data", options.text, "--out",
            f"{first}.bin", "--format", "nanogpt")
        ours = pathlib.Path(f"{first}.bin").read_bytes()
        assert ours == b"".join(i.to_bytes(2, "little") for i in ids), "other tokens"
        prompt = "Once upon a"
        given = torch.tensor([tokenizer.encode(prompt).ids])
        theirs = model.generate(given, max_new_tokens=12, do_sample=False,
                                eos_token_id=None, pad_token_id=0)
        for ranks in 1, 2:
            said = run(options, ranks, "generate", "--model", first, "--prompt", prompt,
                       "--tokens", "12", "--temperature", "0")[:-1]
            text = tokenizer.decode(theirs[0].tolist(), skip_special_tokens=False)
            assert said == text, f"{said!r} is not {text!r}"
    print(f"PASS text: {len(ids)} tokens, 12 of the likeliest after a prompt", flush=True)


def check_new(options, folder):
    """A model that was made here, not read: config.json is written from nothing."""
    for kind, extra in ("gpt2", []), ("llama", ["--kv-heads", "2"]):
        new = f"{folder}/new-{kind}"
        run(options, 2, "train", "--model", kind, *extra, "--layers", "2", "--heads",
            "4", "--width", "24", "--context", "16", "--data", options.text, "--steps",
            "2", "--batch-size", "4", "--micro-batch-size", "1", "--save", new + "/",
            "--save-dtype", "bfloat16")
        loaded = transformers.AutoModelForCausalLM.from_pretrained(new, dtype="auto")
        assert loaded.dtype == BF16 and loaded.config.model_type == kind
        tokens = torch.arange(16)[None]
        assert torch.isfinite(loaded(tokens).logits).all()
    print("PASS new: gpt2 and llama trained here, loaded there", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--fsdp", default="./fsdp")
    parser.add_argument("--mpiexec", default="mpiexec")
    parser.add_argument("--keep", help="the files stay in this folder")
    parser.add_argument("case", nargs="*")
    options = parser.parse_args()
    options.fsdp = os.path.abspath(options.fsdp)
    folder = os.path.abspath(options.keep or tempfile.mkdtemp(prefix="fsdp-hf-"))
    options.text = f"{folder}/text"
    checks = {**{name: lambda o, f, n=name: check(n, o, f) for name in CASES},
              "text": check_text, "new": check_new}
    passed = failed = 0
    try:
        os.makedirs(folder, exist_ok=True)
        pathlib.Path(options.text).write_text(TEXT)
        for name in options.case or checks:
            try:
                checks[name](options, folder)
                passed += 1
            except Exception as error:  # each case tells of itself
                print(f"FAIL {name}: {type(error).__name__}: {error}", flush=True)
                failed += 1
    finally:
        if not options.keep:
            shutil.rmtree(folder)
    print(f"{passed} passed, {failed} failed")
    return 0 if passed and not failed else 1


if __name__ == "__main__":
    sys.exit(main())
