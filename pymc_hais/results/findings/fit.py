"""Why a fit of :func:`pymc_hais.fit` has not converged."""

from collections.abc import Iterator

from pymc_hais.estimators import Finding

_AGAIN = "Call fit again, which goes on from here"
#: Reasons after which the fitted values are usable, but less exact.
_UNFINISHED = ("n_steps", "max_seconds", "interrupt", "scattered")
_SMALLER = "Pass a smaller learning rate, such as optimizer=pm.adam(learning_rate=0.001)"
#: Reason -> message and advice, with fields for :meth:`str.format`: ``n_steps``, ``gradient`` (its size, in words), and
#: ``where`` (the name of a parameter).
_REASONS = {
    "n_steps": ("After {n_steps:,} steps {gradient}.", f"{_AGAIN}, or with a larger `n_steps`."),
    "max_seconds": (
        "The time ended after {n_steps:,} steps: {gradient}.",
        f"{_AGAIN}, or with a larger `max_seconds`.",
    ),
    "interrupt": (
        "The fit was interrupted after {n_steps:,} steps; the model holds what had been reached.",
        f"{_AGAIN}.",
    ),
    "scattered": (
        "The {n_steps:,} steps have come to rest, and at the mean of the last ones, which the model holds, "
        "{gradient}: the steps scatter too widely to be averaged, or use too few rows.",
        f"{_AGAIN}, with a larger `batch_size` or more `n_steps`. {_SMALLER}.",
    ),
    "stuck": (
        "After {n_steps:,} steps no step makes the objective smaller, and {gradient}: the objective has a kink or a "
        "cliff there.",
        "Constrain the parameters, begin elsewhere, or pass optimizer=pm.adam().",
    ),
    "diverged": (
        "By step {n_steps:,} the parameters or the objective became infinite, or the objective larger than at the "
        "start; the model holds earlier parameters.",
        f"{_SMALLER}, or constrain the parameters.",
    ),
    "flat": (
        "After {n_steps:,} steps the gradient of the objective is the same for every row, or zero for all: the density "
        "has become flat, as where a scale has grown without limit, and the fitted values mean nothing.",
        "Pass a smaller learning rate, begin nearer to the data, or constrain the parameters.",
    ),
    "unseen": (
        "The method does not see the parameter `{where}` in these rows: a few rows, or rounding, make all of its "
        "gradient. Its fitted value is near its initial value, or arbitrary.",
        "Use another method, such as NoiseContrastive(). Score matching, for example, cannot see the weights of "
        "components that lie far apart.",
    ),
    "annealed": (
        "The annealing exponent `beta` of the E-step was below one in the last steps: the fitted values are those of a "
        "flattened posterior.",
        "Let `beta` reach 1 within {n_steps:,} steps, before the last quarter of them, or leave it out.",
    ),
}


def check_convergence(reason: str, where: str, excess: float, tolerance: float, n_steps: int) -> Iterator[Finding]:
    """Yield the finding that a fit has not converged, with the reason, if it has not."""
    if reason == "tolerance":
        return
    gradient = f"the gradient of the objective is {excess:.2g} of its standard errors (tolerance {tolerance:g})"
    message, advice = (text.format(n_steps=n_steps, gradient=gradient, where=where) for text in _REASONS[reason])
    severity = "warning" if reason in _UNFINISHED else "error"
    yield Finding("not_converged", severity, message, advice)
