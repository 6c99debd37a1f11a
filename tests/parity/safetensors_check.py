"""Weights go both ways between Mantissa and Python's safetensors: safetensors_check.py DRIVER (see safetensors_driver.cpp)."""
import pathlib
import subprocess
import sys
import tempfile

try:
    import torch
    from safetensors.torch import load_file, save_file
except ImportError as error:
    print(f"skipped: {error} (./dev setup installs torch and safetensors)")
    sys.exit(77)


def known(shape, dtype):
    count = 1
    for extent in shape:
        count *= extent
    raw = torch.arange(count) * 7 + 3
    if dtype == torch.bool:
        return (raw % 2).to(dtype).reshape(shape)
    return (raw % 50 - (0 if dtype == torch.uint8 else 20)).to(dtype).reshape(shape)


TENSORS = {
    "blocks.10.weight": known([5, 3], torch.float32),
    "blocks.2.weight": known([5, 3], torch.float32),
    "f64": known([7], torch.float64),
    "f16": known([3], torch.float16),
    "bf16": known([2, 2, 2], torch.bfloat16),
    "i64": known([4], torch.int64),
    "i32": known([4], torch.int32),
    "i16": known([3], torch.int16),
    "i8": known([3], torch.int8),
    "u8": known([5], torch.uint8),
    "bool": known([3], torch.bool),
    "scalar": known([], torch.float32),
    "empty": known([0, 4], torch.float32),
    'n\u00e4me "quoted"\n': known([1], torch.float32),
}


def main(driver):
    with tempfile.TemporaryDirectory() as folder:
        ours, theirs = pathlib.Path(folder, "ours"), pathlib.Path(folder, "theirs")
        subprocess.run([driver, "write", ours], check=True)
        loaded = load_file(ours)
        assert loaded.keys() == TENSORS.keys(), loaded.keys() ^ TENSORS.keys()
        for name, expected in TENSORS.items():
            assert loaded[name].dtype == expected.dtype, name
            assert torch.equal(loaded[name], expected), name
        save_file(TENSORS, theirs, {"format": "pt"})
        subprocess.run([driver, "check", theirs], check=True)
        assert ours.read_bytes() == theirs.read_bytes(), "the two files are not the same bytes"
    print("same tensors and same bytes, both ways")


main(sys.argv[1])
