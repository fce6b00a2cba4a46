"""What a model's log density depends on: whether a model is still, or again, the one that something is known of."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import pytensor
from pytensor.graph.basic import Constant

import pymc_hais.model.identity.code  # noqa: F401 - its readers
from pymc_hais.core.messages import quoted
from pymc_hais.model.compiling import untraced
from pymc_hais.model.identity.symbols import terms_of
from pymc_hais.model.identity.walk import Walk


@dataclass(frozen=True)
class ModelIdentity:
    """A model as plain facts, which every process writes alike: by name, of each variable, potential and container."""

    setting: str  # ``floatX`` and ``check_bounds``
    variables: Mapping[str, str]  # the kind and the type
    graph: Mapping[str, str]  # digests of how each is computed: operations with all that decides what they do
    numbers: Mapping[str, str]  # digests of the constants in it
    data: Mapping[str, str]  # digests of the values of observed variables and data containers
    #: Digest of the operations of ``model.logp()``, as this version of PyMC writes it; "" where it was not written.
    density: str = ""
    unreadable: tuple[str, ...] = ()  # what could not be described: of it these facts say the kind alone

    def with_density(self, model: Any, logp: Any) -> Self:
        """Add what PyMC has written as ``model.logp()``."""
        walk = Walk()
        walk.meet([*model.value_vars, *model.data_vars])
        return replace(self, density=walk.digest("", logp)[0])

    def difference(self, other: Self) -> str:
        """Say in what another model differs from this one; "" where in nothing."""
        names = self.variables.keys() ^ other.variables.keys()
        if names:
            new, gone = (quoted(one for one in it.variables if one in names) for it in (other, self))
            return "; ".join(f"{what}: {told}" for what, told in (("new", new), ("gone", gone)) if told)
        if self.setting != other.setting:
            return f"it has {other.setting}, and not {self.setting}"
        for name, kind in self.variables.items():
            if other.variables[name] != kind:
                return f"its `{name}` is {other.variables[name]}, and not {kind}"
        for name in _changed(self.data, other.data):
            return f"the data of its `{name}` are others"
        for name in _changed(self.graph, other.graph):
            return f"its `{name}` is computed in another way, or from other numbers"
        for name in _changed(self.numbers, other.numbers):
            return f"the numbers in its `{name}` are others"
        if self.density and other.density and self.density != other.density:
            return "its log density is written in another way, as by another version of PyMC"
        return ""

    def refuse_unreadable(self, argument: str) -> None:
        """Refuse a model of which not everything can be described."""
        if self.unreadable:
            raise ValueError(
                f"{argument} cannot tell whether a model is this one: what is in it cannot be described "
                f"({self.unreadable[0]}). Give the Op `__props__` that name all that decides what it computes, "
                f"or do without {argument}."
            )


def identify(model: Any, without: Collection[str] = ()) -> ModelIdentity:
    """Say what a model is now, its data included, without those of some containers."""
    walk, terms = Walk(), terms_of(model)
    walk.meet(model.data_vars)  # whose values are data
    graph, numbers, data = {}, {}, {}
    observed = {rv.name for rv in model.observed_RVs}
    for name, (variable, *value) in terms.items():
        of_term, numbers[name] = walk.digest(f"`{name}`", variable)
        of_value, held = walk.digest(f"`{name}`", value)
        graph[name] = f"{of_term} {of_value}"
        if name in observed:
            data[name] = held
    setting = f"floatX={pytensor.config.floatX} and check_bounds={model.check_bounds}"
    for container in (one for one in model.data_vars if one.name not in without):
        # In a model whose data are frozen, containers are constants.
        value = container.data if isinstance(container, Constant) else container.get_value(borrow=True)
        data[container.name], _ = Walk().digest("", value)
    return ModelIdentity(
        setting=setting,
        variables={name: _kind(variable) for name, (variable, *_) in terms.items()},
        graph=graph,
        numbers=numbers,
        data=data,
        unreadable=tuple(walk.unreadable),
    )


def _kind(variable: Any) -> str:
    """Name the distribution of a variable, and its type."""
    node = variable.owner
    kind = "" if node is None else str(getattr(node.op, "name", None) or type(node.op).__name__)
    return f"{kind.removesuffix('_rv')} {variable.type}".strip()


@untraced
def identify_as_written(model: Any) -> ModelIdentity:
    """Say what a model is, its log density included, which takes ten times as long.

    What is kept beyond this process may be read under another version of PyMC.
    """
    identity = identify(model)
    try:
        logp = model.logp()
    except Exception:  # a model that cannot be annealed, of which the checks will say why
        return identity
    return identity.with_density(model, logp)


def _changed(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[str]:
    return [name for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
