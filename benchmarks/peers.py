"""Other ways to log Z, side by side: seconds, evaluations, error and stated standard error on models of known log Z.

``python benchmarks/peers.py [--limit SECONDS] [--seed N] [--methods NAME ...] [--save FILE] [--plot FILE.png] [model
...]``.  Every call runs in a process of its own, one after the other.  The caches on disk, PyTensor's and ours, hold
what another model has left there, so that nothing of the model itself is compiled already.  Seconds are those of the
call, with its compilation and without imports.  Rows that FILE (JSON lines) already has are not run again.  Needs
``pip install blackjax nautilus-sampler dynesty pocomc nutpie``; what is not installed says so.
"""

import argparse
import importlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

MODELS = [
    "coal_mining:marginal",
    "radiata_pine:m1",
    "pima_friel_wyse:m1",
    "eight_schools:noncentred",
    "conjugate_zoo",
    "gbs_funnel16",
    "orthant:halfnormal",
    "hier_normal:H1",
    "brownian32",
    "many_well32:normal",
    "logistic_uci:ionosphere",
    "poe_vanhateren36:laplace_normal",
    "conjugate_regression50",
    "logistic_uci:sonar",
    "gaussian:900",
]
#: What fills the caches: a model of the gallery, and a method of each kind of compilation.
WARM_UP = "negative binomial", ["sample_hais", "sample_smc IMH", "dynesty", "NUTS + bridge"]
#: What samplers import while they compile.
LATE_IMPORTS = ["pytensor.link.numba.dispatch", "pymc_hais.engines.jax", "pymc_hais.engines.numba"]
COLUMNS = ["model", "D", "method", "log Z", "error", "se", "million evaluations", "of", "s", "CPU s", "outcome"]
#: An estimate is good if it is off by less, in nats.
GOOD = 0.2


def build(name: str):
    """Build a model; return it, the exact log Z and the log mass of a prior that PyMC does not normalise."""
    import cases
    import gallery
    from models import gaussian

    kind, _, variant = name.partition(":")
    model, log_z = gaussian(int(variant)) if kind == "gaussian" else gallery.build(name)
    return model, float("nan") if log_z is None else log_z, cases.LOG_PRIOR_MASS.get(kind, 0.0)


def run_one(name: str, method_name: str, seed: int) -> None:
    """Run one method in this process and print what it finds as JSON, the number of dimensions at once."""
    import numpy as np
    from peer_samplers import METHODS
    from peer_samplers.density import NoPriorTransform

    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    model, truth, log_mass = build(name)
    print(json.dumps({"D": int(sum(np.size(value) for value in model.initial_point().values()))}), flush=True)
    method = METHODS[method_name]
    try:
        for module in [method.package, *LATE_IMPORTS]:
            importlib.import_module(module)
    except ImportError as error:
        print(json.dumps({"failure": f"not installed: {error.name}"}))
        return
    begin, cpu = time.perf_counter(), sum(os.times()[:4])
    try:
        found = method.run(model, seed)
    except Exception as error:  # a failure is a result
        kind = "" if isinstance(error, NoPriorTransform) else f"{type(error).__name__}: "
        print(json.dumps({"failure": " ".join(f"{kind}{error}".split())[:80]}))
        return
    row = {"seconds": time.perf_counter() - begin, "cpu": sum(os.times()[:4]) - cpu, **found._asdict()}
    row["log_z"] -= log_mass if method.integrates_logp else 0.0
    print(json.dumps(row | {"error": row["log_z"] - truth}))


