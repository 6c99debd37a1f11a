"""The sides of a comparison: Mantissa and PyTorch's own trainers, started alike and read into one form.

A run is N ranks of one thread each. Of each step it keeps the loss, the whole step's time on rank 0 (forward, backward,
clip, optimizer and the ranks' agreement on the loss; no logging) and the parts of it that both sides know.
"""

import ctypes
import dataclasses
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import threading
import time


class SideFailed(Exception):
    """A side did not do its run; the text says which, how and why."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What is trained. Every side gets the same weights and the same batches."""
    name: str
    title: str
    rows: int  # of the whole step, over all ranks
    layers: int = 4
    width: int = 256
    heads: int = 4
    context: int = 128
    # Both trainers clip by this norm and use AdamW with these.
    max_norm: float = 1.0
    lr: float = 3e-4
    weight_decay: float = 0.1


@dataclasses.dataclass(frozen=True)
class Job:
    """What a run needs besides its setting."""
    steps: int
    ranks: int
    data: pathlib.Path
    weights: pathlib.Path
    folder: pathlib.Path  # of this run alone
    program: pathlib.Path
    peer: pathlib.Path
    limit_s: float


class Processes:
    """The processes of one run. They end with the `with` block, and with this process, however it ends."""

    def __init__(self, commands, folder, environments, limit_s):
        self.started = time.monotonic()
        self.limit_s = limit_s
        self.timed_out = False
        self.errors = folder / "stderr.txt"
        self.children = []
        self.watchdog = threading.Timer(limit_s, self._time_is_up)
        self.watchdog.daemon = True
        try:
            with open(self.errors, "wb") as errors:
                for rank, (command, environment) in enumerate(zip(commands, environments)):
                    self.children.append(subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if rank == 0 else subprocess.DEVNULL,
                        stderr=errors, env={**os.environ, **environment}, start_new_session=True,
                        preexec_fn=_die_with_parent, text=True))
        except BaseException:
            self.end()
            raise
        self.watchdog.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.watchdog.cancel()
        self.end()

    def _time_is_up(self):
        self.timed_out = True
        self.end()

    def lines(self):
        """Yields (seconds since the start, line) of rank 0's output."""
        for line in self.children[0].stdout:
            yield time.monotonic() - self.started, line.rstrip("\n")

    def finish(self, who):
        """Waits for all of them. Throws SideFailed, with their last words, if one has failed or the time was up."""
        codes = [child.wait() for child in self.children]
        if self.timed_out:
            raise SideFailed(f"{who} was not done after {self.limit_s:g} s")
        code = next((code for code in codes if code != 0), 0)
        if code != 0:
            raise SideFailed(f"{who} ended with exit code {code}: {self.last_error()}")

    def end(self):
        for child in self.children:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
        for child in self.children:
            child.wait()

    def last_error(self):
        lines = [line.strip() for line in self.errors.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"


def _die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


class Memory(threading.Thread):
    """Samples the proportional set size (PSS) of a run's processes, summed, and keeps the peak."""

    def __init__(self, processes, interval_s=0.02):
        super().__init__(daemon=True)
        self.roots = [child.pid for child in processes.children]
        self.interval_s = interval_s
        self.done = threading.Event()
        self.peak_mb = 0.0

    def run(self):
        while not self.done.wait(self.interval_s):
            pids = [pid for root in self.roots for pid in _tree(root)]
            self.peak_mb = max(self.peak_mb, sum(map(_pss_bytes, pids)) / 1e6)

    def stop(self):
        self.done.set()
        self.join()


def _tree(pid):
    pids = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            children = pathlib.Path(f"/proc/{pid}/task/{task}/children").read_text()
            pids += [found for child in children.split() for found in _tree(int(child))]
    except OSError:
        pass  # it has ended
    return pids


def _pss_bytes(pid):
    try:
        rollup = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    found = re.search(r"^Pss:\s+(\d+) kB", rollup, re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def _toml(value):
    return json.dumps(str(value) if isinstance(value, pathlib.Path) else value)


class Mantissa:
    """Our program, by `mantissa train --ranks N`; one row of metrics.jsonl a step."""

    def __init__(self, key, title, sharding, param_dtype="float32"):
        self.key, self.title, self.sharding, self.param_dtype = key, title, sharding, param_dtype

    def config(self, setting, job):
        return "\n".join([
            "[run]", 'name = "bench"', f"steps = {job.steps}", f"dir = {_toml(job.folder / 'runs')}",
            "[model]", 'kind = "gpt"', f"layers = {setting.layers}", f"width = {setting.width}",
            f"heads = {setting.heads}", f"context = {setting.context}", f"init = {_toml(job.weights)}",
            "[data]", f"path = {_toml(job.data)}", "heldout = 0.0",
            "[train]", f"batch = {setting.rows}",
            "[optimizer]", f"lr = {setting.lr!r}", f"weight_decay = {setting.weight_decay!r}",
            "[precision]", 'plugin = "fsdp_norm"',
            "[precision.options]", f'param_dtype = "{self.param_dtype}"',
            "[clip]", f"max_norm = {setting.max_norm!r}",
            "[fsdp]", f'sharding = "{self.sharding}"',
            "[distributed]", "threads = 1",
            "[log]", "every = 1", ""])

    def start(self, setting, job):
        file = job.folder / "run.toml"
        file.write_text(self.config(setting, job), encoding="utf-8")
        return Processes([[str(job.program), "train", str(file), "--ranks", str(job.ranks)]], job.folder,
                         [{"OMP_NUM_THREADS": "1"}], job.limit_s)

    def is_first_step(self, line):
        return re.search(r"\bstep\s+1/", line) is not None

    def steps(self, _lines, job):
        (file,) = (job.folder / "runs" / "bench").glob("*/metrics.jsonl")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        return [{"loss": row["loss"], "grad_norm": row["grad_norm"],
                 "ms": {"step": row["step_ms"], "forward": row["forward_ms"], "backward": row["backward_ms"],
                        "comm": row["comm_ms"], "optimizer": row["optimizer_ms"]}} for row in rows]


class PyTorch:
    """PyTorch's own trainer, by the program of the parity tests; its ranks are started without torchrun, which would
    add its own start and memory."""

    def __init__(self, key, title, implementation, param_dtype="float32"):
        self.key, self.title, self.implementation, self.param_dtype = key, title, implementation, param_dtype

    def start(self, setting, job, more=()):
        command = [sys.executable, "-B", str(job.peer), "--impl", self.implementation, "--data", str(job.data),
                   "--steps", str(job.steps), "--layers", str(setting.layers), "--width", str(setting.width),
                   "--heads", str(setting.heads), "--ctx", str(setting.context), "--batch", str(setting.rows),
                   "--max-norm", repr(setting.max_norm), "--lr", repr(setting.lr),
                   "--weight-decay", repr(setting.weight_decay), "--param-dtype", self.param_dtype, *more]
        if job.weights.exists():
            command += ["--weights", str(job.weights)]
        common = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()),
                  "WORLD_SIZE": str(job.ranks)}
        return Processes([command] * job.ranks, job.folder,
                         [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(job.ranks)],
                         job.limit_s)

    def is_first_step(self, line):
        return line.startswith('{"step": 0,')

    def steps(self, lines, _job):
        rows = [json.loads(line) for line in lines if line.startswith('{"step"')]
        return [{key: row[key] for key in ("loss", "grad_norm", "ms")} for row in rows]


