"""References and kernels as arrays and plain facts, and back: what a plan keeps of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from pymc_hais.kernels import Gibbs, Hamiltonian, LinearConstraints, LocallyBalanced, RandomWalk
from pymc_hais.model import Layout, find_site_variables
from pymc_hais.references import (
    BoundReference,
    Box,
    Gaussian,
    Gaussians,
    Independent,
    Margins,
    Mixed,
    Mixture,
    StudentT,
)

__all__ = [
    "Own",
    "Tables",
    "decode_kernel",
    "decode_reference",
    "encode_kernel",
    "encode_reference",
    "spec_for",
    "spec_of",
]

type Arrays = dict[str, np.ndarray]
type Facts = dict[str, Any]

#: Kernels that a plan names, and what is not written among their settings: walls are arrays, sites are the model's.
_KERNELS = {kind.__name__: kind for kind in (Hamiltonian, RandomWalk, Gibbs, LocallyBalanced)}
_APART = ("constraints", "blocks")
_PLAIN: dict[str, Any] = {kind.__name__: kind for kind in (Gaussian, StudentT, Box)}


@dataclass(frozen=True)
class Own:
    """A reference or kernel that the user wrote, or that cannot be written down: it has to be passed again.

    Attributes
    ----------
    kind : str
        Name of its type.
    label : str
        As messages name it.
    """

    kind: str
    label: str

    def __post_init__(self) -> None:
        """Leave out where in memory an object was: the same one passed again is elsewhere."""
        object.__setattr__(self, "label", re.sub(r" at 0x[0-9A-Fa-f]+", "", self.label))


@dataclass(frozen=True, eq=False)
class Tables:
    """Margins without the model's variables.

    Attributes
    ----------
    continuous : Gaussian or StudentT or None
        Of the continuous dimensions.
    probabilities : tuple of ndarray (S, K)
        Of each discrete variable.
    """

    continuous: Any
    probabilities: tuple[np.ndarray, ...]


def spec_of(reference: BoundReference) -> Any:
    """Return what ``reference=`` would be for a bound reference; :class:`Own` where that cannot be written down."""
    if reference.is_prior:
        return "prior"
    if isinstance(reference, Mixed):
        parts = [spec_of(part) for part in reference.parts]
        if not any(isinstance(part, Own) for part in parts):
            return Mixture(parts, reference.weights.tolist())
    inner = reference.reference if isinstance(reference, Independent) else reference
    if type(inner) is Margins and (inner.continuous is None or type(inner.continuous) in _PLAIN.values()):
        return Tables(inner.continuous, tuple(inner.probabilities))
    return inner if type(inner) in (*_PLAIN.values(), Gaussians) else Own(type(inner).__name__, reference.label)


def spec_for(spec: Any, model: Any, layout: Layout) -> Any:
    """Give tables of margins the variables of a model; other references stay as they are."""
    if not isinstance(spec, Tables):
        return spec
    variables = find_site_variables(model, layout)
    return Margins(spec.continuous, layout.n_continuous, variables, spec.probabilities)


def encode_reference(spec: Any, arrays: Arrays, name: str = "reference") -> Facts:
    """Write what :func:`spec_of` returns; its arrays are added under names that begin with ``name``."""
    if isinstance(spec, str):
        return {"kind": spec}
    if isinstance(spec, Own):
        return {"kind": "own", "type": spec.kind, "label": spec.label}
    if isinstance(spec, Mixture):
        parts = [encode_reference(part, arrays, f"{name}_{i}") for i, part in enumerate(spec.parts)]
        return {"kind": "mixture", "parts": parts, "shares": spec.shares.tolist()}
    if isinstance(spec, Gaussians):
        arrays |= {f"{name}_{of}": np.stack([getattr(part, of) for part in spec.parts]) for of in ("loc", "scale")}
        return {"kind": "gaussians"}
    if isinstance(spec, Tables):
        arrays |= {f"{name}_table_{i}": table for i, table in enumerate(spec.probabilities)}
        rest = None if spec.continuous is None else encode_reference(spec.continuous, arrays, f"{name}_continuous")
        return {"kind": "tables", "n_tables": len(spec.probabilities), "continuous": rest}
    for field in fields(spec):
        arrays[f"{name}_{field.name}"] = np.asarray(getattr(spec, field.name), np.float64)
    return {"kind": type(spec).__name__}


def decode_reference(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray], name: str = "reference") -> Any:
    """Read what :func:`encode_reference` wrote."""
    kind = facts["kind"]
    if kind == "own":
        return Own(facts["type"], facts["label"])
    if kind == "mixture":
        parts = [decode_reference(part, arrays, f"{name}_{i}") for i, part in enumerate(facts["parts"])]
        return Mixture(parts, facts["shares"])
    if kind == "gaussians":
        pairs = zip(arrays[f"{name}_loc"], arrays[f"{name}_scale"], strict=True)
        return Gaussians([Gaussian(loc, scale) for loc, scale in pairs])
    if kind == "tables":
        rest = facts["continuous"]
        continuous = None if rest is None else decode_reference(rest, arrays, f"{name}_continuous")
        return Tables(continuous, tuple(arrays[f"{name}_table_{i}"] for i in range(facts["n_tables"])))
    if kind not in _PLAIN:
        return kind
    values = {field.name: arrays[f"{name}_{field.name}"] for field in fields(_PLAIN[kind])}
    return _PLAIN[kind](**{field: value if value.ndim else float(value) for field, value in values.items()})


def encode_kernel(kernel: Any, arrays: Arrays) -> Facts:
    """Write a kernel's settings, and its walls; one of another kind than this package's is to be passed again."""
    if type(kernel) not in _KERNELS.values():
        own = kernel if isinstance(kernel, Own) else Own(type(kernel).__name__, repr(kernel))
        return {"kind": "own", "type": own.kind, "label": own.label}
    walls = getattr(kernel, "constraints", None)
    if walls is not None:
        arrays |= {"normals": walls.normals, "bounds": walls.bounds}
    settings = {field.name: getattr(kernel, field.name) for field in fields(kernel) if field.name not in _APART}
    return {"kind": type(kernel).__name__, "settings": settings}


def decode_kernel(facts: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> Any:
    """Read what :func:`encode_kernel` wrote."""
    if facts["kind"] == "own":
        return Own(facts["type"], facts["label"])
    kind, settings = _KERNELS[facts["kind"]], dict(facts["settings"])
    if "normals" in arrays and "constraints" in (field.name for field in fields(kind)):
        settings["constraints"] = LinearConstraints(arrays["normals"], arrays["bounds"])
    return kind(**settings)
