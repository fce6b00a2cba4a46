"""What a run learnt, as arrays and plain facts, and back: with it another run of the model needs no pilot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pymc_hais.estimators import LogZEstimate, Tail
from pymc_hais.model import ModelIdentity, Sites, Structure
from pymc_hais.problem.problem import PriorMass
from pymc_hais.references import Fitted
from pymc_hais.run.choice import Learnt
from pymc_hais.run.recorded import decode_kernel, decode_reference, encode_kernel, encode_reference
from pymc_hais.tuning import Pilot, Stage
from pymc_hais.types import Metric, Plan, Schedule

__all__ = ["CONSTANT_SPEED", "USERS_OWN", "PlanRecord", "decode_record", "encode_record"]

#: Of the format: a reader refuses another one.
_VERSION = 2
#: How betas are placed, beside the names of :data:`pymc_hais.schedules.FIXED`: as measured, or as the user gave them.
CONSTANT_SPEED, USERS_OWN = "constant_speed", "fixed"
#: Numbers of a stage, of a plan's transitions, and of a prior's mass.
_OF_STAGE = ("beta", "discrepancy", "autocorrelation_time", "step_size")
_OF_STEP = ("step_sizes", "metric_index", "persistence")
_OF_PILOT = ("log_z", "n_gradients", "seconds", "is_complete")
_OF_MASS = ("value", "mc_se", "lower", "upper", "shortfall")
#: What is written as it is.
_PLAIN = ("label", "schedule", "n_rounds", "seconds_per_gradient", "reason")


@dataclass(frozen=True, eq=False)
class PlanRecord:
    """A plan, what it was learnt on, and what it starts from.

    Attributes
    ----------
    learnt : Learnt
        Of the last round.
    pilot : Pilot or None
        Without its positions; None where nothing was tuned.
    tail : Tail
    reference : str or object
        What ``reference=`` would be, without a fit: see :func:`pymc_hais.run.recorded.spec_of`.
    label : str
        What the particles start from.
    fitted : Fitted or None
    sites : Sites or None
        Of the chart.
    prior_mass : PriorMass or None
    prior_identity : ModelIdentity or None
        Of the prior alone, where its mass was measured.
    kernel, site_kernel : Kernel, Own or None
        Of the continuous dimensions, and of discrete sites.
    schedule : str
        How betas are placed.
    structure : Structure
        What a model must have in common with this one for the plan to serve it.
    identity : ModelIdentity
        Of the model, which an extension must have.
    n_rounds : int
        Rounds that refined it: their random numbers are not used again.
    seconds_per_gradient : float
    reason : str
        Why the reference was taken.
    """

    learnt: Learnt
    pilot: Pilot | None
    tail: Tail
    reference: Any
    label: str
    fitted: Fitted | None
    sites: Sites | None
    prior_mass: PriorMass | None
    prior_identity: ModelIdentity | None
    kernel: Any
    site_kernel: Any
    schedule: str
    structure: Structure
    identity: ModelIdentity
    n_rounds: int
    seconds_per_gradient: float
    reason: str


def encode_record(record: PlanRecord) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Write a record as arrays and facts that JSON takes."""
    learnt, plan, pilot = record.learnt, record.learnt.plan, record.pilot
    arrays = {"betas": plan.schedule.betas, **{name: np.asarray(getattr(plan, name)) for name in _OF_STEP}}
    arrays |= {"step_discrepancy": learnt.discrepancy, "step_acceptance": learnt.acceptance_rate}
    facts: dict[str, Any] = {
        "version": _VERSION,
        **{name: getattr(record, name) for name in _PLAIN},
        "n_final_moves": plan.n_final_moves,
        "resample_below": plan.resample_below,
        "structure": asdict(record.structure),
        "tail": asdict(record.tail),
        "reference": encode_reference(record.reference, arrays),
        "kernel": encode_kernel(record.kernel, arrays),
        "site_kernel": record.site_kernel and encode_kernel(record.site_kernel, arrays),
        "pilot": pilot and {name: getattr(pilot, name) for name in _OF_PILOT},
        "fitted": record.fitted and _encode_fit(record.fitted, arrays),
        "prior_mass": record.prior_mass and _encode_mass(record.prior_mass),
        "prior_identity": record.prior_identity and asdict(record.prior_identity),
        "identity": asdict(record.identity),
    }
    if pilot:
        arrays |= {f"stage_{name}": pilot.gather(name) for name in _OF_STAGE}
    if record.sites:
        arrays |= {"site_precision": record.sites.precision, "site_shift": record.sites.shift}
    _encode_metrics(plan.metrics, [stage.metric for stage in pilot.stages] if pilot else [], arrays)
    return arrays, facts


