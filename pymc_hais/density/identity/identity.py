"""What a model's log density depends on: whether a model is still, or again, the one that a result belongs to."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pymc as pm
import pytensor
from pytensor.tensor.variable import TensorVariable

from pymc_hais.core.messages import quoted
from pymc_hais.density.compiling import untraced
from pymc_hais.density.identity.walk import Walk, terms_of
from pymc_hais.density.rewrites.graphs import held_value


@dataclass(frozen=True)
class ModelIdentity:
    """Plain facts about a model, the same in every process: by name, of each variable, potential and container."""

    setting: str  # ``floatX`` and ``check_bounds``
    variables: Mapping[str, str]  # the kind and the type
    graph: Mapping[str, str]  # digests of how each is computed: operations, constants and a user's own code
    data: Mapping[str, str]  # digests of the values of observed variables and data containers
    #: Digest of the operations of ``model.logp()``, as this version of PyMC writes it; "" where it was not written.
    density: str = ""
    unreadable: tuple[str, ...] = ()  # content that no digest covers
    values: tuple[str, ...] = ()  # where something is unreadable: log densities at fixed points, and a draw of each

    def with_density(self, model: pm.Model, logp: TensorVariable) -> Self:
        """Add ``model.logp()``, and its values if the model has unreadable content."""
        density = Walk([*model.value_vars, *model.data_vars]).digest(logp)
        return replace(self, density=density, values=_values_of(model, logp) if self.unreadable else ())

    def difference(self, other: Self) -> str:
        """Return in words how another model differs from this one; "" for no difference."""
        if names := self.variables.keys() ^ other.variables.keys():
            new, gone = (quoted(one for one in it.variables if one in names) for it in (other, self))
            return "; ".join(f"{what}: {told}" for what, told in (("new", new), ("gone", gone)) if told)
        if self.setting != other.setting:
            return f"it has {other.setting}, and not {self.setting}"
        for name, kind in self.variables.items():
            if other.variables[name] != kind:
                return f"its `{name}` is {other.variables[name]}, and not {kind}"
        if changed := _changed(self.data, other.data):
            return f"the data of its {quoted(changed)} are others"
        for name in _changed(self.graph, other.graph):  # the first one: its numbering moves that of later ones
            return f"its `{name}` is computed in another way, or from other numbers"
        if self.density and other.density and self.density != other.density:
            return "its log density is written in another way, as by another version of PyMC"
        if self.values and other.values and self.values != other.values:
            return f"its log density or its draws have other values ({self.unreadable[0]} cannot be compared otherwise)"
        return ""

    def refuse_unreadable(self, argument: str) -> None:
        """Refuse a model with unreadable content whose values are not known either."""
        if self.unreadable and not self.values:
            raise ValueError(
                f"{argument} cannot tell whether a model is this one: what is in it cannot be described "
                f"({self.unreadable[0]}). Give the Op `__props__` that name all that decides what it computes, "
                f"or do without {argument}."
            )


def identify(model: pm.Model, without: Collection[str] = ()) -> ModelIdentity:
    """Return the identity of a model as it is now, with its data except for those of some containers."""
    walk, terms = Walk(model.data_vars), terms_of(model)
    graph, data = {}, {}
    observed = {rv.name for rv in model.observed_RVs}
    for name, (variable, *others) in terms.items():
        if name in observed:
            *others, value = others
            data[name] = walk.digest(value)
        graph[name] = walk.digest(variable, *others)
    setting = f"floatX={pytensor.config.floatX} and check_bounds={model.check_bounds}"
    for container in (one for one in model.data_vars if one.name not in without):
        data[container.name] = Walk().digest(held_value(container))
    return ModelIdentity(
        setting=setting,
        variables={name: _kind(variable) for name, (variable, *_) in terms.items()},
        graph=graph,
        data=data,
        unreadable=tuple(walk.unreadable),
    )


def _kind(variable: Any) -> str:
    """Name the distribution of a variable, and its type."""
    node = variable.owner
    kind = "" if node is None else str(getattr(node.op, "name", None) or type(node.op).__name__)
    return f"{kind.removesuffix('_rv')} {variable.type}".strip()


@untraced
def identify_as_written(model: pm.Model) -> ModelIdentity:
    """Return the identity of a model with that of its log density, which takes ten times as long.

    What outlives this process may be read under another version of PyMC.
    """
    identity = identify(model)
    try:
        logp = model.logp()
    except Exception:  # a model that cannot be annealed; the checks give the reason
        return identity
    return identity.with_density(model, logp)


def _values_of(model: pm.Model, logp: TensorVariable) -> tuple[str, ...]:
    """Return the log density at fixed points around the initial point, and a draw; none if nothing can be computed."""
    rng = np.random.default_rng(0)
    try:
        compute = model.compile_fn(logp, inputs=model.value_vars, mode="FAST_COMPILE")
        start = model.initial_point(random_seed=0)
        points = [{name: _moved(value, rng) for name, value in start.items()} for _ in range(16)]
        values = [float(compute(point)) for point in points]
        drawn = [float(np.sum(one)) for one in pm.draw(model.free_RVs, random_seed=0, mode="FAST_COMPILE")]
    except Exception:  # a user's code may raise anything
        return ()
    # Ten digits: another machine may round differently.
    return tuple(f"{one:.10g}" for one in (*values, *drawn)) if np.isfinite(values).any() else ()


def _moved(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return value + rng.normal(size=value.shape).astype(value.dtype) if value.dtype.kind == "f" else value


def _changed(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
