"""Small PyMC models by chance: random expressions of random parameters under random likelihoods, one for each seed.

An expression is a number (), one number a parameter (3,), one a row of data (12,) or a table of both (12, 3).
"""

from __future__ import annotations

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.tensor.special import log_softmax, softmax

ROWS, COLUMNS = 12, 3
RNG = np.random.default_rng(17)
DATA = np.round(RNG.normal(size=ROWS), 2)
DATA[::5] = 0.0
DESIGN = RNG.normal(size=(ROWS, COLUMNS))
COUNTS = RNG.poisson(2.0, ROWS)
GROUP = RNG.integers(0, COLUMNS, ROWS)
MASK = RNG.random(ROWS) < 0.4
TABLE_MASK = RNG.random((ROWS, COLUMNS)) < 0.4
SQUARE = RNG.normal(size=(COLUMNS, COLUMNS)) + 2.0 * np.eye(COLUMNS)
COVARIANCE = SQUARE @ SQUARE.T
TIMES = np.linspace(0.0, 3.0, ROWS)
LONG_COVARIANCE = np.exp(-np.abs(TIMES[:, None] - TIMES)) + 0.1 * np.eye(ROWS)

NUMBER, SHORT, LONG, TABLE = (), (COLUMNS,), (ROWS,), (ROWS, COLUMNS)
CONSTANTS = [0.0, 1.0, -1.0, 2.0, 0.3, -1.7, 2, -1, 3]


