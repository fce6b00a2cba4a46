"""Random models through every rewrite: values and gradients against ``model.logp()`` as PyMC writes it."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from pymc.logprob.utils import local_check_parameter_to_ninf_switch
from pymc.pytensorf import gradient
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import MergeOptimizer, dfs_rewriter

from pymc_hais.density import build_density, build_layout
from pymc_hais.density.compiling import write_out_inner
from tests.density.random_models import build
from tests.marks import seeds

pytestmark = pytest.mark.filterwarnings("ignore")

#: Models of the fast suite, and with those of the slow and of the exhaustive one.
FAST, SLOW, EVERY = 3, 60, 220
#: Beyond, exponentials of exponentials overflow, or leave no digit to what is added to them, and infinity times zero is
#: no number. PyMC's gradient rounds or is none there, and ours, of the same numbers, has to be no worse.
FAR = 6.0
#: PyTensor takes functions of small integers in single precision.
RTOL = 1e-6


def compile_as_written(inputs, outputs, optimizer=None):
    """Compile without any rewrite but that of the checks of parameters, and without machine code."""
    graph = FunctionGraph(outputs=outputs, clone=True, copy_inputs=False)
    write_out_inner(graph, lambda node: isinstance(node.op, OpFromGraph))
    MergeOptimizer().rewrite(graph)
    dfs_rewriter(local_check_parameter_to_ninf_switch).rewrite(graph)
    function = pm.compile(
        inputs, list(graph.outputs), mode=Mode(linker="py", optimizer=optimizer), on_unused_input="ignore"
    )
    function.trust_input = True
    return function


def value_and_gradient(model):
    logp = model.logp()
    return [logp, gradient(logp, model.value_vars)]


def positions(n_dims):
    """Return usual points, points in the tails, and points at which conditions are on the edge."""
    rng = np.random.default_rng(5)
    spread = [rng.normal(0.0, scale, size=(n, n_dims)) for scale, n in ((0.7, 8), (3.0, 5), (12.0, 3))]
    return np.concatenate(
        [*spread, *(np.full((1, n_dims), x) for x in (0.0, 1.0, -1.0)), rng.integers(-2, 3, (3, n_dims)) * 1.0]
    )


class Comparison:
    """Our density of a model beside PyMC's."""

    def __init__(self, model):
        with pytensor.config.change_flags(traceback__limit=0):
            self.model, self.layout = model, build_layout(model)
            graph = build_density(model, self.layout)
            self._data = graph.data_values
            with model:
                self._ours = compile_as_written(graph.arguments, graph.density)
                self._written = compile_as_written(model.value_vars, value_and_gradient(model))
        self._stable = None

    def ours(self, x):
        """Return value, gradient, and the size of the numbers that the value is the sum of."""
        one, two, *gradients = map(np.asarray, self._ours(x, *self._data))
        return float(one + two), sum(gradients), abs(one) + abs(two)

    def written(self, x, stable=False):
        """Return PyMC's value and gradient."""
        point = self.layout.unflatten(x)
        values = [np.asarray(point[v.name], v.dtype) for v in self.model.value_vars]
        if not stable:
            return self._written(*values)
        if self._stable is None:
            with self.model:
                outputs = value_and_gradient(self.model)
                self._stable = compile_as_written(self.model.value_vars, outputs, "stabilize")
        return self._stable(*values)

    def slope(self, x, i):
        """Return a derivative by differences of our values, and its error; None where sides or steps differ."""
        found = []
        for h in (1e-5, 2e-5):
            step = np.zeros_like(x)
            step[i] = h * max(1.0, abs(x[i]))
            low, middle, high = (self.ours(x + sign * step)[0] for sign in (-1, 0, 1))
            found += [(high - middle) / step[i], (middle - low) / step[i], (high - low) / (2 * step[i])]
        middle = found[2]
        if not np.isfinite(found).all() or np.ptp(found) > 0.01 * (1.0 + abs(middle)):
            return None
        return middle, 0.02 * (1.0 + abs(middle)) + 1e-9 * self.ours(x)[2] / step[i]

    def disagreement(self, x):
        """Return how value or gradient at a point differ from PyMC's; None if they agree, or PyMC rounds or fails."""
        (value, derivative, size), (expected, slope) = self.ours(x), self.written(x)
        if not is_close(value, expected, size):
            stable = float(self.written(x, stable=True)[0])
            if not is_close(value, stable, size):
                return f"log density {value}, not {expected} or {stable}, at {x.tolist()}"
        if not np.isfinite(value):
            return None
        scale = np.abs(slope[np.isfinite(slope)]).max(initial=1.0)
        for i in np.flatnonzero(~(np.abs(derivative - slope) <= RTOL * (scale + np.abs(slope)))):
            judged = self.slope(x, i)
            if judged is not None and np.abs(x).max() > FAR:
                if not np.isfinite(slope[i]):
                    continue
                judged = judged[0], max(judged[1], 2.0 * abs(slope[i] - judged[0]))
            if judged is not None and not abs(derivative[i] - judged[0]) <= judged[1]:
                return f"derivative {i}: {derivative[i]}, not {slope[i]} or {judged[0]}, at {x.tolist()}"
            if judged is None and np.isfinite(slope[i]) and np.isfinite(slope).all():
                (_, stable) = self.written(x, stable=True)
                if not abs(derivative[i] - stable[i]) <= 1e-4 * (scale + abs(stable[i])):
                    return f"derivative {i}: {derivative[i]}, not {slope[i]} or {stable[i]}, at {x.tolist()}"
        return None


def is_close(value, expected, size):
    """Whether two log densities agree; what is no number counts as a density of zero, as it does in weights and moves.

    A zero of PyMC's may have underflowed, but not where the density is more than exp(-700).
    """
    if np.isnan(expected):
        return np.isnan(value) or value == -np.inf
    if expected == -np.inf:  # of means that overflowed one form is infinite, another no number
        return np.isnan(value) or value < -700.0
    return value == expected or abs(value - expected) <= RTOL * (1.0 + size)


@pytest.mark.every(9)
@pytest.mark.parametrize("seed", seeds(FAST, SLOW, EVERY))
def test_random_models_have_pymcs_density_and_gradient(seed):
    comparison = Comparison(build(seed, depth=1 if seed < FAST else 2))
    found = [comparison.disagreement(x) for x in positions(comparison.layout.n_dims)]
    assert [one for one in found if one] == []
