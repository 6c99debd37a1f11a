"""Loss scaling step by step as torch.amp.GradScaler does it: grad_scaler_check.py MANTISSA

PyTorch trains here and now, not by golden numbers: which step overflows depends on how this processor rounds float16.
Scales and skips must be equal at every step; losses within 2e-2 relative.
"""
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile

try:
    import safetensors.torch  # noqa: F401: the peer needs it
    import torch  # noqa: F401
except ImportError as error:
    print(f"skipped: {error} (./dev setup installs torch and safetensors)")
    sys.exit(77)

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
TEXT, WEIGHTS = ROOT / "LICENSE", HERE / "golden/init.safetensors"
STEPS, INIT_SCALE, GROWTH_INTERVAL = 50, 2**24, 8
LIMIT_S = 200
CONFIG = f"""
[run]
name = "scales"
steps = {STEPS}
[model]
kind = "gpt"
layers = 2
width = 32
heads = 2
context = 32
init = "{WEIGHTS}"
[data]
path = "{TEXT}"
heldout = 0.0
[train]
batch = 12
[optimizer]
lr = 3e-3
[precision]
plugin = "amp"
[precision.options]
dtype = "float16"
init_scale = {float(INIT_SCALE)}
growth_interval = {GROWTH_INTERVAL}
[clip]
max_norm = 0.5
[log]
every = 1
"""


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def pytorch(ranks):
    command = [sys.executable, "-B", str(HERE / "fsdp2_gpt.py"), "--data", str(TEXT), "--weights", str(WEIGHTS), "--layers", "2",
               "--width", "32", "--heads", "2", "--ctx", "32", "--lr", "3e-3", "--batch", "12", "--autocast", "float16", "--scaler",
               str(INIT_SCALE), str(GROWTH_INTERVAL), "--max-norm", "0.5", "--steps", str(STEPS),
               "--impl", "single" if ranks == 1 else "ddp"]
    common = {**os.environ, "OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": str(ranks)}
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**common, "RANK": str(rank)}) for rank in range(ranks)]
    try:
        out = children[0].communicate(timeout=LIMIT_S)[0]
        for child in children:
            child.wait(timeout=LIMIT_S)
    finally:
        for child in children:
            child.kill()
    return [json.loads(line) for line in out.splitlines() if line.startswith('{"step"')]


def mantissa(program, ranks, sharding):
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "run.toml").write_text(CONFIG, encoding="utf-8")
        subprocess.run([program, "train", "run.toml", "-q", "--ranks", str(ranks), "--set", f'fsdp.sharding="{sharding}"'],
                       cwd=folder, check=True, timeout=LIMIT_S)
        (metrics,) = pathlib.Path(folder).glob("runs/*/*/metrics.jsonl")
        return [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]


def check(ours, theirs, where):
    assert len(ours) == len(theirs) == STEPS, f"{where}: {len(ours)} and {len(theirs)} steps"
    skipped = 0
    for mine, other in zip(ours, theirs):
        at = f"{where}, step {other['step']}"
        skipped += other["skipped"]
        assert mine["loss_scale"] == other["scale"], f"{at}: scale {mine['loss_scale']}, PyTorch has {other['scale']}"
        assert mine["skipped_total"] == skipped, f"{at}: {mine['skipped_total']} skips, PyTorch has {skipped}"
        assert abs(mine["loss"] - other["loss"]) <= 2e-2 * other["loss"], f"{at}: loss {mine['loss']}, PyTorch has {other['loss']}"
    assert skipped >= 3 and any(a["scale"] < b["scale"] for a, b in zip(theirs, theirs[1:])), f"{where}: nothing happens"
    print(f"{where}: {skipped} skips and all {STEPS} scales as PyTorch")


for ranks in (1, 2):
    theirs = pytorch(ranks)
    for sharding in ("full", "none"):
        check(mantissa(str(pathlib.Path(sys.argv[1]).resolve()), ranks, sharding), theirs, f"{ranks} ranks, sharding {sharding}")