class Writer:
    """Writes random expressions of a model's parameters."""

    def __init__(self, rng, parameters=()):
        self._rng = rng
        self._leaves = {shape: [p for p in parameters if p.type.ndim == len(shape)] for shape in (NUMBER, SHORT)}

    def choose(self, options):
        """Choose one of some."""
        options = list(options)
        return options[self._rng.integers(len(options))]

    def any(self, shape, depth):
        """Write an expression that may have any value."""
        if depth <= 0:
            return self._leaf(shape)
        rules = [self._unary, self._binary, self._choice, self._whole, self._power, self._array, self._extreme]
        return self.choose(rules)(shape, depth - 1)

    def positive(self, shape, depth):
        """Write an expression that is positive wherever it does not underflow."""
        x = self.any(shape, depth - 1)
        form = self.choose(["exp", "softplus", "square", "product", "quotient", "chosen", "looked up", "shifted"])
        if form == "exp":
            return pt.exp(x)
        if form == "softplus":
            return pt.softplus(x) + 0.1
        if form == "square":
            return 1.0 + pt.sqr(x)
        if form == "product":
            return self.choose([0.3, 2, 1.7]) * pt.exp(0.5 * x) * pt.exp(self.any(NUMBER, 0))
        if form == "quotient":
            return pt.sqrt(pt.exp(x)) / self.choose([3.0, 2, 1 + pt.exp(self.any(NUMBER, 0))])
        if form == "chosen":
            return pt.switch(self.condition(shape, depth - 1), pt.exp(x), self.choose([2, 0.5]))
        if form == "looked up" and shape == LONG:
            return pt.exp(self.any(SHORT, depth - 1))[GROUP]
        return 0.5 + pt.sigmoid(x)

    def condition(self, shape, depth):
        """Write a condition that is constant, of the parameters or of both."""
        fixed = {LONG: MASK, TABLE: TABLE_MASK, SHORT: np.array([True, False, True])}.get(shape)
        form = self.choose(["fixed", "above", "compare", "both", "not zero", "number"])
        if form == "fixed" and fixed is not None:
            return pt.constant(fixed)
        if form == "compare":
            return pt.ge(self.any(shape, depth - 1), self.any(NUMBER, depth - 1))
        if form == "both":
            return pt.and_(self.any(shape, 0) > -1.0, pt.le(self.any(NUMBER, 0), 0.5))
        if form == "not zero":
            return pt.neq(self.any(shape, 0), 0)
        if form == "number":
            return pt.lt(self.any(NUMBER, 0), self.choose(CONSTANTS))
        return self.any(shape, depth - 1) > self.choose(CONSTANTS)

    def _leaf(self, shape):
        numbers, shorts = self._leaves[NUMBER], self._leaves[SHORT]
        if shape == NUMBER:
            return self.choose([*numbers, *(x[i] for x in shorts for i in (0, -1))])
        if shape == SHORT:
            return self.choose([*shorts, shorts[0] * self.choose(numbers)])
        short = self.choose(shorts)
        if shape == LONG:
            return self.choose([short[GROUP], DATA * self.choose(numbers), pt.dot(DESIGN, short)])
        return self.choose([DESIGN * short, DATA[:, None] * short, DESIGN - self.choose(numbers)])

    def _unary(self, shape, depth):
        x = self.any(shape, depth)
        functions = [pt.tanh, pt.sigmoid, pt.softplus, pt.erf, pt.sqr, pt.abs, pt.arctan, pt.sin, pt.neg, pt.log1pexp]
        functions += [
            lambda x: pt.exp(-pt.sqr(x)),
            lambda x: pt.log1p(pt.sqr(x)),
            lambda x: pt.gammaln(1.0 + pt.sqr(x)),
            lambda x: pt.log(self.positive(shape, depth)),
            lambda x: pt.sqrt(self.positive(shape, depth)),
            lambda x: pt.log1p(-pt.sigmoid(x)),
            lambda x: pm.logcdf(pm.Normal.dist(), x),
            lambda x: pt.clip(x, -2, 1.5),
            lambda x: pt.expm1(pt.minimum(x, 2)),
            lambda x: pt.log(pt.erfc(x)),
            lambda x: pt.log(pt.switch(pt.gt(x, 0), 2, 3) * 5),
        ]
        return self.choose(functions)(x)

    def _binary(self, shape, depth):
        x, y = self.any(shape, depth), self.any(self.choose([shape, NUMBER]), depth)
        functions = [pt.add, pt.sub, pt.mul, pt.maximum, pt.minimum, pt.logaddexp]
        functions += [lambda x, y: x / self.positive(shape, depth), lambda x, y: x * self.choose(CONSTANTS) + y]
        return self.choose(functions)(x, y)

    def _choice(self, shape, depth):
        """Choose by a condition: also what is not a number where it is not chosen."""
        x, branch = (
            self.any(shape, depth),
            self.choose([self.any(self.choose([shape, NUMBER]), depth), 0, 0.0, 2, -1.0]),
        )
        unsafe = [
            lambda x: pt.switch(x > 0, pt.log(x), branch),
            lambda x: pt.switch(pt.gt(x, 0), pt.sqrt(x) * 2, branch),
            lambda x: pt.switch(x > 0.0, x**1.5, branch),
            lambda x: pt.switch(x > 0.0, x ** self.any(NUMBER, 0), branch),
            lambda x: pt.switch(pt.abs(x) > 1e-3, pt.expm1(pt.clip(x, -9, 9)) / x, 1.0),
            lambda x: pt.switch(pt.le(x, 1), branch, 1 / (x - 1)),
            lambda x: pt.switch(x < -0.5, branch, pt.log1p(x)),
            lambda x: pt.switch(abs(x) < 1, pt.arcsin(x), branch),
            lambda x: pt.switch(x > 0, pt.gammaln(x), branch),
            lambda x: pt.switch(x < 5, pt.exp(x), branch),
        ]
        safe = [lambda x: pt.switch(self.condition(shape, depth), x, branch)] * 5
        few = [lambda x: pt.switch(self.condition(shape, depth), self.any(NUMBER, depth), branch)] * 5
        return self.choose(unsafe + safe + few)(x)

    def _whole(self, shape, depth):
        """Write whole numbers of several types: their derivative is zero."""
        x = self.any(shape, depth)
        functions = [pt.floor, pt.sign, pt.round, lambda x: pt.gt(x, 0.4) * 1.0, lambda x: (x > 0) * 1 + (x > 1)]
        functions += [
            lambda x: pt.clip(pt.round(x), -9, 9).astype("int64"),
            lambda x: 2 ** pt.clip(pt.round(x), 0, 9).astype("int64"),
            lambda x: 2.0 ** pt.clip(pt.floor(x), -3, 6),
            lambda x: pt.floor(2.0 ** pt.clip(pt.round(x), 0, 6).astype("int8")),
            lambda x: pt.switch(x > 0, 100, 50).astype("int8") // 3,
            lambda x: (pt.clip(x, -3, 3) * 3).astype("int8") % 4,
        ]
        return self.choose(functions)(x) * 0.1

    def _power(self, shape, depth):
        x, base = self.any(self.choose([shape, NUMBER]), depth), self.positive(shape, depth)
        powers = [lambda: x**2, lambda: x**3.0, lambda: x ** np.int8(2), lambda: base ** pt.tanh(x), lambda: base**0.7]
        powers += [lambda: base**-2.0, lambda: 2 ** pt.tanh(x), lambda: (1 + DESIGN[0] ** 2).sum() ** pt.sigmoid(x)]
        powers += [lambda: base ** pt.gt(x, 0), lambda: base ** pt.constant(np.array(-1.0))]
        return self.choose(powers)() + pt.zeros(shape)

    def _extreme(self, shape, depth):
        """Write what is large, small or saturated."""
        x = self.any(shape, depth)
        forms = [lambda: pt.log1mexp(-self.positive(shape, depth)), lambda: pt.log(pt.sigmoid(3 * x))]
        forms += [lambda: pt.logaddexp(x, -np.inf), lambda: pt.maximum(x, 0.0) ** 1.5, lambda: pt.exp(-pt.exp(-x))]
        forms += [lambda: pt.sqrt(pt.maximum(x, 0)), lambda: pt.maximum(0, x) ** pt.sigmoid(self.any(NUMBER, 0))]
        return self.choose(forms)()

    def _array(self, shape, depth):
        """Write a reduction, a product, an index or a table."""
        return self.choose(self._arrays(shape, depth))()

    def _arrays(self, shape, depth):
        def of(other):
            return self.any(other, depth)

        if shape == NUMBER:
            return [
                lambda: of(LONG).mean(), lambda: 0.1 * of(SHORT).sum(), lambda: pt.logsumexp(of(SHORT)),
                lambda: 0.1 * (DATA * of(LONG)).sum(), lambda: 0.1 * pt.switch(MASK, of(NUMBER), of(NUMBER)).sum(),
                lambda: of(SHORT).max(), lambda: pt.dot(of(SHORT), SQUARE[0]), lambda: 0.1 * of(SHORT)[GROUP].sum(),
                lambda: 0.1 * (COUNTS * pt.switch(MASK, pt.log(self.positive(NUMBER, depth)), of(NUMBER))).sum(),
                lambda: pt.log(pt.diagonal(pt.linalg.cholesky(self.positive(NUMBER, 1) * COVARIANCE))).sum(),
                lambda: pt.all(of(LONG) > -2) * of(NUMBER), lambda: pt.logsumexp(of(TABLE) * 0.3),
            ]  # fmt: skip
        if shape == SHORT:
            return [
                lambda: pt.dot(SQUARE, of(SHORT)), lambda: softmax(of(SHORT), axis=-1), lambda: pt.cumsum(of(SHORT)),
                lambda: of(TABLE).mean(axis=0), lambda: pt.concatenate([of(SHORT)[:2], of(NUMBER)[None]]),
                lambda: pt.linalg.solve(COVARIANCE, of(SHORT), b_ndim=1), lambda: of(LONG)[np.array([0, -1, 4])],
                lambda: pt.stack([of(NUMBER), of(SHORT)[1], 2.0]), lambda: of(SHORT)[::-1],
                lambda: pt.linalg.solve_triangular(np.linalg.cholesky(COVARIANCE), of(SHORT), lower=True, b_ndim=1),
                lambda: 0.1 * of(LONG).reshape((3, 4)).sum(axis=1), lambda: pt.logsumexp(of(TABLE), axis=0) * 0.3,
                lambda: of(SHORT)[np.array([True, False, True])].sum() + of(SHORT),
                lambda: pt.set_subtensor(of(SHORT)[1], of(NUMBER)), lambda: pt.inc_subtensor(of(SHORT)[:2], of(NUMBER)),
            ]  # fmt: skip
        if shape == LONG:
            return [
                lambda: pt.logsumexp(of(TABLE), axis=1), lambda: (of(TABLE) * DESIGN).sum(axis=-1),
                lambda: of(SHORT)[GROUP], lambda: of(TABLE)[np.arange(ROWS), GROUP], lambda: of(TABLE).max(axis=1),
                lambda: pt.tile(of(SHORT), 4), lambda: pt.switch(MASK, of(NUMBER), of(NUMBER)),
                lambda: 0.3 * pt.cumsum(of(LONG)), lambda: pt.cumsum(of(TABLE), axis=1)[:, -1] * 0.3,
                lambda: pt.concatenate([of(LONG)[:5], of(LONG)[5:]]), lambda: of(NUMBER) ** 2 * TIMES,
            ]  # fmt: skip
        return [
            lambda: of(LONG)[:, None] + of(SHORT), lambda: softmax(of(TABLE), axis=1), lambda: of(TABLE) * DESIGN,
            lambda: log_softmax(of(TABLE), axis=-1), lambda: pt.cumsum(of(TABLE), axis=-1) * 0.3,
            lambda: pt.concatenate([of(TABLE)[:, :2], of(LONG)[:, None]], axis=-1), lambda: of(TABLE)[:, ::-1],
            lambda: pt.switch(TABLE_MASK, of(SHORT), of(NUMBER)), lambda: pt.outer(of(LONG), of(SHORT)) * 0.3,
            lambda: pt.switch(of(LONG)[:, None] > 0, pt.log(of(LONG))[:, None] * DESIGN, of(TABLE)),
        ]  # fmt: skip


