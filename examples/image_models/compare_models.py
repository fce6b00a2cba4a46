"""Compare six models of natural images by their log-likelihood of held-out patches.

Table 1 and Figure 5 of Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, on prepared patches of a van Hateren image
where ../shared/cases has them, else on photographs that ship with scikit-learn and scikit-image.  From the root of the
repository::

    python -m examples.image_models.compare_models            # 16x16 patches, 36 components, 100 rows
    python -m examples.image_models.compare_models --small    # 16 components, 20 rows: 3 minutes of CPU

Each entry is written to compare_models.json in the working folder, or where ``--json`` says, as soon as it is
finished; what it holds already is not measured again.  ``--draw`` only prints and draws what it holds.

The report's own settings, into a file of their own (their finding ``standard_error`` says nothing: the error is not
what decides)::

    python -m examples.image_models.compare_models --n-temperatures 100000 --particles 200 --json report.json
"""

import argparse
import json
import logging
from dataclasses import asdict
from pathlib import Path

import numpy as np

from examples.image_models import bilinear, linear_gaussian, linear_laplace, mcrbm, poe_laplace, poe_student
from examples.image_models.figure import draw
from examples.image_models.patches import VAN_HATEREN, Patches, load_patches, load_van_hateren
from examples.image_models.scoring import compare_with_another, score
from examples.image_models.table import MODELS, conclude, show, show_head
from examples.image_models.training import train

MODULES = dict(zip(MODELS, (linear_gaussian, linear_laplace, bilinear, poe_laplace, poe_student, mcrbm), strict=True))
GENERATIVE = ("linear, Laplace", "bilinear")
#: Sizes as multiples of the number of components; a bilinear model counts causes and intensities together.
SIZES = {
    "linear, Gaussian": (1,),
    "linear, Laplace": (1, 2, 4),
    "bilinear": (1.25, 2),
    "experts, Laplace": (1, 2, 4),
    "experts, Student-t": (1, 2, 4),
    "mcRBM": (2, 4, 8),
}
#: Steps of training by its method.
STEPS = {"closed form": 0, "EM": 1500, "flow": 400, "chains": 1500}
SMALL_STEPS = {"closed form": 0, "EM": 500, "flow": 100, "chains": 500}
#: A row's error of 0.3 nats is far below the spread between rows.
SETTINGS = {"small": {"target_se": 0.5, "max_temperatures": 500}, "full": {"target_se": 0.3, "max_temperatures": 4000}}
#: An error that is never reached: each row then has as many temperatures as it may have.
NEVER = 1e-9
#: Rows of a generative model that are scored once more.
N_AGAIN = {"small": 5, "full": 20}
IS_SMALL = {True: "small", False: "full"}


def entries(arguments: argparse.Namespace, n_dims: int) -> list[tuple[str, int, str]]:
    """List what is to be measured: model, size and method of training, the smallest sizes first."""
    listed = []
    for name in arguments.models:
        own = ("closed form",) if "Gaussian" in name else ("EM",) if name in GENERATIVE else ("flow", "chains")
        sizes = SIZES[name][:1] if arguments.small else SIZES[name]
        chosen = [method for method in own if method in arguments.methods]
        listed += [(round(factor * n_dims), name, method) for factor in sizes for method in chosen]
    return [(name, size, method) for size, name, method in sorted(listed, key=lambda one: one[0])]


def measure(name: str, size: int, method: str, patches: Patches, arguments: argparse.Namespace) -> dict:
    """Train a model of one size, and score the held-out rows at the end of training and on the way there."""
    module, kind = MODULES[name], IS_SMALL[arguments.small]
    n_steps = arguments.steps or (SMALL_STEPS if arguments.small else STEPS)[method]
    trained = train(module, patches.train, size, method, n_steps)
    settings = settings_of(method, arguments)
    scores = score(trained.model, patches.test, **settings)
    some = patches.test[: N_AGAIN[kind]] if method == "EM" else patches.test
    other = compare_with_another(module, trained.parameters, scores, some, **settings)
    way = []
    is_smallest = size == round(SIZES[name][0] * patches.train.shape[1])
    is_followed = arguments.curves and is_smallest and "not_converged" not in trained.findings
    for step, parameters in trained.way.items() if is_followed else ():
        then = score(module.build_model(parameters), some, **settings)
        way.append({"step": step, "gain": gain(then.values, some).tolist(), "mcse": then.mcse})
    found = {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in asdict(scores).items()}
    return {
        "model": name, "size": size, "method": method, "source": patches.source, "n_steps": trained.n_steps,
        "n_temperatures": arguments.n_temperatures, "particles": arguments.particles,
        **found, "other": other, "gain": gain(scores.values, patches.test).tolist(), "way": way,
        "findings": trained.findings + scores.findings, "training_seconds": trained.seconds,
    }  # fmt: skip