def decode_record(arrays: Mapping[str, np.ndarray], facts: Mapping[str, Any]) -> PlanRecord:
    """Read what :func:`encode_record` wrote.

    Raises
    ------
    ValueError
        For another version of the format.
    """
    if facts["version"] != _VERSION:
        raise ValueError(f"The plan has format {facts['version']}, and this version of pymc_hais reads {_VERSION}.")
    of_plan, of_stages = _decode_metrics(arrays)
    plan = Plan(
        Schedule(arrays["betas"]),
        metrics=of_plan,
        n_final_moves=facts["n_final_moves"],
        resample_below=facts["resample_below"],
        **{name: arrays[name] for name in _OF_STEP},
    )
    names, shapes, transforms = (facts["structure"][name] for name in ("names", "shapes", "transforms"))
    return PlanRecord(
        learnt=Learnt(plan, arrays["step_discrepancy"], arrays["step_acceptance"]),
        pilot=facts["pilot"] and _decode_pilot(facts["pilot"], arrays, of_stages),
        tail=Tail(**facts["tail"]),
        reference=decode_reference(facts["reference"], arrays),
        fitted=facts["fitted"] and _decode_fit(facts["fitted"], arrays),
        sites=Sites(arrays["site_precision"], arrays["site_shift"]) if "site_shift" in arrays else None,
        prior_mass=facts["prior_mass"] and _decode_mass(facts["prior_mass"]),
        kernel=decode_kernel(facts["kernel"], arrays),
        site_kernel=facts["site_kernel"] and decode_kernel(facts["site_kernel"], arrays),
        structure=Structure(tuple(names), tuple(map(tuple, shapes)), tuple(transforms)),
        prior_identity=facts["prior_identity"] and ModelIdentity.read(facts["prior_identity"]),
        identity=ModelIdentity.read(facts["identity"]),
        **{name: facts[name] for name in _PLAIN},
    )


def _encode_metrics(of_plan: Sequence[Metric], of_stages: Sequence[Metric], arrays: dict[str, np.ndarray]) -> None:
    """Write each metric once: a plan's are those of its pilot's stages.  Of a factor the lower triangle is kept."""
    every = {id(metric): metric for metric in (*of_plan, *of_stages)}
    place = {key: i for i, key in enumerate(every)}
    for name, metrics in (("plan", of_plan), ("stage", of_stages)):
        arrays[f"{name}_metric"] = np.array([place[id(metric)] for metric in metrics], dtype=np.int64)
    metrics = list(every.values())
    arrays["metric_is_dense"] = np.array([metric.ndim == 2 for metric in metrics], dtype=np.int64)
    scales = [metric for metric in metrics if metric.ndim == 1]
    factors = [metric[np.tril_indices(len(metric))] for metric in metrics if metric.ndim == 2]
    arrays |= {name: np.stack(rows) for name, rows in (("scales", scales), ("factors", factors)) if rows}


def _decode_metrics(arrays: Mapping[str, np.ndarray]) -> tuple[tuple[Metric, ...], tuple[Metric, ...]]:
    """Return the metrics of the plan and of the pilot's stages."""
    scales, factors = iter(arrays.get("scales", ())), iter(arrays.get("factors", ()))
    every = [_square(next(factors)) if dense else next(scales) for dense in arrays["metric_is_dense"]]
    of_plan, of_stages = (tuple(every[i] for i in arrays.get(f"{name}_metric", ())) for name in ("plan", "stage"))
    return of_plan, of_stages


def _square(triangle: np.ndarray) -> np.ndarray:
    n_dims = int((np.sqrt(8 * triangle.size + 1) - 1) / 2)
    factor = np.zeros((n_dims, n_dims))
    factor[np.tril_indices(n_dims)] = triangle
    return factor


def _decode_pilot(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], metrics: Sequence[Metric]) -> Pilot:
    columns = {name: arrays[f"stage_{name}"].tolist() for name in _OF_STAGE}
    stages = [
        Stage(**{name: column[i] for name, column in columns.items()}, metric=metric)
        for i, metric in enumerate(metrics)
    ]
    return Pilot(tuple(stages), positions=np.empty((0, len(metrics[0]))), **facts)


def _encode_fit(fitted: Fitted, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    arrays["fit_centres"] = fitted.centres
    shape = encode_reference(fitted.shape, arrays, "fit")
    others = {name: getattr(fitted, name) for name in ("share_of_other", "log_mass_of_other", "source")}
    return {**others, "shape": shape}


def _decode_fit(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Fitted:
    others = {name: value for name, value in facts.items() if name != "shape"}
    return Fitted(decode_reference(facts["shape"], arrays, "fit"), arrays["fit_centres"], **others)


def _encode_mass(mass: PriorMass) -> dict[str, Any]:
    numbers = {name: getattr(mass.estimate, name) for name in _OF_MASS}
    return numbers | {"per_chain": mass.estimate.per_chain, "n_gradients": mass.n_gradients}


def _decode_mass(facts: Mapping[str, Any]) -> PriorMass:
    numbers = {name: facts[name] for name in _OF_MASS}
    return PriorMass(LogZEstimate(**numbers, per_chain=tuple(facts["per_chain"])), facts["n_gradients"])
