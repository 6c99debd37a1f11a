#!/usr/bin/env python3
"""Makes tests/parity/golden: what PyTorch's FSDP2 computes for a small GPT, by fsdp2_gpt.py on 2 Gloo ranks.

    python tests/parity/make_golden.py          # needs torch 2.13, numpy, safetensors

init.safetensors: the weights that every run starts from. NAME.json: loss and grad_norm of each step. NAME.safetensors: the
final weights. The text is the repository's LICENSE, so that both sides read the same bytes.
"""
import json, os, pathlib, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
MODEL = ["--layers", "2", "--width", "32", "--heads", "2", "--ctx", "32"]
RUNS = {"one_microbatch": ["--batch", "12", "--microbatches", "1"], "two_microbatches": ["--batch", "12", "--microbatches", "2"]}


def run(arguments, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(HERE / "fsdp2_gpt.py"),
               "--data", str(HERE.parent.parent / "LICENSE"), *MODEL, *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]


GOLDEN.mkdir(exist_ok=True)
run(["--steps", "1", "--impl", "single", "--save-weights", str(GOLDEN / "init.safetensors")], 1)
for name, arguments in RUNS.items():
    rows = run([*arguments, "--steps", "20", "--max-norm", "0.5", "--lr", "3e-4", "--weights", str(GOLDEN / "init.safetensors"),
                "--save-final", str(GOLDEN / f"{name}.safetensors")], 2)
    with open(GOLDEN / f"{name}.json", "w") as file:
        json.dump([{"step": r["step"], "loss": r["loss"], "grad_norm": r["grad_norm"]} for r in rows], file, indent=0)
        file.write("\n")
