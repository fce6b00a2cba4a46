"""sample_hais: all stages of a call on one screen, and the recipe of the HAIS report as its arguments."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataTree

from pymc_hais.calls.compile import CompiledModel, Opened, open_model
from pymc_hais.calls.stages import run_from_missed_modes, run_until_confirmed
from pymc_hais.core.process import check_memory, without_collection
from pymc_hais.core.protocols import Kernel
from pymc_hais.density import check_model
from pymc_hais.density.compat import RandomState, default_theme
from pymc_hais.inputs.arguments import check_flag, check_integer, explain_unknown
from pymc_hais.inputs.labels import check_labels
from pymc_hais.inputs.request import Request, read
from pymc_hais.inputs.results import log_marginal_likelihood
from pymc_hais.kernels import Hamiltonian
from pymc_hais.opinions.opinions import ask_others
from pymc_hais.planning.building import compile_integrated
from pymc_hais.planning.choose import choose
from pymc_hais.results.datatree import to_datatree, to_fixed_tree
from pymc_hais.results.report import log_line, log_model, silenced
from pymc_hais.run.posterior import draw_posterior


@explain_unknown
def sample_hais(
    draws: int = 1000,
    *,
    chains: int = 4,
    reference: Any = "auto",
    modes: Any = None,
    kernel: Kernel | None = None,
    constraints: Any = None,
    path: Any = "geometric",
    schedule: Any = "constant_speed",
    n_temperatures: int | None = None,
    resample: bool = True,
    target_se: float | None = 0.1,
    estimators: Any = (),
    max_temperatures: int = 10_000,
    max_seconds: float | None = None,
    plan: Any = None,
    random_seed: RandomState = None,
    model: pm.Model | CompiledModel | None = None,
    var_names: Sequence[str] | None = None,
    cores: int | None = None,
    executor: Executor | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    backend: str | None = None,
    compile_kwargs: dict[str, Any] | None = None,
    progressbar: bool | str = True,
    progressbar_theme: Any = default_theme,
    quiet: bool = False,
    idata_kwargs: dict[str, Any] | None = None,
) -> DataTree:
    r"""Draw from the posterior and estimate the log marginal likelihood by Hamiltonian annealed importance sampling.

    Particles start as exact draws of a reference :math:`q`, such as the prior, and are annealed to the posterior
    through :math:`q(\theta)^{1-\beta}\,(p(\theta)\,p(y \mid \theta))^\beta`, with a Hamiltonian momentum that
    persists from one temperature to the next.  A pilot run first learns the temperatures, step sizes and metrics.  Each
    round of the main run draws fresh particles and follows a frozen plan, so that its estimate of Z is unbiased.  A run
    that stops as soon as its own estimated error is below ``target_se`` is not exactly unbiased; ``target_se=None``
    makes a single round.  The estimate of log Z is biased low, by about half its variance.

    An unnormalised model (``pm.Flat``, ``pm.HalfFlat`` or :class:`pymc_hais.FlatDiscrete` variables and a
    ``pm.Potential``) has no marginal likelihood; its log Z is the log partition function,
    :math:`\log \int \exp(\text{model.logp}(x))\,dx`, a sum over discrete variables.  log Z of a model without free
    variables, such as a point null hypothesis, is its log density, with an error of 0.

    Parameters
    ----------
    draws : int, default 1000
        Posterior draws per chain; at least 100.  Each draw has a particle of its own, unless rounds are long: these
        have fewer particles, and up to four draws of each.
    chains : int, default 4
        Independent populations.  Each gives its own estimate of log Z.
    reference : str or object, default "auto"
        Where the annealing starts: a distribution on the unconstrained space, with a positive density wherever the
        model has one.

        - "prior": prior draws, of the variables that are not integrated out exactly (see "auto");
        - "gaussian": a standard normal; or a :class:`pymc_hais.Gaussian`, :class:`pymc_hais.StudentT`,
          :class:`pymc_hais.Box` or :class:`pymc_hais.Mixture`;
        - a PyMC distribution of all dimensions such as ``pm.Normal.dist(0, 2, shape=36)``, or a dict with a
          distribution for each variable, on the variable's own space;
        - a DataTree with posterior draws of this model, such as the result of ``pm.sample``: as "fitted", with a fit
          to these draws instead of a pilot's particles;
        - another ``pm.Model`` with the same free variables: log Z is then the log ratio of the two models' integrals of
          ``exp(logp)``;
        - any object with ``sample(n, rng) -> (n, D)`` and ``logp(x) -> PyTensor scalar``, normalised;
        - "fitted": a defensive mixture of the prior (a tenth of the draws; a Student-t where the prior is improper)
          and a Gaussian or Student-t fitted to a pilot's final particles;
        - "auto": the prior or "fitted", whichever is predicted to cost less, or a fit of the curvature at the mode;
          the log and the attributes of the result say which one was taken, and why.  Normal variables with normal data
          and conjugate priors of counts are integrated out, and drawn after the run, where a proof says this is exact.
    modes : dict, DataTree or list of these, optional
        Points that lead to modes of the posterior: a dict, such as :func:`pymc.find_MAP` returns, a result of
        ``pm.sample`` or of this function, or several of these.  A search climbs the density from there, and
        each mode found becomes a Gaussian part of the reference.  Together these parts get half of the draws.  If
        labels can be exchanged, such as those of mixture components, the search climbs from copies of the points with
        labels in another order, too.  With ``reference="auto"`` a run that missed modes is repeated from the modes
        found, unless ``target_se`` is None or ``max_seconds`` leaves no time.  Otherwise pass the result that has the
        finding ``missed_mass``.
    kernel : Hamiltonian, RandomWalk or Gibbs, or a pair of them, optional
        The transition between temperatures: :class:`pymc_hais.Hamiltonian` with one leapfrog step by default, and
        :class:`pymc_hais.Gibbs` for discrete variables.
    constraints : LinearConstraints or dict, optional
        Walls at which the particles are reflected: a region ``A x <= b`` of the flat vector, or ``{variable: (lower,
        upper)}`` for untransformed variables such as ``pm.Flat``.  The target is restricted to the region.
    path : "geometric" or dict, default "geometric"
        The intermediate distributions: weighted geometric means of the densities of reference and target, or
        ``{name of a pm.Data: (value at beta = 0, value at beta = 1)}`` to interpolate parameters of the model.  In the
        second case ``reference`` must be, up to a constant, the model at beta = 0.
    schedule : {"constant_speed", "linear", "sigmoid", "geometric"} or array_like (T + 1,)
        The inverse temperatures: "constant_speed" uses the pilot's measurements, the others are fixed.
    n_temperatures : int, optional
        Intermediate distributions T of the first round; the pilot decides by default.  0 is plain importance sampling.
    resample : bool, default True
        Whether a chain whose effective sample size has fallen below half of its particles resamples them.
    target_se : float or None, default 0.1
        Rounds with more temperatures follow until ``se``, the whole error of log Z in nats, is below this and no
        finding asks for more temperatures (``weight_degeneracy``, ``estimates_disagree`` and ``underdispersion`` do;
        ``missed_mass``, which a search after the rounds finds, does not).  A first round that just meets the target is
        followed by another one where that is cheap.  The rounds are combined, weighted by their temperatures.  None
        makes one round.
    estimators : "all" or sequence of {"bridge", "linked", "bidirectional"}, optional
        Other methods that estimate log Z after the rounds, and fail in other ways: a bridge from a fit to the draws,
        linked importance sampling, and annealing back from the final particles, combined with the annealing forward.
        The last two cost a round each.  See :func:`pymc_hais.estimates`; a method that disagrees is a finding.
    max_temperatures : int, default 10000
        No round has more intermediate distributions than this.
    max_seconds : float, optional
        Time for the whole call; no limit by default.  The pilot and the rounds are made as short as necessary, and if
        even short rounds take too long, fewer particles than ``draws`` are annealed.  The reported error remains
        valid, and findings say what is missing and what to change.  Checking and compiling a model, and a round
        that has begun, are not cut short.  A run that was cut short is not reproducible from its seed.
    plan : DataTree or path, optional
        A result of this function, or a file of :func:`pymc_hais.save_plan`.  The call follows its plan without a pilot:
        for the same model with other data, or with other ``draws``, ``chains`` and ``target_se``.  The first round uses
        the plan's reference, temperatures, step sizes and metrics; further rounds follow as usual.  Leave out
        ``modes``, ``schedule`` and ``n_temperatures``; pass a ``reference`` or ``kernel`` again if it was an object of
        your own.  The estimate of Z is unbiased for any data.  A plan that does not fit the data makes it noisy, which
        the finding ``plan_misfit`` reports.  For many data sets a plan from ``reference="prior"`` is the safe choice:
        a reference fitted to the posterior of one data set is far from the posterior of another.
    random_seed : int, sequence of int, RandomState or Generator, optional
        As in :func:`pymc.sample_smc`.  The same seed gives the same result for any number of ``cores``: to the bit with
        JAX, to rounding with Numba, whose fast math rounds differently in each compilation.
    model : pymc.Model or CompiledModel, optional
        Needed outside a ``with model:`` block.  A model of :func:`pymc_hais.compile` compiles nothing for other data;
        it has its own ``reference``, ``kernel``, ``constraints``, ``backend`` and ``compile_kwargs``.
    var_names : sequence of str, optional
        Variables and deterministics to keep in the posterior group; all by default.
    cores : int, optional
        Threads to use; all processors by default, and one for each job of an ``executor``.
    executor : concurrent.futures.Executor, optional
        Where the populations are annealed: in threads of this process by default.  Dask's ``client.get_executor()``, a
        ``ProcessPoolExecutor`` with the "spawn" context, or any other whose workers have the environment of this
        process.  The same seed gives the same result on any number of workers.  See "Run on a cluster".
    checkpoint : path, optional
        Folder in which every finished population is kept.  The same call with the same folder continues from there, and
        gives the result of an uninterrupted call; a different call is refused.  Without ``random_seed`` the folder's
        own seed is taken.  A running call locks its folder.  See "Resume".
    backend : {"jax", "numba", "c"}, optional
        JAX if it is installed and the model's graph allows, else Numba, by default.  "c" evaluates one particle after
        the other in PyTensor's C code, which is much slower.
    compile_kwargs : dict, optional
        Passed to :func:`pymc.compile`; ``{"mode": ...}`` takes any PyTensor mode, whose function is then called for one
        particle after the other ("JAX" and "NUMBA" are read as ``backend=``).
    progressbar : bool or str, default True
    progressbar_theme : rich.theme.Theme or str, optional
        As in :func:`pymc.sample`.
    quiet : bool, default False
        Whether the log has one line only, such as ``log Z = -31.31 ± 0.02 (3 s)``, with the names of findings of
        severity "warning" and "error", and there is no progress bar.  Errors are raised as usual.
    idata_kwargs : dict, optional
        ``coords`` and ``dims`` for the result; ``log_likelihood=True`` or ``log_prior=True`` to compute those
        groups; ``include_transformed=True`` to keep the unconstrained values.

    Returns
    -------
    DataTree
        ``posterior`` (equally weighted draws, pooled over the chains by their estimates of Z), ``sample_stats`` (of the
        same draws; and each chain's ``log_marginal_likelihood``), ``annealing`` (per temperature, and the final log
        weights), ``log_marginal_likelihood`` (value, errors, 95% interval and rounds: see
        :func:`pymc_hais.log_marginal_likelihood`), ``modes`` (which a search after the rounds found: flat
        ``position``, ``log_mass`` of the region around each by importance sampling, ``share`` of the run's Z there),
        ``plan`` (what the run has learnt, for ``plan`` and :func:`pymc_hais.extend`), ``observed_data`` and
        ``constant_data``.

    Raises
    ------
    ValueError
        Arguments out of range, an improper prior to start from, minibatches, reference draws that do not follow the
        reference's own density, a density of zero at every reference draw, or a NaN gradient.
    NotImplementedError
        Discrete free variables whose elements cannot change one at a time (``pm.Multinomial``), an option for
        continuous variables in a model with discrete ones, or a ``pm.Simulator``.
    ImportError
        ``backend="jax"`` without JAX.
    RuntimeError
        A ``checkpoint`` that another running call uses, or workers that are lost repeatedly.
    KeyboardInterrupt
        After Ctrl-C before the first round has ended.  Later the result is returned, and findings say what is missing
        from it.  Other later failures are findings too, except in a round of a call with a ``checkpoint``.

    References
    ----------
    .. [1] Sohl-Dickstein, J. and Culpepper, B. J. (2012). Hamiltonian annealed importance sampling for partition
       function estimation. arXiv:1205.1925.
    .. [2] Neal, R. M. (2001). Annealed importance sampling. Statistics and Computing 11, 125-139.
    .. [3] Syed, S., Bouchard-Cote, A., Chern, K. and Doucet, A. (2024). Optimised annealed sequential Monte Carlo
       samplers. arXiv:2408.12057.

    Examples
    --------
    >>> import pymc as pm, pymc_hais
    >>> with pm.Model():
    ...     mu = pm.Normal("mu", 0, 1)
    ...     y = pm.Normal("y", mu, 1, observed=[0.5, 1.5])
    ...     idata = pm.sample_hais(random_seed=1)
    >>> pymc_hais.log_marginal_likelihood(idata)  # doctest: +SKIP
    """
    given = dict(locals())
    opened = open_model(given)
    if quiet:
        opened.arguments["progressbar"] = False
    request = read("sample_hais", opened.model, opened.arguments)
    check_flag("quiet", quiet)
    if not quiet:
        return _sample(opened, request)
    with silenced():
        idata = _sample(opened, request)
    log_line(log_marginal_likelihood(idata), idata["posterior"].attrs["total_time"])
    return idata


def _sample(opened: Opened, request: Request) -> DataTree:
    """Make the result of a call."""
    runner, model, start, output = request.runner(), request.model, request.start, request.output
    if not model.free_RVs:
        check_model(model, may_be_fixed=True)
        return to_fixed_tree(model, output, runner)
    with runner:
        log_model(model)
        with runner.progress:
            with without_collection:
                search, integrated = compile_integrated(model, start, runner, opened.is_compiled)
                layout = integrated.whole
                named = opened.build_outputs(layout, output.var_names, output.include_transformed)
                check_labels(model, named(np.zeros((1, 1, layout.n_dims))), output)
            check_memory(runner.sampling.draws, runner.sampling.chains, layout.n_dims)
            problem, plan = choose(search)
            evidence = run_until_confirmed(problem, plan, start.points, runner)
            # From here on nothing costs what is finished.
            evidence, own = run_from_missed_modes(evidence, start, runner)
            evidence = ask_others(evidence, own)
            posterior = runner.finish(lambda: draw_posterior(evidence, own))
            evidence = replace(evidence, posterior=posterior)
            runner.progress.is_cut = runner.ledger.is_interrupted
            runner.progress.conclude(f"{evidence.estimate:.2f}")
        return own.finish(lambda: to_datatree(evidence, named, output, own, model, integrated))


def paper_settings(n_distributions: int) -> dict[str, Any]:
    """Return the arguments of :func:`sample_hais` that run the recipe of the HAIS report.

    Linear betas, one drift-kick-drift leapfrog step of 0.2 a distribution, half of the momentum's power renewed per
    unit of simulation time, no resampling, no tuning, one round, as in
    ``pm.sample_hais(200, chains=1, **paper_settings(1000))``.
    The report anneals from a standard normal (analysis models: add ``reference="gaussian"``) or from the prior of the
    latent variables (generative models: add ``reference="prior"``).

    Parameters
    ----------
    n_distributions : int
        N, the intermediate distributions.

    References
    ----------
    Sohl-Dickstein & Culpepper (2012), arXiv:1205.1925, sections 3 and 5.
    """
    check_integer("n_distributions", n_distributions, 1)
    return {
        "kernel": Hamiltonian(integrator="drift-kick-drift", step_size=0.2, damping=float(np.log(2.0))),
        "schedule": "linear",
        "n_temperatures": int(n_distributions),
        "resample": False,
        "target_se": None,
    }
