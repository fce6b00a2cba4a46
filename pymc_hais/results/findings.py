"""Every finding in words, one row each; what decides whether a finding applies stands in ``checks``."""

from functools import partial
from typing import Any, NamedTuple

from pymc_hais.estimators import Finding


class Row(NamedTuple):
    """A finding in words, with places for numbers as :meth:`str.format` fills them."""

    severity: str  # where two are named, the check says which of them it is
    message: str  # what was seen
    advice: str  # what to change


_error, _warning, _info = (partial(Row, severity) for severity in ("error", "warning", "info"))
_error_or_warning = partial(Row, "error, or warning")
_OPINION = "By {method}, log Z is {value:.2f} ± {se:.2f}: {difference:+.2f} nats."
_UNSEEN = "One of the two has not seen all of the posterior: pass a larger `n_temperatures` or more `draws`."

#: Name of a finding, and after a colon the case, where it has several -> its words.
FINDINGS: dict[str, Row] = {
    "no_weight": _error(
        "Every particle of every chain ended with weight zero: no way was found from the reference to the posterior.",
        "Raise `draws`, or soften hard constraints.",
    ),
    "interrupted": _warning(
        "The run was interrupted; this is what had been finished.{above}",
        "Run again for the standard error asked for.",
    ),
    "standard_error: failure": _warning("{above}, and the next round failed.", "See `unfinished`."),
    "standard_error: fixed": _warning("{above}.", "Raise `draws` or `chains`, or leave the schedule to the pilot."),
    "standard_error: max_seconds": _warning(
        "{above}, and the time ended: a round of {n_steps:,.0f} temperatures, about {needed}, would be enough.",
        "Raise `max_seconds` or `target_se`.",
    ),
    "standard_error: out of time": _warning("{above}, and the time ended.", "Raise `max_seconds`."),
    "standard_error: shortfall": _warning(
        "{above}, of which {shortfall:.2g} is a shortfall that more chains of this plan leave.",
        "A plan of more temperatures is needed: call sample_hais(target_se={target:g}).",
    ),
    "standard_error: extended": _warning("{above}.", "Call extend(target_se=...) for more chains."),
    "standard_error: max_temperatures": _warning(
        "{above}, and `max_temperatures` was reached.",
        "Raise `max_temperatures`, `draws` or `chains`.",
    ),
    "pareto_k": _error(
        "The log weights have a heavy tail (Pareto k = {k:.2f} > {limit}): a few particles decide log Z, and the error "
        "bar is too small.",
        "Pass a larger `n_temperatures` or more `draws`, or reparametrise to bring prior and posterior closer.",
    ),
    "pareto_k: predictive": _warning(
        "The likelihood varies over the posterior draws with a heavy tail (Pareto k = {k:.2f} > {limit}): a few draws "
        "decide.",
        "Use more posterior draws (`n_draws`).",
    ),
    "few_ancestors": _error(
        "All particles descend from about {n:.0f} effective reference draws, and at least {fewest:.0f} are needed: the "
        "posterior may have regions that no reference draw led to.",
        "Pass more `draws` or a larger `n_temperatures`.",
    ),
    "unconfirmed": _error(
        "The run starts from a fit, and about {n:.0f} effective draws of the prior led to where the fit is; at least "
        "{fewest:.0f} are needed. Parts of the posterior that none of them led to would be missing from log Z.",
        'Pass reference="prior": one round takes about {n_steps:,} temperatures, {needed}.',
    ),
    "unconfirmed: rare": _error(
        "{modes} with a real share of Z had one climb of hundreds lead there: others may have had none.",
        "Pass points near other modes as `modes=`, or see whether log Z stays with more `draws` from "
        '`reference="prior"`.',
    ),
    "unconfirmed: no price": _error(
        "The run starts from a fit, and about {n:.0f} effective draws of the prior led to where the fit is; at least "
        "{fewest:.0f} are needed. Parts of the posterior that none of them led to would be missing from log Z.",
        'Pass reference="prior".',
    ),
    "chains_disagree": _error(
        "The chains' estimates of log Z differ by {times:.1f} times what their own errors predict.",
        "Pass a larger `n_temperatures`; if that does not help, the posterior has modes that single chains miss.",
    ),
    "chains_disagree: bridge": _error(
        "The chains have not met (R-hat = {rhat:.2f}): they lie in different regions, and the share of each is up to "
        "where the chains began.",
        "Sample longer, or use sample_hais, which weighs the regions.",
    ),
    "rounds_disagree": _error(
        "log Z moved from {before.log_z:.2f} at {before.n_steps} temperatures to {last.log_z:.2f}, {moved:.1f} "
        "standard errors: the particles do not keep up with the annealing.",
        "Pass a larger `n_temperatures`, or reparametrise (for example non-centred).",
    ),
    "rounds_disagree: rows": _error(
        "The mean over {n} rows moved by {moved:+.3f} nats from one round to the next, beyond its error of "
        "{error:.3f}: the particles do not keep up with the annealing.",
        "Raise `draws`, or reparametrise (for example non-centred).",
    ),
    "low_acceptance": _warning(
        "At some temperatures only {rate:.0%} of the moves were accepted.",
        "The plan's step sizes do not suit all of the posterior: reparametrise, or raise `draws`.",
    ),
    "divergences": _error_or_warning(
        "{share:.1%} of the moves diverged (an energy error above 1000 nats, or NaN).",
        "The density has regions of extreme curvature: reparametrise (for example non-centred).",
    ),
    "nan": _warning(
        "The log-likelihood was {seen}; those particles were given weight zero.",
        "Look at `model.debug()` for the term that is not a number.",
    ),
    "prior_range": _error(
        "Prior draws beyond the range of floating point (underflow to 0, or a probability rounded to 1) had to be "
        "dropped, and the likelihood does not vanish there: up to {share:.1%} of Z is missing.",
        "Use a less diffuse prior.",
    ),
    "short_pilot": _warning(
        "The time for the pilot ended at beta = {beta:.2g}: nothing was tuned for what lies beyond.",
        "Raise `max_seconds`.",
    ),
    "fewer_particles": _warning(
        "There was time for {made} particles of a chain and not for {wanted}, which would take about {needed} for "
        "{n_steps} temperatures: the posterior draws hold copies.",
        "Raise `max_seconds`.",
    ),
    "plan_misfit": _warning(
        "The plan does not fit these data: {seen}.",
        "Leave out `plan`, so that a pilot learns one for these data, or pass a plan that was learnt from "
        'reference="prior".',
    ),
    "estimates_disagree": _error(_OPINION, _UNSEEN),
    "estimates_disagree: bridge": _error(
        _OPINION,
        "A bridge that is lower knows fewer regions than the annealing, or its fit overlaps little with the draws; one "
        "that is higher says that the annealing has missed mass: pass a larger `n_temperatures`.",
    ),
    "reverse_disagrees: below": _error(_OPINION, _UNSEEN),
    "reverse_disagrees: above": _warning(
        _OPINION,
        "It is an upper bound if the draws are right. A wide gap says that there are too few temperatures for the way "
        "back, or that the draws lie where the annealing hardly passes: pass a larger `n_temperatures`.",
    ),
    "missed_mass": _error(
        "{modes} (at {places}) of which the run has too little: by importance sampling the mass around the {which} has "
        "log {log_mass:.2f}, and {share:.2g} of the run's Z is there. log Z is at least {gain:.2f} nats too low.",
        "Run again with this result as `modes=`.",
    ),
    "not_converged: n_steps": _warning(
        "After {n_steps:,} steps the gradient of the objective is {excess:.2g} of its standard errors as a mean over "
        "the rows (tolerance {tolerance:g}).",
        "Call fit again, which goes on from here, or with a larger `n_steps`.",
    ),
    "not_converged: max_seconds": _warning(
        "The time ended after {n_steps:,} steps; the gradient of the objective is {excess:.2g} of its standard errors "
        "as a mean over the rows (tolerance {tolerance:g}).",
        "Call fit again, which goes on from here, or with a larger `max_seconds`.",
    ),
    "not_converged: interrupt": _warning(
        "The fit was interrupted after {n_steps:,} steps; the model holds what had been reached.",
        "Call fit again, which goes on from here.",
    ),
    "not_converged: scattered": _warning(
        "The {n_steps:,} steps have come to rest, and at the mean of the last ones, which the model holds, the "
        "gradient of the objective is {excess:.2g} of its standard errors as a mean over the rows: the steps scatter "
        "too widely to be averaged, or are of too few rows.",
        "Call fit again, which goes on from here, with a smaller learning rate, such as "
        "optimizer=pm.adam(learning_rate=0.001), a larger `batch_size` or more `n_steps`.",
    ),
    "not_converged: stuck": _error(
        "After {n_steps:,} steps no step makes the objective smaller, and its gradient is {excess:.2g} of its standard "
        "errors as a mean over the rows (tolerance {tolerance:g}).",
        "The objective has a kink or a cliff there: constrain the parameters, begin elsewhere, or pass "
        "optimizer=pm.adam().",
    ),
    "not_converged: diverged": _error(
        "By step {n_steps:,} the parameters or the objective became infinite, or the objective larger than it was at "
        "the start; the model holds parameters from before.",
        "Pass a smaller learning rate, such as optimizer=pm.adam(learning_rate=0.001), or constrain the parameters.",
    ),
    "not_converged: flat": _error(
        "After {n_steps:,} steps the gradient of the objective is the same for every row, or zero for all: the density "
        "has become flat, as where a scale has run away, and the fitted values mean nothing.",
        "Pass a smaller learning rate, begin nearer to the data, or constrain the parameters.",
    ),
    "not_converged: unseen": _error(
        "The method does not see the parameter `{where}` in these rows: a few rows, or rounding, make all of its "
        "gradient. Its fitted value is near to where it began, or arbitrary.",
        "Use another method, such as NoiseContrastive(): score matching cannot see the weights of components that lie "
        "far apart, for one.",
    ),
    "not_converged: annealed": _error(
        "The annealing exponent `beta` of the E-step was below one in the last steps: the fitted values are those of a "
        "flattened posterior.",
        "Let `beta` reach 1 within {n_steps:,} steps, before the last quarter of them, or leave it out.",
    ),
    "no_data": _error(
        "The model has no observed variable and no potential: these are prior draws, and log Z of a prior is 0.",
        "Pass `observed=` to the variable that the data belong to.",
    ),
    "no_data: empty": _error(
        "No value of {names} is observed: these are prior draws, and log Z of a prior is 0.",
        "Look at what was passed as `observed=`.",
    ),
    "data_unknown": _warning(
        "{names} {have} no observed data, as with a pm.Potential, or none that is known: nothing has checked that the "
        "models are of the same data.",
        "Make sure that they are; check_data=False says so.",
    ),
    "one_result": _warning(
        "{first!r} and {second!r} are one result: their difference is 0 and its error says nothing.",
        "Pass the result of each model.",
    ),
    "shared_seed": _info(
        "The results {names} have the same random seed, so their errors may be correlated; the errors of the Bayes "
        "factors assume that they are independent.",
        "Pass another `random_seed` for each model.",
    ),
    "prior_draws": _info(
        "Draws of the prior of {names} do not follow its log density in PyMC, or are hardly ever in the range of the "
        "transforms: the run starts from {reference} instead.",
        "log Z belongs to the density, as PyMC computes it; you need do nothing.",
    ),
    "prior_mass: measured": _info(
        "The prior of {names} integrates to exp({value:.2f} ± {se:.2f}) in PyMC, and not to one.",
        "Z was divided by that mass; you need do nothing.",
    ),
    "prior_mass: not known": _warning(
        "log Z is log of the integral of exp(model.logp()), and the density of {names} may not integrate to one in "
        "PyMC.",
        'Pass reference="prior" for the log marginal likelihood.',
    ),
    "summable": _info(
        "The elements of {names} are independent of one another given everything else, so that {each} could be summed "
        "out of the likelihood: the same log Z, as a rule in less time.",
        "Where you need no draws of them, try pymc_extras.marginalize(model, {variables}), or a pm.Mixture.",
    ),
    "heavy_tail": _warning(
        "The log ratio of target and reference has a heavy upper tail: {excess:.1f} nats beyond a normal one for the "
        "highest 0.5% of the draws. Few particles get there, and log Z may come out too low.",
        "Pass a `reference` with heavier tails, reparametrise, or see whether log Z moves up with more temperatures "
        "(`n_temperatures`).",
    ),
    "heavy_tail: ray": _error(
        "{place} the density falls more slowly than the reference, {label}, without end: the weights have no mean "
        "square (their tail has shape k = {k:.2f}), and log Z probably comes out too low.",
        "Pass a `reference` with heavier tails, or reparametrise; if log Z should be finite, check the sign and the "
        "exponent of what falls there.",
    ),
    "memory": _error_or_warning(
        "In some direction the moves left the particles with only {share:.0%} of the target's variance (of moves that "
        "spread them it would accept {up:.0%}, of those that draw them together {down:.0%}): they were too slow for "
        "the schedule, and few weights can make up for it, so that log Z may be too low.",
        "Pass a larger `n_temperatures`, leave kernel and schedule to the pilot (the default), or start from "
        'reference="fitted".',
    ),
    "unreached": _error(
        "Towards {side} values of `{name}` the particles end where the target goes on: by a Metropolis rule {out:.0%} "
        "of them would move outwards, each with its other coordinates drawn together or spread as the density is "
        "there, and {back:.0%} would move back. The steps do not suit what lies beyond, such as the neck of a funnel, "
        "and log Z is at least {gain:.2f} nats too low.",
        "Reparametrise, so that what `{name}` makes narrow has one width (for example non-centred); more temperatures "
        "help slowly.",
    ),
    "unreached: states": _error(
        "Hardly any particle is where {n} elements of {names} have joint values of which the other variables' values "
        "say that they hold more: no element alone gains by a move there. log Z is at least {gain:.2f} nats too low.",
        "Pass as `reference` a dict with a PyMC distribution for each variable under which these values are likely, "
        "or sum the variables out of the likelihood.",
    ),
    "flat": _error(
        "The log ratio of posterior and reference was {value:.2f} wherever a particle was, at every temperature: "
        "nothing is known of states where it has another value, and log Z and its error do not count them.",
        "Pass as `reference` a dict with a PyMC distribution for each discrete variable under which the states that "
        "matter are likely, or sum these variables out of the likelihood.",
    ),
    "rounding": _error(
        "Terms of the log density are so large, or cancel so far, that {dtype} rounds their sum by about {spacing:.2g} "
        "nats: log Z may be wrong by more than its error.",
        "Compute in double precision (`pytensor.config.floatX = 'float64'`), take large constants off the model's "
        "potentials, and give counts of more than 1e12 a normal likelihood.",
    ),
    "few_draws": _error(
        "The draws are worth {n:.0f} independent ones, and {fewest:.0f} are needed.",
        "Pass more draws, or draws of a sampler that mixes better.",
    ),
    "poor_overlap": _error(
        "The draws and the reference fitted to them overlap in {overlap:.2%} of their mass: the bridge rests on few "
        "draws, and its error bar is a guess.",
        "Use sample_hais, which anneals between the two (reference=idata starts from these draws).",
    ),
    "poor_overlap: none": _error(
        "No draw of the fitted reference has a positive density under the model: there is nothing to bridge.",
        "Use sample_hais, which anneals between the two.",
    ),
    "not_posterior": _error(
        "Bridges that count the draws more and less differ by {tilt:+.2f} nats, {errors:.0f} standard errors: the "
        "draws are not of this model's posterior. They may be of an approximation, such as pm.fit, or of another "
        "model.",
        "Pass draws of pm.sample or sample_hais; sample_hais(reference=idata) starts from these draws and is right.",
    ),
    "bounds_crossed": _error(
        "The lower bounds lie {gap:.3f} nats above the upper ones in the mean, {errors:.1f} standard errors: draws, "
        "density and simulated data do not belong together.",
        "Look for a distribution whose `random` and `logp` differ (pm.CustomDist), or report it.",
    ),
    "wide_gap": _warning(
        "The bounds of log Z are {gap:.2f} nats apart in the mean, and {widest:.2f} for data set {which}.",
        "Pass a larger `n_temperatures`, or more `draws`.",
    ),
    "ranks": _error(
        "The true values of {names} do not lie in their posteriors as they should (simulation-based calibration).",
        "See pymc_hais.plots.plot_calibration; pass a larger `n_temperatures`, or reparametrise.",
    ),
    "unfinished": _error_or_warning(
        "Missing from this result: {what}.",
        "Make the call again for all of it, once what the message names is mended.",
    ),
    "unfinished: interrupted": _error_or_warning(
        "Missing from this result: {what}.", "Make the call again for all of it."
    ),
}
#: Pieces of messages.
PIECES = {
    "above": "The standard error of log Z is {se:.2g}, above target_se = {target:g}",
    "unknown error": "The error of log Z is not known: an unbiased estimate of Z gives a lower bound of log Z in "
    "expectation only, and may be above it in one run",
    "effort": "the same error needs about {times:.0f} times as many temperatures as where it was learnt",
    "acceptance": "at some temperature {rate:.0%} of the moves were accepted, where {usual:.0%} had been",
}
#: Methods for log Z whose disagreement is a finding, in words.  Results of earlier versions hold others.
METHODS = {
    "bridge": "a bridge from a fit to the draws",
    "linked": "linked importance sampling",
    "reverse": "annealing the draws back to the reference",
    "forward and reverse": "annealing both ways",
}


def say(key: str, severity: str | None = None, /, **numbers: Any) -> Finding:
    """Fill numbers into a row of the table; where it names two severities, say which."""
    row = FINDINGS[key]
    name, _, _ = key.partition(":")
    return Finding(name, severity or row.severity, row.message.format(**numbers), row.advice.format(**numbers))
