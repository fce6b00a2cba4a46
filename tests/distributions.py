"""Every distribution of PyMC with parameters, and those that cannot be free variables: for tests and documentation."""

import numpy as np
import pymc as pm

N = 20
WEIGHTS = np.eye(N, k=1) + np.eye(N, k=-1)

#: Distribution -> its parameters, those of a scalar; and what it draws in `dist`.
SCALARS = {
    "AsymmetricLaplace": {"b": 1.0, "kappa": 1.5, "mu": 0.0},
    "Bernoulli": {"p": 0.3},
    "Beta": {"alpha": 2.0, "beta": 3.0},
    "BetaBinomial": {"alpha": 2.0, "beta": 3.0, "n": 4},
    "Binomial": {"n": 4, "p": 0.3},
    "Categorical": {"p": [0.2, 0.5, 0.3]},
    "Cauchy": {"alpha": 0.0, "beta": 1.0},
    "ChiSquared": {"nu": 3.0},
    "DiscreteUniform": {"lower": 0, "upper": 3},
    "DiscreteWeibull": {"q": 0.5, "beta": 1.0},
    "ExGaussian": {"mu": 0.0, "sigma": 1.0, "nu": 1.0},
    "Exponential": {"lam": 1.0},
    "Flat": {},
    "Gamma": {"alpha": 2.0, "beta": 1.0},
    "Geometric": {"p": 0.4},
    "Gumbel": {"mu": 0.0, "beta": 1.0},
    "HalfCauchy": {"beta": 1.0},
    "HalfFlat": {},
    "HalfNormal": {"sigma": 1.0},
    "HalfStudentT": {"nu": 4.0, "sigma": 1.0},
    "HurdleGamma": {"psi": 0.6, "alpha": 2.0, "beta": 1.0},
    "HurdleLogNormal": {"psi": 0.6, "mu": 0.0, "sigma": 1.0},
    "HurdleNegativeBinomial": {"psi": 0.6, "mu": 2.0, "alpha": 1.0},
    "HurdlePoisson": {"psi": 0.6, "mu": 2.0},
    "HyperGeometric": {"N": 10, "k": 4, "n": 3},
    "Interpolated": {
        "x_points": np.linspace(-2.0, 2.0, 9),
        "pdf_points": np.exp(-0.5 * np.linspace(-2.0, 2.0, 9) ** 2),
    },
    "InverseGamma": {"alpha": 3.0, "beta": 1.0},
    "Kumaraswamy": {"a": 2.0, "b": 3.0},
    "Laplace": {"mu": 0.0, "b": 1.0},
    "LogNormal": {"mu": 0.0, "sigma": 1.0},
    "Logistic": {"mu": 0.0, "s": 1.0},
    "LogitNormal": {"mu": 0.0, "sigma": 1.0},
    "Moyal": {"mu": 0.0, "sigma": 1.0},
    "NegativeBinomial": {"mu": 2.0, "alpha": 1.0},
    "Normal": {"mu": 0.0, "sigma": 1.0},
    "NormalMixture": {"w": [0.4, 0.6], "mu": [-1.0, 1.0], "sigma": [0.5, 1.0]},
    "OrderedLogistic": {"eta": 0.2, "cutpoints": [-1.0, 1.0]},
    "OrderedProbit": {"eta": 0.2, "cutpoints": [-1.0, 1.0]},
    "Pareto": {"alpha": 3.0, "m": 1.0},
    "Poisson": {"mu": 2.0},
    "PolyaGamma": {"h": 1.0, "z": 0.0},
    "Rice": {"nu": 1.0, "sigma": 1.0},
    "SkewNormal": {"mu": 0.0, "sigma": 1.0, "alpha": 1.0},
    "SkewStudentT": {"mu": 0.0, "sigma": 1.0, "a": 2.0, "b": 3.0},
    "StudentT": {"nu": 4.0, "mu": 0.0, "sigma": 1.0},
    "Triangular": {"lower": 0.0, "c": 1.0, "upper": 3.0},
    "TruncatedNormal": {"mu": 0.0, "sigma": 1.0, "lower": -1.0},
    "Uniform": {"lower": 0.0, "upper": 2.0},
    "VonMises": {"mu": 0.0, "kappa": 1.0},
    "Wald": {"mu": 1.0, "lam": 2.0},
    "Weibull": {"alpha": 2.0, "beta": 1.0},
    "ZeroInflatedBinomial": {"psi": 0.6, "n": 4, "p": 0.3},
    "ZeroInflatedNegativeBinomial": {"psi": 0.6, "mu": 2.0, "alpha": 1.0},
    "ZeroInflatedPoisson": {"psi": 0.6, "mu": 2.0},
}


def of_parts(name, make, **options):
    return getattr(pm, name)("x", make(), **options)


