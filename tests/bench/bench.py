#!/usr/bin/env python3
"""Compares Mantissa's speed and memory with PyTorch's FSDP2 and DDP: `./dev bench` sets up what it needs and starts it.

Each setting begins with a round in which only memory is measured; then come timed rounds, in each of which every side
runs once, in changing order. All sides start from the same weights and get the same batches; a run in which their losses
differ counts for nothing, and the comparison ends there. All raw numbers are kept as JSON.
"""

import argparse
import dataclasses
import datetime
import importlib.metadata
import importlib.util
import json
import os
import pathlib
import platform
import shutil
import signal
import subprocess
import sys
import tempfile

import results
import sides
import tables

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs/performance.md"

# An MLP has its place here once the program has such a model.
SETTINGS = (sides.Setting(name="gpt", title="GPT 3.3 M, 16 rows", rows=16),
            sides.Setting(name="gpt-small-batch", title="GPT 3.3 M, 4 rows", rows=4))
ALL_SIDES = ("mantissa", "fsdp2", "mantissa_ddp", "ddp", "mantissa_bf16", "fsdp2_bf16")
PAIRS = (("fsdp2", "mantissa"), ("ddp", "mantissa"), ("ddp", "mantissa_ddp"), ("mantissa", "mantissa_bf16"),
         ("fsdp2_bf16", "mantissa_bf16"))


class Unusable(Exception):
    """Something that the comparison needs is missing or wrong."""


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def parse_arguments(arguments):
    def count(text):
        value = int(text)
        if value < 1:
            raise argparse.ArgumentTypeError(f"{value} is less than 1")
        return value
    parser = argparse.ArgumentParser(prog="./dev bench", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--rounds", type=count, default=7, help="timed rounds of a setting (7)")
    add("--steps", type=count, default=20, help="steps of a run (20)")
    add("--warmup", type=int, default=5, help="first steps of a run that do not count (5)")
    add("--ranks", type=count, default=2, help="processes of a side, one thread each (2)")
    add("--setting", action="append", choices=[setting.name for setting in SETTINGS],
        help="only this one; may be repeated")
    add("--quick", action="store_true", help="the first setting, 2 rounds of 8 steps: to try it, not to quote it")
    add("--no-micro", action="store_true", help="leave out the micro benchmarks")
    add("--from", dest="kept", type=pathlib.Path, metavar="JSON", help="measure nothing, show this kept result")
    add("--write-docs", action="store_true", help="put the tables into docs/performance.md")
    add("--out", type=pathlib.Path, default=ROOT / "build/bench", help="folder of the JSON files (build/bench)")
    add("--build", type=pathlib.Path, default=ROOT / "build/release", help="the build that is measured (build/release)")
    add("--data", type=pathlib.Path, default=ROOT / "build/data/kjv.txt", help="the text (build/data/kjv.txt)")
    add("--peer", type=pathlib.Path, default=ROOT / "tests/parity/fsdp2_gpt.py", help=argparse.SUPPRESS)
    add("--limit-s", type=float, default=600, help="longest time of one run in seconds (600)")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.steps, options.warmup = 2, 8, 3
        options.setting = options.setting or [SETTINGS[0].name]
    if not 0 <= options.warmup < options.steps:
        parser.error(f"--warmup is {options.warmup}, but must be from 0 up to, not including, --steps {options.steps}")
    smallest = min(setting.rows for setting in chosen(options))
    if options.ranks > smallest:
        parser.error(f"--ranks is {options.ranks}, but a setting has {smallest} rows, and each rank needs one")
    return options


def chosen(options):
    return [setting for setting in SETTINGS if not options.setting or setting.name in options.setting]


def check_usable(options):
    program = options.build / "bin/mantissa"
    for file, remedy in ((program, "./dev build"), (options.data, "./dev bench writes it; --data names another"),
                         (options.peer, "it belongs to the checkout")):
        if not file.is_file():
            raise Unusable(f"there is no {file}: {remedy}")
    for package in ("torch", "numpy", "safetensors"):
        if importlib.util.find_spec(package) is None:
            raise Unusable(f"{sys.executable} has no Python package {package}, which the peers need: ./dev bench "
                           "installs it, but MANTISSA_TORCH must then name a torch package of this Python's version")
    if options.ranks > os.cpu_count():
        say(f"note: {options.ranks} ranks share {os.cpu_count()} cores, so the numbers say little")
    return program


# --- what is measured -------------------------------------------------------------------------------------------------

def one_round(setting, job, folder, order, with_memory=False):
    """{side: run} in the order of ALL_SIDES, so that ours is what others are compared with; losses are checked."""
    runs = {}
    for key in order:
        place = folder / key
        place.mkdir(parents=True)
        runs[key] = sides.run(sides.SIDES[key], setting, dataclasses.replace(job, folder=place), with_memory)
        shutil.rmtree(place)
    runs = {key: runs[key] for key in ALL_SIDES}
    return runs, results.check_losses(runs, setting.title)


def measure(setting, job, options):
    folder = job.folder / setting.name
    folder.mkdir()
    job = dataclasses.replace(job, weights=folder / "init.safetensors", folder=folder)
    sides.write_weights(setting, job)
    say(f"{setting.title}: memory, {len(ALL_SIDES)} runs of {options.steps} steps")
    memory, largest = one_round(setting, job, folder / "memory", ALL_SIDES, with_memory=True)
    rounds = []
    for index in range(options.rounds):
        order = results.order_of(index, ALL_SIDES)
        runs, difference = one_round(setting, job, folder / str(index), order)
        largest = max(largest, difference)
        rounds.append({"order": order, "runs": runs})
        told = ", ".join(f"{tables.TITLES[key]} {results.median_ms(run, 'step', options.warmup):.1f}"
                         for key, run in runs.items())
        say(f"{setting.title}: round {index + 1} of {options.rounds}, ms a step: {told}")
    result = {**dataclasses.asdict(setting), "sides": ALL_SIDES, "largest_loss_difference": largest,
              "memory_round": memory, "rounds": rounds}
    result["summary"] = results.summarize(result, PAIRS, options.warmup)
    return result


def micro_benchmarks(options, folder):
    program = options.build / "tests/micro_bench"
    if not program.is_file():
        say(f"the micro benchmarks are left out: there is no {program}; it is built where libbenchmark-dev is installed")
        return None
    say("micro benchmarks")
    file = folder / "micro.json"
    command = [str(program), f"--benchmark_out={file}", "--benchmark_out_format=json"]
    if options.quick:
        command.append("--benchmark_min_time=0.05")
    with sides.Processes([command], folder, [{"OMP_NUM_THREADS": "1"}], options.limit_s) as processes:
        for _ in processes.lines():
            pass
        processes.finish("the micro benchmarks")
    micro = json.loads(file.read_text(encoding="utf-8"))
    for row in micro["benchmarks"]:
        if row.get("error_occurred"):
            raise sides.SideFailed(f"micro benchmark {row['name']}: {row['error_message']}")
    return micro


# --- where and with what ----------------------------------------------------------------------------------------------

def machine():
    cpu = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo", encoding="utf-8")
                if line.startswith("model name")), platform.machine())
    return {"cpu": cpu, "cores": os.cpu_count(), "kernel": platform.release(), "load_before": os.getloadavg()[0],
            "memory_gb": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9}


