"""fit: learn the parameters of a density that may be unnormalised."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pymc_hais.learning.fitting import learn, read_request
from pymc_hais.learning.protocol import Method
from pymc_hais.results.findings.fit import check_convergence
from pymc_hais.results.learning import to_learning_tree
from pymc_hais.results.report import log_findings

if TYPE_CHECKING:
    import pymc as pm
    from xarray import DataTree

    from pymc_hais.density.compat import RandomState


def fit(
    model: pm.Model,
    data: Mapping[str, Any],
    parameters: Sequence[str] | Mapping[str, Any],
    method: Method,
    *,
    optimizer: Any = None,
    n_steps: int | None = None,
    batch_size: int | None = None,
    random_seed: RandomState = None,
    callbacks: Sequence[Callable[..., Any]] = (),
    progressbar: bool | str = True,
    backend: str | None = None,
    tolerance: float = 0.01,
    max_seconds: float | None = None,
    held_out: Mapping[str, Any] | None = None,
) -> DataTree:
    """Fit parameters of a model of one row, and leave them in the model.

    Parameters
    ----------
    model : pymc.Model
        A model of one row.  Its learnt parameters are ``pm.Data`` containers of real numbers, which start from their
        present values.
    data : dict of array_like (n, ...)
        Rows of the visible variables, as in :func:`log_likelihood`: free variables of an unnormalised model
        (``pm.Flat`` or :class:`FlatDiscrete`, and ``pm.Potential``), or observed ones.  Every other free variable is
        hidden.
    parameters : list of str, or dict
        Names of the containers; as a dict, with a constraint for each: None, "positive", "non_positive", "unit_norm"
        (vectors of length one along the last axis: the rows of a matrix), "unit_norm_columns" (along the first axis),
        or a function that projects a value, which is applied after each step.
    method : Method
        One of ``pymc_hais.learning``.
    optimizer : str or callable, optional
        "lbfgs" (SciPy's L-BFGS-B on all rows), or one of PyMC's, such as ``pm.adam(learning_rate=0.01)``.  By default
        "lbfgs" where the objective is a function of the parameters alone, else Adam.
    n_steps : int, optional
        The most steps: by default 1000 of L-BFGS, which ends earlier, or 5000 of another optimiser.  The rate of the
        latter falls linearly to zero over the second half of the steps, and the last quarter is averaged.  If the last
        quarter is stationary, gradients at its mean follow, to test convergence.  They move no parameter, count as no
        steps and are passed to no callback.  For 100 of them, or three for each of up to 100 parameters, the rows are
        drawn anew.  Others take all rows in turn: ten rounds or a tenth of ``n_steps``, at most a quarter of
        ``n_steps``.  Half as many come before them, so that chains can settle there.
    batch_size : int, optional
        Rows of a step, 256 by default; not for L-BFGS.
    random_seed : optional
        As in :func:`sample_hais`.
    callbacks : sequence of callable
        Called after each step with its number, the values of the parameters by name, and the objective; one that raises
        ``KeyboardInterrupt`` ends the fit.
    progressbar, backend
        As in :func:`sample_hais`.
    tolerance : float, default 0.01
        A fit has converged if its distance to the zero of the gradient is below this, unless it is at a saddle.  The
        unit are standard errors of the parameters over samples of the rows (root mean square over the parameters; for
        up to 100 parameters their correlations count).  With noisy gradients the last quarter of the steps must be
        stationary instead; and the distance at the mean of these steps, without its own noise, must be at most 3/4 in
        all, or a quarter for each parameter.  The page on learning has the details.
    max_seconds : float, optional
        No step begins later than so many seconds after the call, compiling included; work that has begun, such as the
        chains' pilot, is not cut short.
    held_out : dict of array_like (n, ...), optional
        Rows that are not used for learning.  Their log-likelihood is monitored at each step that is kept and in the
        bar, and computed for the fitted values: the mean over rows in nats (``held_out``), its Monte Carlo error, which
        is that of log Z (``held_out_mcse``), and its standard error over rows (``held_out_sem``).  Only for a method
        that tracks log Z, :class:`~pymc_hais.learning.StochasticMaximumLikelihood`, and a model without hidden
        variables.

    Returns
    -------
    DataTree
        Group ``fitted``: the final values, and numbers that the method has learnt itself (``log_z``, and ``log_z_se``,
        its error as log Z of these values).  At most 200 evenly spaced steps are kept, in the groups ``parameters``
        (after each step) and ``learning`` (at the values before it): ``objective`` (the mean since the last kept step),
        the norm of the gradient and the method's monitors.  Attributes: ``converged``, ``reason`` ("tolerance",
        "n_steps", "max_seconds", "interrupt", "scattered", "diverged", "stuck", "flat", "unseen" or "annealed"),
        ``excess`` (which is compared with ``tolerance``), ``objective``, ``seconds``, ``method``, ``optimizer``,
        ``backend``, ``n_steps``, ``findings``.

    Raises
    ------
    ValueError
        Names, shapes, kinds of variables or numbers that do not fit, before any long work; masked values, columns of
        real numbers that do not vary, and values that a variable cannot take.

    Notes
    -----
    The model holds the fitted values in the end, so that ``log_likelihood(model, test)`` may follow, and a second call
    of ``fit`` continues from there.  Ctrl-C ends a fit early: the model then holds the values reached so far.
    """
    request = read_request(
        model, data, parameters, method,
        optimizer=optimizer, n_steps=n_steps, batch_size=batch_size, random_seed=random_seed, callbacks=callbacks,
        progressbar=progressbar, backend=backend, tolerance=tolerance, max_seconds=max_seconds,
        held_out=held_out,
    )  # fmt: skip
    fitted = learn(request)
    ending, trace = fitted.ending, fitted.trace
    findings = tuple(check_convergence(ending.reason, ending.where, ending.excess, request.tolerance, ending.n_steps))
    tree = to_learning_tree(
        request.model, fitted.values, trace.steps, trace.values, trace.monitors, fitted.attrs, findings
    )
    log_findings(findings)
    return tree
