#!/usr/bin/env python3
"""Makes tests/parity/golden: what PyTorch's FSDP2 computes for small models, by fsdp2_gpt.py on 2 Gloo ranks.

    python tests/parity/make_golden.py [NAME]...     # all, or the runs named; needs torch 2.13, numpy, safetensors

init.safetensors, mlp_init.safetensors: the weights that every run starts from. NAME.json: loss and grad_norm of each step.
NAME.safetensors: the final weights, where they are compared: not of all, to keep the folder small. The text is the repository's LICENSE, so
that both sides read the same bytes.
"""
import json, os, pathlib, subprocess, sys

HERE = pathlib.Path(__file__).resolve().parent
GOLDEN = HERE / "golden"
GPT = ["--data", str(HERE.parent.parent / "LICENSE"), "--layers", "2", "--width", "32", "--heads", "2", "--ctx", "32"]
MLP = ["--model", "mlp", "--layers", "2", "--width", "16", "--inputs", "8", "--classes", "4", "--data-seed", "5"]
ADAMW = ["--lr", "3e-4"]
SGD = ["--optimizer", "sgd", "--lr", "0.1", "--momentum", "0.9"]
ONE, TWO = ["--batch", "12", "--microbatches", "1"], ["--batch", "12", "--microbatches", "2"]
CLIP = ["--max-norm", "0.5", "--steps", "50"]
FAST = ["--lr", "3e-3"]
MATRICES = ["--decay", "matrices", "--weight-decay", "0.5"]
RUNS = {
    "init": [*GPT, "--steps", "1", "--impl", "single"],
    "one_microbatch": [*GPT, *ADAMW, *ONE],
    "two_microbatches": [*GPT, *ADAMW, *TWO],
    "gpt_matrices": [*GPT, *SGD, *MATRICES, *TWO],
    "mlp_init": [*MLP, "--steps", "1", "--impl", "single"],
    "mlp_adamw": [*MLP, *ADAMW, *ONE],
    "mlp_adamw_matrices": [*MLP, *ADAMW, *MATRICES, *TWO],
    "mlp_sgd_matrices": [*MLP, *SGD, *MATRICES, *ONE],
    # 50 steps of each other kind of numerics
    "gpt_double": [*GPT, *ADAMW, *TWO, "--double", *CLIP],
    "mlp_double": [*MLP, *ADAMW, *ONE, "--double", *CLIP],
    "gpt_double_value": [*GPT, *SGD, *ONE, "--double", "--clip-value", "1e-3"],
    "gpt_value": [*GPT, *ADAMW, *TWO, "--clip-value", "1e-3"],
    "gpt_float32": [*GPT, *SGD, *TWO, *CLIP],
    "gpt_bfloat16": [*GPT, *FAST, *ONE, "--param-dtype", "bfloat16", *CLIP],
    "gpt_amp": [*GPT, *FAST, *ONE, "--impl", "ddp", "--autocast", "bfloat16", *CLIP],
}
WITH_WEIGHTS = ("one_microbatch", "two_microbatches", "mlp_adamw", "mlp_adamw_matrices", "mlp_sgd_matrices", "mlp_double")


def run(arguments, ranks):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks), str(HERE / "fsdp2_gpt.py"), *arguments]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}).stdout
    return [json.loads(line) for line in output.splitlines() if line.startswith('{"step"')]


GOLDEN.mkdir(exist_ok=True)
for name in sys.argv[1:] or RUNS:
    weights = str(GOLDEN / f"{name}.safetensors")
    if name.endswith("init"):
        run([*RUNS[name], "--save-weights", weights], 1)
        continue
    init = GOLDEN / ("mlp_init.safetensors" if name.startswith("mlp") else "init.safetensors")
    final = ["--save-final", weights] if name in WITH_WEIGHTS else []
    others = [] if "--max-norm" in RUNS[name] or "--clip-value" in RUNS[name] else ["--max-norm", "0.5"]
    steps = [] if "--steps" in RUNS[name] else ["--steps", "50" if "--clip-value" in RUNS[name] else "20"]
    rows = run([*RUNS[name], *steps, *others, "--weights", str(init), *final], 2)
    with open(GOLDEN / f"{name}.json", "w") as file:
        json.dump([{"step": r["step"], "loss": r["loss"], "grad_norm": r["grad_norm"]} for r in rows], file, indent=0)
        file.write("\n")