def settings_of(method: str, arguments: argparse.Namespace) -> dict:
    """Return the arguments that anneal the rows, or the single log Z of a model that needs no other."""
    n_temperatures, n_particles = arguments.n_temperatures, arguments.particles
    if method in ("EM", "closed form"):
        settings = SETTINGS[IS_SMALL[arguments.small]] if method == "EM" else {}
        settings = {"target_se": NEVER, "max_temperatures": n_temperatures} if n_temperatures else settings
        return settings | ({"draws": n_particles} if n_particles else {})
    settings = {"n_temperatures": n_temperatures, "max_temperatures": n_temperatures} if n_temperatures else {}
    settings |= {"draws": n_particles, "chains": 1} if n_particles else {}
    return {"sample_kwargs": settings} if settings else {}


def key_of(row: dict) -> tuple:
    """Return the key of an entry in its file; entries of older files have no settings of the annealing."""
    asked = (row.get("n_temperatures"), row.get("particles"))
    return (row["model"], row["size"], row["method"], row["source"], len(row["values"]), *asked)


def gain(values: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Subtract the log density of standard normal variables, which whitened rows (R, M) have at best."""
    return values + 0.5 * (np.sum(x**2, axis=1) + x.shape[1] * np.log(2.0 * np.pi))


def compare(arguments: argparse.Namespace) -> list[dict]:
    """Train and score what the file does not hold yet, writing down each as it comes."""
    n_dims, n_test = (16, 20) if arguments.small else (36, 100)
    if arguments.data == "vanhateren":
        patches = load_van_hateren(arguments.rows or n_test, n_dims)
    else:
        patches = load_patches(n_dims, 8 if arguments.small else 16, n_test=arguments.rows or n_test)
    rows = read(arguments.json)
    show_head(patches)
    done, asked = {key_of(row) for row in rows}, (arguments.n_temperatures, arguments.particles)
    for name, size, method in entries(arguments, n_dims):
        if (name, size, method, patches.source, len(patches.test), *asked) not in done:
            rows.append(measure(name, size, method, patches, arguments))
            arguments.json.write_text(json.dumps(rows))
            show(rows[-1])
    return rows


def read(path: Path) -> list[dict]:
    return json.loads(path.read_text()) if path.exists() else []


def read_arguments(given: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    data = "vanhateren" if VAN_HATEREN.exists() else "photographs"
    parser.add_argument("--small", action="store_true", help="16 components, one size of each model")
    parser.add_argument("--data", choices=("photographs", "vanhateren"), default=data)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--methods", nargs="+", choices=STEPS, default=list(STEPS), help="of training")
    parser.add_argument("--rows", type=int, help="held-out rows")
    parser.add_argument("--n-temperatures", type=int, help="of each row, or of log Z; default: what the error needs")
    parser.add_argument("--particles", type=int, help="of each row, or of log Z in one population")
    parser.add_argument("--steps", type=int, help="steps of training")
    parser.add_argument("--curves", action="store_true", help="score the smallest models during training, too")
    parser.add_argument("--draw", action="store_true", help="measure nothing, draw the results in --json")
    parser.add_argument("--json", type=Path, default=Path("compare_models.json"))
    parser.add_argument("--image", type=Path, default=Path("compare_models.png"))
    return parser.parse_args(given)


def main() -> None:
    logging.getLogger("pymc").setLevel(logging.ERROR)
    logging.getLogger("pymc.hais").setLevel(logging.CRITICAL)  # the table names the findings
    arguments = read_arguments()
    rows = read(arguments.json) if arguments.draw else compare(arguments)
    if arguments.draw:
        for row in rows:
            show(row)
    conclude(rows)
    draw(rows, arguments.image)


if __name__ == "__main__":
    main()