def _priors(writer):
    """Add three or four parameters: a vector, a number, and one that is positive, bounded or on a simplex."""
    ordered = pm.distributions.transforms.ordered
    vectors = [
        lambda: pm.Normal("x", 0.0, 1.0, shape=3),
        lambda: pm.StudentT("x", 3.0, shape=3),
        lambda: pm.MvNormal("x", np.zeros(3), cov=COVARIANCE),
        lambda: pm.MvNormal("x", np.ones(3), tau=COVARIANCE),
        lambda: pm.Normal("x", np.arange(3.0), 2.0, transform=ordered),
        lambda: pm.Laplace("x", 0.0, 1.0, shape=3),
        lambda: pm.ZeroSumNormal("x", 1.0, shape=3),
    ]
    numbers = [
        lambda: pm.HalfNormal("s", 1.0), lambda: pm.Exponential("s", 1.0), lambda: pm.Gamma("s", 2.0, 1.0),
        lambda: pm.LogNormal("s", 0.0, 1.0), lambda: pm.Weibull("s", 1.5, 1.0), lambda: pm.InverseGamma("s", 3.0, 2.0),
        lambda: pm.Uniform("s", -1.0, 2.0), lambda: pm.Beta("s", 2.0, 3.0), lambda: pm.HalfCauchy("s", 1.0),
        lambda: pm.Truncated("s", pm.Normal.dist(0.0, 2.0), lower=-1.0, upper=4.0), lambda: pm.Gumbel("s", 0.0, 1.0),
        lambda: pm.NormalMixture("s", w=[0.3, 0.7], mu=[-2.0, 2.0], sigma=1.0), lambda: pm.SkewNormal("s", alpha=2.0),
        lambda: pm.Triangular("s", lower=0.0, upper=2.0, c=1.0), lambda: pm.Kumaraswamy("s", 2.0, 3.0),
    ]  # fmt: skip
    parameters = [writer.choose(vectors)(), pm.Normal("z"), writer.choose(numbers)()]
    if writer.choose([True, False]):
        parameters.append(pm.Dirichlet("w", np.array([1.0, 2.0, 0.5])))
    return parameters


