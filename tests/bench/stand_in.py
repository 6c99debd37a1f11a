"""Plays Mantissa or a peer in bench_test.py: tells of steps that never happened, in the form of the real one.

STAND_IN_FAULT=IMPL:KIND lets one of them (mantissa, fsdp2, ddp) misbehave: "loss" tells another loss at step 2, "fail"
says why and ends with code 3, "hang" writes its process id to the file STAND_IN_PIDS and waits for ever.
"""

import json
import os
import pathlib
import sys
import time
import tomllib

STEP_MS = {"mantissa": 100.0, "fsdp2": 150.0, "ddp": 125.0}


def misbehave(who):
    impl, _, kind = os.environ.get("STAND_IN_FAULT", "").partition(":")
    if impl != who:
        return 0.0
    if kind == "fail":
        print("first words", file=sys.stderr)
        sys.exit("the stand-in was told to fail")
    if kind == "hang":
        with open(os.environ["STAND_IN_PIDS"], "a", encoding="utf-8") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(600)
    return 1e-3 if kind == "loss" else 0.0


def loss(step, offset):
    return 5.0 / (step + 1) + (offset if step == 2 else 0.0)


def mantissa(config_file):
    config = tomllib.loads(pathlib.Path(config_file).read_text(encoding="utf-8"))
    offset = misbehave("mantissa")
    folder = pathlib.Path(config["run"]["dir"]) / "bench" / "now"
    folder.mkdir(parents=True)
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as metrics:
        for step in range(config["run"]["steps"]):
            ms = STEP_MS["mantissa"]
            row = {"step": step, "loss": loss(step, offset), "grad_norm": 1.0, "step_ms": ms, "forward_ms": 0.3 * ms,
                   "backward_ms": 0.6 * ms, "comm_ms": 0.1 * ms, "optimizer_ms": 0.05 * ms}
            metrics.write(json.dumps(row) + "\n")
            print(f"step {step + 1:2}/{config['run']['steps']}  loss", flush=True)


def peer(arguments):
    options = dict(zip(arguments[::2], arguments[1::2]))
    if "--save-weights" in options:
        pathlib.Path(options["--save-weights"]).write_bytes(b"weights")
    offset = misbehave(options["--impl"])
    if os.environ["RANK"] != "0":
        return
    ms = STEP_MS.get(options["--impl"], 1.0)
    for step in range(int(options["--steps"])):
        parts = {"forward": 0.3 * ms, "backward": 0.5 * ms, "clip": 0.1 * ms, "optimizer": 0.05 * ms, "step": ms}
        print(json.dumps({"step": step, "loss": loss(step, offset), "grad_norm": 1.0, "ms": parts}), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "train":
        mantissa(sys.argv[2])
    elif sys.argv[1] == "version":
        print("mantissa 0.0.0")
    else:
        peer(sys.argv[1:])
