"""Noise-contrastive estimation: classify rows against noise, or against draws of the present model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.gradient import disconnected_grad
from pytensor.graph.replace import vectorize_graph
from scipy.special import expit

from pymc_hais.density.compiling import compile_interpreted, untraced
from pymc_hais.inputs.arguments import check_integer
from pymc_hais.learning.family import KINDS, Arrays, Family, factor_covariance
from pymc_hais.learning.program import HELD
from pymc_hais.learning.protocol import Batch, Method, Pull
from pymc_hais.references import Gaussian

#: Most parameters for which the error of log Z is computed: the work grows as the square of their number.
MOST_PARAMETERS = 2000
#: ``(parameters, rows (m, D)) -> log densities (m,), gradients in each parameter (m, *shape)``.
type Slopes = Callable[[Arrays, np.ndarray], tuple[np.ndarray, dict[str, np.ndarray]]]


class Noise(NamedTuple):
    """A density that can be drawn from: ``sample(n, rng)`` rows (n, D), and the log density (n,) of rows."""

    sample: Callable[[int, np.random.Generator], np.ndarray]
    log_density: Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class NoiseContrastive(Method):
    r"""Learn to tell rows from noise of a known density (Gutmann & Hyvärinen 2010, equation 8; 2012, equation 12).

    .. math:: J = -\operatorname{mean}_x \log s(G(x) - \log \nu) - \nu \operatorname{mean}_y \log s(\log \nu - G(y)),
              \quad G = \log p - \log Z - \log p_\text{noise}

    with s the logistic function and :math:`\nu` draws y of the noise for each row.  log Z is learnt as a parameter of
    its own: ``result["fitted"]["log_z"]``.  Its error ``log_z_se``, compared with log Z of the fitted density, assumes
    a model that can be right and noise that is drawn once; noise drawn anew in each step makes the error smaller.  It
    is NaN for more than 2,000 parameters.

    Parameters
    ----------
    noise : object, optional
        Any reference with ``sample(n, rng)`` and a symbolic ``logp(x)``, such as :class:`pymc_hais.Gaussian`,
        :class:`~pymc_hais.StudentT` or :class:`~pymc_hais.Box`.  It must reach wherever the data may lie.  By default a
        Gaussian with the mean and covariance of real rows, or the frequencies of each discrete element.
    ratio : int, default 10
        Draws of the noise for each row; with many draws the method approaches maximum likelihood.

    References
    ----------
    Gutmann, M. U. and Hyvärinen, A. (2010). Noise-contrastive estimation: a new estimation principle for unnormalized
    statistical models. AISTATS. (2012) JMLR 13, 307-361.
    """

    noise: Any = None
    ratio: int = 10

    supports: ClassVar[frozenset[str]] = frozenset(KINDS)

    def __post_init__(self) -> None:
        check_integer("ratio", self.ratio, 1)
        if self.noise is not None and not all(callable(getattr(self.noise, one, None)) for one in ("sample", "logp")):
            raise ValueError(
                "`noise` must have sample(n, rng) and logp(x), as pymc_hais.Gaussian has; got "
                f"{self.noise!r}. Leave it out for a Gaussian with the data's mean and covariance."
            )

    def check(self, family: Family) -> None:
        """Refuse, without a noise, rows for which there is no default."""
        super().check(family)
        kinds = {one.kind for one in family.visible}
        if self.noise is None and not (kinds == {"real"} or kinds <= {"binary", "categorical"}):
            raise ValueError(
                f"NoiseContrastive has no default noise for {' and '.join(sorted(kinds))} rows: pass `noise` with the "
                "same range of values as the data."
            )

    def own(self, family: Family, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Learn log Z."""
        return {"log_z": np.zeros(())}

    def begin(self, family: Family, rows: np.ndarray, rng: np.random.Generator) -> tuple[Noise, Slopes, np.ndarray]:
        """Fit or bind the noise, and compile the program for the error of log Z."""
        if self.noise is None and family.visible[0].kind != "real":
            noise = fit_frequencies(family, rows)
        else:
            given = Gaussian(rows.mean(axis=0), factor_covariance(rows)) if self.noise is None else self.noise
            bound = given.for_dimensions(family.n_dims) if hasattr(given, "for_dimensions") else given
            one, several = pt.dvector("row", shape=(family.n_dims,)), pt.dmatrix("rows")
            function = compile_interpreted([several], [vectorize_graph(bound.logp(one), {one: several})])
            noise = Noise(bound.sample, lambda at: np.asarray(function(np.asarray(at, dtype=np.float64))[0]))
        return noise, compile_slopes(family), rows

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw noise (m, ratio, D), and evaluate its log density at the rows (m,) and at the noise (m, ratio)."""
        n, n_dims = batch.rows.shape
        noise, *_ = state
        drawn = np.asarray(noise.sample(n * self.ratio, rng), dtype=np.float64)
        at_rows, at_noise = noise.log_density(batch.rows), noise.log_density(drawn)
        if not np.isfinite(at_rows).all():
            raise ValueError("The density of the `noise` is zero at some row: pass one that reaches wherever data lie.")
        return [drawn.reshape((n, self.ratio, n_dims)), at_rows, at_noise.reshape((n, self.ratio))], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        drawn, at_rows, at_noise = extras
        n, ratio, n_dims = drawn.type.shape
        log_z, log_ratio = family.own["log_z"], np.log(self.ratio)
        for_rows = family.log_density(rows) - log_z - at_rows - log_ratio
        for_noise = family.log_density(drawn.reshape((n * ratio, n_dims))).reshape((n, ratio)) - log_z - at_noise
        return pt.softplus(-for_rows) + pt.softplus(for_noise - log_ratio).sum(axis=1)

    def finish(self, state: Any, parameters: Arrays, pull: Pull, rng: np.random.Generator) -> dict[str, Any]:
        """Return the standard error of log Z."""
        noise, slopes, rows = state
        if sum(one.size for one in parameters.values()) > MOST_PARAMETERS:
            return {"log_z_se": np.nan}
        return {"log_z_se": log_z_error(slopes, noise, rows, self.ratio, parameters, pull, rng)}

    def width(self, family: Family) -> int:
        """Count the noise."""
        return family.n_dims * (1 + self.ratio)


def fit_frequencies(family: Family, rows: np.ndarray) -> Noise:
    """Return independent elements with the frequencies of the data, as if each value had been seen once more."""
    low = np.concatenate([np.full(one.stop - one.start, one.low) for one in family.visible])
    counts = np.concatenate([np.full(one.stop - one.start, one.n_values) for one in family.visible])
    values = np.arange(counts.max())
    seen = (rows[:, :, None] - low[:, None] == values).sum(axis=0) + (values < counts[:, None])  # (D, V)
    tables = seen / seen.sum(axis=1, keepdims=True)

    def sample(n: int, rng: np.random.Generator) -> np.ndarray:
        ranks = (rng.random((n, len(low), 1)) > np.cumsum(tables, axis=1)).sum(axis=2)
        return low + np.minimum(ranks, counts - 1)

    def log_density(at: np.ndarray) -> np.ndarray:
        return np.log(tables)[np.arange(len(low)), (at - low).astype(int)].sum(axis=1)

    return Noise(sample, log_density)


@untraced
def compile_slopes(family: Family) -> Slopes:
    """Compile the log densities of rows, and the gradient of each of them in the parameters."""
    rows = pt.tensor("rows", dtype="float64", shape=(None, family.n_dims))
    learnt = family.parameters
    logp, _ = family.row_graph
    gradients: Any = pytensor.grad(logp, list(learnt.values()))
    function = compile_interpreted([*learnt.values(), rows], vectorize_graph([logp, *gradients], family.batched(rows)))

    def evaluate(values: Arrays, at: np.ndarray) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        log_density, *found = function(*(values[name] for name in learnt), at)
        shapes = [(len(at), *symbol.type.shape) for symbol in learnt.values()]  # with an axis of rows
        each = [np.broadcast_to(one, shape) for one, shape in zip(found, shapes, strict=True)]
        return np.broadcast_to(log_density, len(at)), dict(zip(learnt, each, strict=True))

    return evaluate


def log_z_error(
    slopes: Slopes, noise: Noise, rows: np.ndarray, ratio: int, values: Arrays, pull: Pull,
    rng: np.random.Generator,
) -> float:  # fmt: skip
    """Return the standard error of the learnt log Z, as log Z of the density of the fitted values.

    The terms of the rows, each with draws of the noise of its own, are independent, and the fit is the zero of the mean
    of their gradients: asymptotically its covariance is ``H^-1 S H^-1 / n``, with S the covariance of those gradients
    and H the expected second derivatives, ``E[s (1 - s) g g']`` over rows and noise where the model can be right
    (Gutmann and Hyvärinen 2012, theorem 3).  Here s is the probability that a row or draw is given of being a row, and
    g the gradient of ``log p - log Z``.  The learnt log Z is off from that of the fitted parameters by ``d log_z -
    E[grad log p]' d theta``.
    """
    # Gradients (m, P) in the values are multiplied by the matrix (P, P) for those in free coordinates.
    ends = np.cumsum([one.size for one in values.values()])
    turned = []
    for unit in np.eye(ends[-1]):
        parts = zip(values.items(), np.split(unit, ends[:-1]), strict=True)
        pulled = pull({name: part.reshape(value.shape) for (name, value), part in parts})
        turned.append(np.concatenate([np.ravel(pulled[name]) for name in values]))
    turn = np.stack(turned)

    def add_up(part: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return sums over rows, with fresh noise: second derivatives, squares of scores, scores, and g of the rows."""
        n, drawn = len(part), np.asarray(noise.sample(len(part) * ratio, rng), dtype=np.float64)
        at = np.concatenate([part, drawn])
        log_density, each = slopes(values, at)
        each["log_z"] = np.full(len(at), -1.0)
        g = np.hstack([each[name].reshape(len(at), -1) for name in values]) @ turn
        log_ratio = log_density - values["log_z"] - noise.log_density(at) - np.log(ratio)
        is_possible = np.isfinite(log_density)
        s, g = np.where(is_possible, expit(log_ratio), 0.0), np.where(is_possible[:, None], g, 0.0)
        scores = (s[n:, None] * g[n:]).reshape(n, ratio, -1).sum(axis=1) - (1.0 - s[:n, None]) * g[:n]
        return g.T @ ((s * (1.0 - s))[:, None] * g), scores.T @ scores, scores.sum(axis=0), g[:n].sum(axis=0)

    n_kept = max(2000, 10 * len(turn))  # rows are enough for covariances
    kept = rows[rng.permutation(len(rows))[:n_kept]]
    n_parts = -(-len(kept) * (1 + ratio) * len(turn) // HELD)
    sums = [add_up(part) for part in np.array_split(kept, n_parts)]
    bend, squares, scores, slope = (sum(one) / len(kept) for one in zip(*sums, strict=True))
    # A direction with second derivatives of less than 1e-10 of the largest changes nothing.
    way = np.linalg.lstsq(bend, slope, rcond=1e-10)[0]
    return float(np.sqrt(way @ (squares - np.outer(scores, scores)) @ way / len(rows)))


@dataclass(frozen=True)
class SelfContrastive(Method):
    r"""Noise-contrastive estimation whose noise is a copy of the model, made anew in each step (Goodfellow 2015).

    .. math:: J = -\operatorname{mean}_x \log s(G(x)) - \operatorname{mean}_y \log s(-G(y)),
              \quad G = \log p_\theta - \log p_{\theta'}, \quad y \sim p_{\theta'}

    with s the logistic function and :math:`\theta' = \theta` not differentiated.  The gradient of J is half that of the
    negative log-likelihood (section 3 of the paper), as exact as the draws are; the gradients of the normalising
    constants cancel.  The value of J is always 2 log 2.

    Parameters
    ----------
    sample : callable
        ``sample(parameters, n, rng)`` draws n rows (n, D) of the model at values of the parameters, a dict of arrays.

    References
    ----------
    Goodfellow, I. J. (2015). On distinguishability criteria for estimating generative models. ICLR workshop;
    arXiv:1412.6515.
    """

    sample: Callable[[Mapping[str, np.ndarray], int, np.random.Generator], Any]

    supports: ClassVar[frozenset[str]] = frozenset(KINDS)
    follows_parameters: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if not callable(self.sample):
            raise ValueError(f"`sample` must be a function of (parameters, n, rng); got {self.sample!r}.")

    def prepare(self, state: Any, batch: Batch, rng: np.random.Generator) -> tuple[list[np.ndarray], Any]:
        """Draw as many rows of the model."""
        drawn = np.asarray(self.sample(batch.parameters, len(batch.rows), rng), dtype=np.float64)
        if drawn.shape != batch.rows.shape or not np.isfinite(drawn).all():
            raise ValueError(
                f"`sample` of SelfContrastive must return finite rows {batch.rows.shape}; got the shape {drawn.shape}."
            )
        return [drawn], state

    def objective(self, family: Family, rows: pt.TensorVariable, extras: list[pt.TensorVariable]) -> Any:
        """Return the terms (m,)."""
        of_rows, of_draws = (family.log_density(one) for one in (rows, extras[0]))
        terms = pt.softplus(disconnected_grad(of_rows) - of_rows), pt.softplus(of_draws - disconnected_grad(of_draws))
        return terms[0] + terms[1]