def _free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


SIDES = {side.key: side for side in (Mantissa("mantissa", "Mantissa", "full"),
                                     Mantissa("mantissa_ddp", "Mantissa, unsharded", "none"),
                                     PyTorch("fsdp2", "FSDP2", "fsdp2"), PyTorch("ddp", "DDP", "ddp"),
                                     Mantissa("mantissa_bf16", "Mantissa, bfloat16", "full", "bfloat16"),
                                     PyTorch("fsdp2_bf16", "FSDP2, bfloat16", "fsdp2", "bfloat16"))}


def run(side, setting, job, with_memory=False):
    """One run of one side: {"steps": [...], "start_s": ..., "pss_mb": ... (with_memory only)}. Sampling memory slows
    the run, so that its times are not for use. Throws SideFailed."""
    who = f"{side.title} ({setting.title}, {job.ranks} ranks)"
    with side.start(setting, job) as processes:
        memory = Memory(processes) if with_memory else None
        if memory:
            memory.start()
        lines, first_s = [], None
        for seconds, line in processes.lines():
            lines.append(line)
            if first_s is None and side.is_first_step(line):
                first_s = seconds
        processes.finish(who)
        if memory:
            memory.stop()
    steps = side.steps(lines, job)
    if len(steps) != job.steps or first_s is None:
        raise SideFailed(f"{who} told of {len(steps)} steps, but was asked for {job.steps}")
    result = {"start_s": first_s - steps[0]["ms"]["step"] / 1e3, "steps": steps}
    if memory:
        result["pss_mb"] = memory.peak_mb
    return result


def write_weights(setting, job):
    """Writes the weights that every side starts from to job.weights: PyTorch's initialisation from seed 0."""
    side = PyTorch("single", "PyTorch, writing the weights", "single")
    start = dataclasses.replace(job, steps=1, ranks=1, weights=pathlib.Path("/nonexistent"))
    with side.start(setting, start, ["--save-weights", str(job.weights)]) as processes:
        for _ in processes.lines():
            pass
        processes.finish(side.title)
