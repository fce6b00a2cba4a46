"""``reference=``, ``modes=``, ``path=`` and ``plan=`` -> where a run starts, and what a plan brings along."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from pymc_hais.density import Model, is_model
from pymc_hais.inputs.draws import is_result, read_modes, read_positions
from pymc_hais.opinions.bridging import thin_rows
from pymc_hais.planning.starts import GivenDraws, StartOptions
from pymc_hais.problem.parameter_path import is_geometric
from pymc_hais.problem.problem import Compiler
from pymc_hais.run.plan import Own, Plan, is_same_kernel
from pymc_hais.runner.runner import Sampling
from pymc_hais.tuning import CONSTANT_SPEED


def read_start(model: Model, asked: SimpleNamespace, estimators: tuple[str, ...], plan: Plan | None) -> StartOptions:
    """Read the draws and points that a user has given for a start, as flat vectors.

    Raises ValueError for what does not go together, or is not of the model.
    """
    reference, path = asked.reference, asked.path
    if not is_geometric(path) and (is_result(reference) or estimators):
        what = "a reference fitted to draws" if is_result(reference) else "`estimators`"
        raise ValueError(f'A `path` that moves a parameter takes no {what}: leave it out, or pass path="geometric".')
    if is_model(reference) and estimators:
        raise ValueError("`estimators` takes no other model as reference: log Z is then the ratio of two integrals.")
    points = None
    if asked.modes is not None:
        if not is_geometric(path) or is_model(reference) or is_result(reference):
            raise ValueError(
                '`modes` adds Gaussians to the reference, so it takes neither another `path` than "geometric" nor a '
                "`reference` that is a model or a result: leave one of them out."
            )
        points = read_modes(model, asked.modes)
    if is_result(reference):
        draws = read_positions(model, reference, "reference")
        reference = GivenDraws(thin_rows(draws.reshape(-1, draws.shape[-1])))
    return StartOptions(reference, path, points, plan)


def follow(
    plan: Plan, asked: SimpleNamespace, sampling: Sampling, compiler: Compiler, source: str
) -> tuple[Sampling, Compiler]:
    """Take kernel and schedule from a plan; refuse arguments that contradict it.

    Messages call the origin of the plan ``source``.

    Raises ValueError, naming the argument and what to pass.
    """
    _refuse_others(plan, asked, source)
    kernel, sites = plan.kernel, plan.site_kernel
    if asked.kernel is not None or asked.constraints is not None:
        is_other = compiler.sites and not is_same_kernel(compiler.sites, sites)
        if is_other or not is_same_kernel(compiler.kernel, kernel):
            own = tuple(one for one in (compiler.kernel, compiler.sites) if one)
            raise ValueError(
                f"The plan was learnt with {_names(kernel, sites)}, and this call (or its compiled model) asks for "
                f"{_names(*own)}: leave out `plan`, or ask for the `kernel` and `constraints` of the plan."
            )
        kernel, sites = compiler.kernel, compiler.sites
    for one in (kernel, sites):
        if isinstance(one, Own):
            raise ValueError(f"The plan was learnt with a kernel of your own, {one.label}: pass it again as `kernel`.")
    recipe = replace(plan.recipe, resample_below=min(plan.recipe.resample_below, sampling.recipe.resample_below))
    compiler = replace(compiler, kernel=kernel, sites=sites, normals=plan.start.normals)
    return replace(sampling, recipe=recipe), compiler


def _refuse_others(plan: Plan, asked: SimpleNamespace, source: str) -> None:
    for name, default, own in (
        ("n_temperatures", None, "number of temperatures"),
        ("modes", None, "reference"),
        ("schedule", CONSTANT_SPEED, "schedule"),
    ):
        value = getattr(asked, name)
        if value is not default and not (isinstance(value, str) and value == default):
            shown = repr(value) if isinstance(value, str | int) else type(value).__name__
            raise ValueError(f"`plan` has a {own} of its own, so leave out `{name}` (got {shown}), or `plan`.")
    if not is_geometric(asked.path):
        raise ValueError('A plan is for the geometric path only: leave out `plan`, or pass path="geometric".')
    reference = asked.reference
    is_auto, own = isinstance(reference, str) and reference == "auto", plan.start.reference
    if isinstance(own, Own) and is_auto:
        raise ValueError(f"The plan starts from a reference of your own, {own.label}: pass it again as `reference`.")
    if not isinstance(own, Own) and not is_auto:
        without = "" if source == "`idata`" else ", or `plan`"
        raise ValueError(f"{source} has a reference of its own, {plan.start.label}: leave out `reference`{without}.")


def _names(*kernels: Any) -> str:
    return " and ".join(one.label if isinstance(one, Own) else repr(one) for one in kernels if one is not None)