def _likelihoods(w, d):
    """Return ways to add data."""
    near = lambda shape: w.any(shape, d)  # noqa: E731
    scale = lambda: 0.2 + w.positive(NUMBER, d - 1)  # noqa: E731
    # Of shapes beyond all bounds gradients are differences of numbers as large: there, all forms of them are rounding.
    shape = lambda: 0.2 + 5.0 * pt.sigmoid(w.any(NUMBER, d))  # noqa: E731
    # The complement of a share that rounds to one is zero: the gradient of its logarithm is no number, PyMC's as ours.
    within = lambda: 0.01 + 0.98 * pt.sigmoid(w.any(NUMBER, d))  # noqa: E731
    y, positive = DATA + 0.5, np.abs(DATA) + 0.1
    share = positive / (0.1 + positive.max())
    return [
        lambda: pm.Normal("y", near(LONG), scale(), observed=y),
        lambda: pm.StudentT("y", nu=shape(), mu=near(LONG), sigma=scale(), observed=y),
        lambda: pm.Poisson("y", pt.exp(near(LONG)), observed=COUNTS),
        lambda: pm.Poisson("y", w.positive(LONG, d), observed=COUNTS),
        lambda: pm.Bernoulli("y", logit_p=near(LONG), observed=MASK),
        lambda: pm.Bernoulli("y", p=pt.sigmoid(near(LONG)), observed=MASK),
        lambda: pm.Binomial("y", 9, p=pt.sigmoid(near(LONG)), observed=COUNTS),
        lambda: pm.NegativeBinomial("y", mu=w.positive(LONG, d), alpha=shape(), observed=COUNTS),
        lambda: pm.Gamma("y", shape(), w.positive(LONG, d), observed=positive),
        lambda: pm.Weibull("y", shape(), w.positive(LONG, d), observed=positive),
        lambda: pm.Exponential("y", w.positive(LONG, d), observed=positive),
        lambda: pm.Beta("y", 9.0 * pt.sigmoid(near(LONG)) + 0.1, shape(), observed=share),
        lambda: pm.LogNormal("y", near(LONG), scale(), observed=positive),
        lambda: pm.Categorical("y", logit_p=near(TABLE), observed=GROUP),
        lambda: pm.Categorical("y", p=softmax(near(TABLE), axis=-1), observed=GROUP),
        lambda: pm.OrderedLogistic("y", eta=near(LONG), cutpoints=np.array([-1.0, 1.0]), observed=GROUP),
        lambda: pm.ZeroInflatedPoisson("y", psi=within(), mu=w.positive(LONG, d), observed=COUNTS),
        lambda: pm.NormalMixture("y", w=softmax(near(SHORT)), mu=near(SHORT), sigma=scale(), observed=y),
        lambda: pm.Censored("y", pm.Normal.dist(near(LONG), scale()), -0.5, 1.0, observed=np.clip(y, -0.5, 1.0)),
        lambda: pm.Truncated("y", pm.Normal.dist(near(LONG), scale()), -4.0, 5.0, observed=y),
        lambda: pm.MvNormal("y", near(LONG), cov=scale() ** 2 * LONG_COVARIANCE, observed=y),
        lambda: pm.MvNormal(
            "y", near(LONG), cov=pm.gp.cov.Matern32(1, ls=scale())(TIMES[:, None]) + scale() * np.eye(ROWS), observed=y
        ),
        lambda: pm.MvNormal("y", near(SHORT), chol=scale() * np.linalg.cholesky(COVARIANCE), observed=DESIGN),
        lambda: pm.Potential("y", -0.5 * pt.sqr(near(TABLE)).sum()),
        lambda: pm.Potential("y", pt.logsumexp(near(TABLE).sum(axis=1) * 0.1)),
        lambda: pm.AsymmetricLaplace("y", kappa=scale(), mu=near(LONG), b=scale(), observed=y),
        lambda: pm.SkewNormal("y", mu=near(LONG), sigma=scale(), alpha=near(NUMBER), observed=y),
        lambda: pm.Wald("y", mu=w.positive(LONG, d), lam=scale(), observed=positive),
        lambda: pm.VonMises("y", near(LONG), shape(), observed=y),
    ]


def build(seed, depth):
    """Build one model."""
    rng = np.random.default_rng(seed)
    with pm.Model() as model:
        parameters = _priors(Writer(rng))
        writer = Writer(rng, parameters)
        writer.choose(_likelihoods(writer, depth))()
    return model