def output_of(*command):
    try:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def versions(program):
    said = output_of(str(program), "version").splitlines()
    commit = output_of("git", "rev-parse", "--short=12", "HEAD")
    changed = output_of("git", "status", "--porcelain", "--untracked-files=no")
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:  # a folder of packages without their metadata
        torch = "unknown"
    return {"mantissa": said[0].removeprefix("mantissa ") if said else "unknown", "program": said,
            "commit": commit + (" with changes" if changed else ""), "torch": torch,
            "python": platform.python_version()}


# --- the whole --------------------------------------------------------------------------------------------------------

def compare(options, folder):
    program = check_usable(options)
    now = datetime.datetime.now(datetime.timezone.utc)
    result = {"time": now.strftime("%Y-%m-%d %H:%M UTC"), "machine": machine(), "versions": versions(program),
              "options": {key: getattr(options, key) for key in ("rounds", "steps", "warmup", "ranks", "quick")}}
    job = sides.Job(steps=options.steps, ranks=options.ranks, data=options.data.resolve(), weights=pathlib.Path(),
                    folder=folder, program=program.resolve(), peer=options.peer.resolve(), limit_s=options.limit_s)
    result["settings"] = [measure(setting, job, options) for setting in chosen(options)]
    result["micro"] = None if options.no_micro else micro_benchmarks(options, folder)
    result["machine"]["load_after"] = os.getloadavg()[0]
    keep(result, options.out / now.strftime("%Y%m%dT%H%M%SZ.json"))
    return result


def keep(result, file):
    aside = file.with_suffix(".new")
    aside.write_text(json.dumps(result, indent=1), encoding="utf-8")
    os.replace(aside, file)
    say(f"kept in {file}")


def write_docs(result):
    if result["options"]["quick"]:
        raise Unusable("a --quick result is not for docs/performance.md: leave out --quick")
    DOCS.write_text(tables.into_docs(DOCS.read_text(encoding="utf-8"), tables.report(result)), encoding="utf-8")
    say(f"written: {DOCS}")


def run(options):
    if options.kept:
        result = json.loads(options.kept.read_text(encoding="utf-8"))
    else:
        options.out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="work-", dir=options.out) as folder:
            result = compare(options, pathlib.Path(folder))
    print(tables.report(result))
    if options.write_docs:
        write_docs(result)


def stop(*_):
    raise KeyboardInterrupt


def main():
    options = parse_arguments(sys.argv[1:])
    signal.signal(signal.SIGTERM, stop)
    try:
        run(options)
    except KeyboardInterrupt:
        say("stopped; nothing was kept")
        sys.exit(130)
    except (sides.SideFailed, results.LossesDiffer, Unusable, OSError, ValueError) as error:
        say(f"error: {error}")
        sys.exit(1)


if __name__ == "__main__":
    main()