def run_apart(name: str, method: str, seed: int, limit: float, caches: Path) -> dict:
    """Run one method in a process group of its own; a failure or a time-out is a result."""
    flags = f"{os.environ.get('PYTENSOR_FLAGS', '')},base_compiledir={caches / 'pytensor'}".lstrip(",")
    process = subprocess.Popen(
        [sys.executable, __file__, "--one", name, method, str(seed)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTENSOR_FLAGS": flags, "PYMC_HAIS_CACHE": str(caches / "hais")},
    )
    row, failure = {"model": name, "method": method, "seed": seed}, {}
    try:
        out, err = process.communicate(timeout=limit)
        if process.returncode:
            failure = {"failure": (err.strip().splitlines() or [f"exit status {process.returncode}"])[-1][:80]}
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, _ = process.communicate()
        failure = {"failure": f"over {limit:.0f} s"}
    for line in out.splitlines():
        if line.startswith("{"):
            row |= json.loads(line)
    return row | failure


class Caches:
    """A folder of caches that every process finds as the warm-up left them."""

    def __init__(self, folder: str) -> None:
        self._current, self._warm = Path(folder, "current"), Path(folder, "warm")

    def restore(self) -> Path:
        """Return the folder to use; numba's own entries are tied to its path."""
        if not self._warm.exists():
            self._current.mkdir()
            name, methods = WARM_UP
            for method in methods:
                run_apart(name, method, 1, 600.0, self._current)
            shutil.copytree(self._current, self._warm)
        shutil.rmtree(self._current)
        shutil.copytree(self._warm, self._current)
        return self._current


def describe(row: dict) -> str:
    """Describe a row on a line of the table."""
    cells = [row["model"], str(row.get("D", "")), row["method"]]
    if "failure" in row:
        return f"| {' | '.join(cells + [''] * 7)} | {row['failure']} |"
    se = "" if row["se"] is None else f"{row['se']:.3f}"
    cells += [f"{row['log_z']:.3f}", f"{row['error']:+.3f}", se, f"{row['n_evaluations'] / 1e6:.3f}"]
    cells += ["gradients" if row["has_gradients"] else "densities", f"{row['seconds']:.1f}", f"{row['cpu']:.1f}"]
    return f"| {' | '.join(cells)} | {row['findings'] or 'ok'} |"


def summarise(rows: list[dict]) -> None:
    """Print, for each model, the fastest good method and the fastest good one beside sample_hais."""
    print(f"\n| model | D | fastest within {GOOD} | s | sample_hais s | fastest peer | s | peer / sample_hais |")
    print("| --- " * 8 + "|")
    for name in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == name]
        good = sorted((row for row in own if abs(row.get("error", GOOD)) < GOOD), key=lambda row: row["seconds"])
        ours = next((row for row in good if row["method"] == "sample_hais"), None)
        peer = next((row for row in good if row is not ours), None)
        cells = [name, str(own[0].get("D", "")), *_fast(good[0] if good else None), _fast(ours)[1], *_fast(peer)]
        ratio = f"{peer['seconds'] / ours['seconds']:.2f}" if peer and ours else ""
        print(f"| {' | '.join(cells)} | {ratio} |")


def _fast(row: dict | None) -> tuple[str, str]:
    return ("none", "") if row is None else (row["method"], f"{row['seconds']:.1f}")


def plot(rows: list[dict], path: str) -> None:
    """Draw errors against seconds; a method's failures are counted at the right edge."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 5.5), layout="constrained")
    methods = list(dict.fromkeys(row["method"] for row in rows))
    for i, (method, marker) in enumerate(zip(methods, "osD^vPX*<>hd", strict=False)):
        own = [row for row in rows if row["method"] == method]
        done = [row for row in own if "failure" not in row]
        seconds, errors = [row["seconds"] for row in done], [max(abs(row["error"]), 1e-4) for row in done]
        points = axes.scatter(seconds, errors, marker=marker, label=method, alpha=0.75)
        if len(done) < len(own):
            place, color = (1.03, 0.95 - 0.1 * i), points.get_facecolor()
            axes.scatter(*place, marker=marker, color=color, transform=axes.transAxes, clip_on=False)
            axes.text(1.05, place[1], f"{len(own) - len(done)}", va="center", transform=axes.transAxes)
    axes.text(1.0, 1.02, "no result", transform=axes.transAxes)
    axes.axhline(GOOD, color="0.6", linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="seconds, with compilation", ylabel="|error of log Z| (nats)")
    figure.legend(loc="outside lower center", ncols=4)
    figure.savefig(path, dpi=150)


def run_all(options: argparse.Namespace, names: list[str]) -> list[dict]:
    """Run what is not in the file yet, and print the table."""
    saved = Path(options.save) if options.save else None
    lines = saved.read_text().splitlines() if saved and saved.exists() else []
    known = {(row["model"], row["method"], row["seed"]): row for row in map(json.loads, lines)}
    rows = []
    print(f"| {' | '.join(COLUMNS)} |\n" + "| --- " * len(COLUMNS) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        caches = Caches(folder)
        for key in ((name, method, options.seed) for name in names for method in options.methods):
            row = known.get(key) or run_apart(*key, options.limit, caches.restore())
            rows.append(row)
            print(describe(row), flush=True)
            if saved and key not in known:
                with saved.open("a") as file:
                    print(json.dumps(row), file=file)
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        name, method, seed = sys.argv[2:]
        run_one(name, method, int(seed))
        return
    from cases import CASES
    from peer_samplers import METHODS

    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=MODELS)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--methods", nargs="+", choices=list(METHODS), default=list(METHODS))
    parser.add_argument("--save")
    parser.add_argument("--plot")
    options = parser.parse_args()
    names = options.names
    if not CASES.exists():
        print("skipped: all but the Gaussian model, since the shared cases are not beside the repository")
        names = [name for name in names if name.startswith("gaussian:")]
    rows = run_all(options, names)
    summarise(rows)
    if options.plot:
        plot(rows, options.plot)


if __name__ == "__main__":
    main()
