"""Sets the figures of bench/gpu-io beside their targets and what the machine can do.

usage: gpu_io_summary.py FOLDER
"""

import json
import pathlib
import sys

folder = pathlib.Path(sys.argv[1])


def runs(name):
    """Runs of every file of that name; a missing one is no run."""
    found = []
    for path in sorted(folder.glob(name + ".json")):
        found += json.loads(path.read_text())["runs"]
    return found


def best(name):
    """The fastest run, GB/s; 0 where there is none."""
    return max((run["gb_per_s"] for run in runs(name)), default=0.0)


def ceilings():
    """Highest recorded value by kind of measure."""
    values = {}
    record = json.loads((folder / "ceilings.json").read_text())

    def walk(node):
        if isinstance(node, dict):
            measure, samples = node.get("measure"), node.get("samples")
            if isinstance(measure, dict) and isinstance(samples, list):
                top = max(sample["value"] for sample in samples)
                kind = measure["kind"]
                values[kind] = max(values.get(kind, 0.0), top)
            for child in node.values():
                walk(child)
        elif isinstance(node, list):
            for child in node:
                walk(child)

    walk(record)
    return values


def row(what, value, unit, target, passed):
    print(f"{what:<52} {value:>8.2f} {unit:<5} {target:<44} {'yes' if passed else 'NO'}")


print(f"{'':<52} {'':>8} {'':<5} {'target':<44} met")
known = ceilings()
link = known.get("host_to_device", 0.0)
host_cold = best("cold-host-*")
gpu_cold = best("cold-gpu-*")
share = gpu_cold / host_cold if host_cold else 0.0
row("cold file to host, best way and threads", host_cold, "GB/s", "(the ceiling)", True)
row("cold file to GPU", gpu_cold, "GB/s", f">= 95% of it; it is {share:.0%}", share >= 0.95)
row("copy ceiling, pinned host memory to GPU", link, "GB/s", "(the ceiling)", True)
for what, name, target in [
    ("page cache to GPU", "page-cache-*gpu", 52),
    ("tmpfs to GPU, registered mapping", "tmpfs-registered-gpu", 55),
    ("tmpfs to GPU, slots", "tmpfs-slots-gpu", 52),
]:
    value = best(name)
    row(what, value, "GB/s", f">= {target}", value >= target)
first = [
    ((run.get("ring") or {}).get("first_ready_ns", 0) + run["first_chunk_ns"]) / 1e6
    for run in runs("tmpfs-slots-gpu")[:1]
]
if first:
    row("first chunk after the context is ready", first[0], "ms", "<= 100", first[0] <= 100)
verified = runs("*-verified-gpu")
clean = bool(verified) and all(
    run["verification"] and run["verification"]["mismatch_count"] == 0 for run in verified
)
row("verified runs without a mismatch", len(verified), "runs", "all", clean)
for path in sorted(folder.glob("tmpfs-*-[0-9]*-gpus.json")):
    name = path.stem
    value = best(name)
    print(f"{name:<52} {value:>8.2f} GB/s  {value / link if link else 0:.2f} x one link")