#: Those of vectors, and those that are made of others: a function of what says the shape.
OTHERS = {
    "AR": lambda **how: pm.AR("x", [0.5], sigma=1.0, init_dist=pm.Normal.dist(0.0, 1.0), **how),
    "CAR": lambda observed=None, **_: pm.CAR("x", np.zeros(N), W=WEIGHTS, alpha=0.5, tau=1.0, observed=observed),
    "Censored": lambda **how: of_parts("Censored", lambda: pm.Normal.dist(0.0, 1.0), lower=-1.0, upper=1.0, **how),
    "CustomDist": lambda **how: pm.CustomDist(
        "x", 0.0, dist=lambda mu, size: pm.math.exp(pm.Normal.dist(mu, 1.0, size=size)), **how
    ),
    "Dirichlet": lambda observed=None, **_: pm.Dirichlet("x", np.ones(N), observed=observed),
    "DirichletMultinomial": lambda observed=None, **_: pm.DirichletMultinomial("x", 5, np.ones(N), observed=observed),
    "EulerMaruyama": lambda observed=None, **_: pm.EulerMaruyama(
        "x", 0.1, lambda x, a: (-a * x, 1.0), (1.0,), init_dist=pm.Normal.dist(), steps=N - 1, observed=observed
    ),
    "GARCH11": lambda **how: pm.GARCH11("x", omega=1.0, alpha_1=0.1, beta_1=0.1, initial_vol=1.0, **how),
    "GaussianRandomWalk": lambda **how: pm.GaussianRandomWalk("x", sigma=1.0, init_dist=pm.Normal.dist(), **how),
    "ICAR": lambda observed=None, **_: pm.ICAR("x", W=WEIGHTS, observed=observed),
    "KroneckerNormal": lambda observed=None, **_: pm.KroneckerNormal(
        "x", np.zeros(4), covs=[np.eye(2), np.eye(2)], observed=observed
    ),
    "LKJCholeskyCov": lambda observed=None, **_: pm.LKJCholeskyCov(
        "x", eta=2.0, n=2, sd_dist=pm.HalfNormal.dist(), compute_corr=False, observed=observed
    ),
    "LKJCorr": lambda observed=None, **_: pm.LKJCorr("x", eta=2.0, n=2, observed=observed),
    "MatrixNormal": lambda observed=None, **_: pm.MatrixNormal(
        "x", np.zeros((2, 2)), rowcov=np.eye(2), colcov=np.eye(2), observed=observed
    ),
    "Mixture": lambda **how: pm.Mixture("x", [0.4, 0.6], [pm.Normal.dist(-1.0, 1.0), pm.Laplace.dist(1.0, 1.0)], **how),
    "Multinomial": lambda observed=None, **_: pm.Multinomial("x", 5, np.ones(N) / N, observed=observed),
    "MvNormal": lambda **how: pm.MvNormal("x", np.zeros(N), np.eye(N), **how),
    "MvStudentT": lambda **how: pm.MvStudentT("x", nu=4.0, mu=np.zeros(N), scale=np.eye(N), **how),
    "OrderedMultinomial": lambda observed=None, **_: pm.OrderedMultinomial(
        "x", 0.2, [-1.0, 1.0], 5, compute_p=False, observed=observed
    ),
    "StickBreakingWeights": lambda observed=None, **_: pm.StickBreakingWeights("x", alpha=1.0, K=N, observed=observed),
    "Truncated": lambda **how: of_parts("Truncated", lambda: pm.StudentT.dist(4.0), lower=0.0, **how),
    "ZeroSumNormal": lambda **how: pm.ZeroSumNormal("x", 1.0, **how),
}
for _name, _parameters in SCALARS.items():
    OTHERS[_name] = lambda name=_name, parameters=_parameters, **how: getattr(pm, name)("x", **parameters, **how)

#: Distributions that are refused as free variables -> why.  Observed, all of them work.
REFUSED = {
    "Censored": "has point masses, which gradients cannot anneal",
    "DirichletMultinomial": "no element can change alone",
    "Flat": "improper, so log Z is not defined beside data; works in a model without data",
    "HalfFlat": "improper, so log Z is not defined beside data; works in a model without data",
    "HurdleGamma": "has a point mass, which gradients cannot anneal",
    "HurdleLogNormal": "has a point mass, which gradients cannot anneal",
    "Multinomial": "no element can change alone",
    "OrderedMultinomial": "no element can change alone",
}

#: Distributions of vectors, of which PyMC has no density for missing elements.
WHOLE = {
    *("AR", "CAR", "Dirichlet", "EulerMaruyama", "GARCH11", "GaussianRandomWalk", "ICAR", "KroneckerNormal"),
    *("LKJCholeskyCov", "LKJCorr", "MatrixNormal", "MvNormal", "MvStudentT", "StickBreakingWeights", "ZeroSumNormal"),
}


def table():
    """Return a Markdown table of the distributions: values, and whether each is free, observed, or observed in part."""
    heads = ("distribution", "values", "as a free variable", "observed", "with missing values")
    rows = [f"| {' | '.join(heads)} |", "| --- " * len(heads) + "|"]
    for name in sorted(OTHERS):
        note = REFUSED.get(name)
        gaps = "no" if note else "no: vectors must be complete" if name in WHOLE else "yes"
        rows.append(f"| `pm.{name}` | {_values(name)} | {f'no: {note}' if note else 'yes'} | yes | {gaps} |")
    return "\n".join(rows)


def _values(name):
    if name == "PolyaGamma":
        return "real"  # PyMC makes it only beside the package polyagamma
    with pm.Model() as model:
        OTHERS[name](shape=(N,))
    (variable,) = model.free_RVs
    return "discrete" if variable.dtype.startswith(("int", "bool", "uint")) else "real"
