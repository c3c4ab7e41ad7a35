#!/usr/bin/env python3
"""Compare a run's TensorBoard events with its metrics.jsonl, and print the golden frames of tests/unit/report/test_events.c.

    pip install tensorboard            (written with 2.21; needs no TensorFlow)
    check_tensorboard.py OUTPUT_DIR    every number of metrics.jsonl must be there as f32, no other, nothing from cut steps
    check_tensorboard.py --golden      the same events encoded by TensorBoard's own protobuf classes, as C strings

C tests need no Python: this script is run by hand when the encoder changes.
"""
import json
import math
import pathlib
import struct
import sys

import numpy
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator, SCALARS
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator, TENSORS
from tensorboard.compat.proto import event_pb2
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c


def frame(event):
    data = event.SerializeToString(deterministic=True)
    length = struct.pack("<Q", len(data))
    return length + struct.pack("<I", masked_crc32c(length)) + data + struct.pack("<I", masked_crc32c(data))


def golden():
    version = event_pb2.Event(wall_time=1.5, file_version="brain.Event:2")
    restart = event_pb2.Event(wall_time=1.5, step=301)
    restart.session_log.status = event_pb2.SessionLog.START
    scalar = event_pb2.Event(wall_time=1.5, step=300)
    scalar.summary.value.add(tag="train/loss", simple_value=3.25)
    text = event_pb2.Event(wall_time=1.5, step=1 << 40)
    value = text.summary.value.add(tag="sample")
    value.metadata.plugin_data.plugin_name = "text"
    value.metadata.data_class = 2
    value.tensor.dtype = 7
    value.tensor.tensor_shape.dim.add(size=1)
    value.tensor.string_val.append("é\n" .encode() + b"x" * 200)
    for name, event in ("version", version), ("restart", restart), ("scalar", scalar), ("text", text):
        data = frame(event)
        print(f"/* {name}, {len(data)} bytes */")
        for i in range(0, len(data), 28):
            print('    "' + "".join(f"\\x{byte:02x}" for byte in data[i:i + 28]) + '"')


def number(value):
    return float({"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}.get(value, value))


def same(a, b):
    return (math.isnan(a) and math.isnan(b)) or a == b


def expected_scalars(folder):
    scalars = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        values = json.loads(line)
        step = values.pop("step")
        for name, value in values.items():
            tag = "eval/" + name[5:] if name.startswith("eval_") else "train/" + name
            with numpy.errstate(over="ignore"):
                scalars.setdefault(tag, []).append((step, float(numpy.float32(number(value)))))
    return scalars


def check_scalars(folder):
    """The library's classic reader, which keeps scalars as such."""
    events = EventAccumulator(str(folder / "runs"), size_guidance={SCALARS: 0}).Reload()
    expected = expected_scalars(folder)
    tags = events.Tags()["scalars"]
    assert sorted(tags) == sorted(expected), (tags, sorted(expected))
    for tag, want in expected.items():
        got = [(event.step, event.value) for event in events.Scalars(tag)]
        assert len(got) == len(want) and all(a[0] == b[0] and same(a[1], b[1]) for a, b in zip(got, want)), (tag, got, want)
    return expected


def check_plugins(folder, expected):
    """What the TensorBoard server uses: everything is a tensor with a plugin."""
    events = PluginEventAccumulator(str(folder / "runs"), size_guidance={TENSORS: 0}).Reload()
    for tag, want in expected.items():
        assert events.SummaryMetadata(tag).plugin_data.plugin_name == "scalars", tag
        assert [event.step for event in events.Tensors(tag)] == [step for step, _ in want], tag
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    for tag in {sample["tag"] for sample in samples}:
        got = [(event.step, event.tensor_proto.string_val[0].decode()) for event in events.Tensors(tag)]
        want = [(s["step"], "\n".join("    " + line for line in s["text"].split("\n"))) for s in samples if s["tag"] == tag]
        assert got == want, (tag, got, want)
        assert events.SummaryMetadata(tag).plugin_data.plugin_name == "text"
    return samples


def main(folder):
    expected = check_scalars(folder)
    samples = check_plugins(folder, expected)
    print(f"{len(expected)} scalar tags and {len(samples)} samples are as in metrics.jsonl and samples.jsonl")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    golden() if sys.argv[1] == "--golden" else main(pathlib.Path(sys.argv[1]))
