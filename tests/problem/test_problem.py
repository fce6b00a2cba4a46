"""Problems: rows of data in, evaluated particles out."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import logsumexp

from pymc_hais.core.seeds import Place, Purpose, Seeds
from pymc_hais.density import with_table
from pymc_hais.kernels import Hamiltonian, LinearConstraints
from pymc_hais.problem.building import bind_reference, build_problem, with_reference
from pymc_hais.problem.problem import Compiler
from pymc_hais.references import Fitted, Gaussian, StudentT
from tests.statistical import assert_mean

SEEDS = Seeds((1,))
C = Compiler(backend="c")
FIELDS = ("log_reference", "log_ratio", "grad_reference", "grad_ratio")


def one_row():
    """A row x with a covariate, of which a is the latent."""
    with pm.Model() as model:
        scale = pm.Data("scale", np.ones(2))
        a = pm.Normal("a", 0.0, 2.0, shape=2)
        pm.Normal("x", scale * a, 0.5, observed=np.zeros(2))
    return model


ROWS = {"x": np.array([[0.0, 1.0], [2.0, -1.0], [0.3, 0.3]]), "scale": np.array([[1.0, 1.0], [0.5, 2.0], [3.0, 1.0]])}


def streams(n):
    return SEEDS.streams(Place(Purpose.ROUND, 1, range(n), [0]))


CENTRES = np.array([[0.0, 1.0], [2.0, -0.5], [0.1, 0.3]])
FITS = {
    "reference": None,
    "Gaussian": Fitted(Gaussian(np.zeros(2), np.array([[0.7, 0.0], [-0.2, 0.5]])), CENTRES, 0.1),
    "Student-t": Fitted(StudentT(4.0, np.zeros(2), np.array([[0.7, 0.0], [-0.2, 0.5]])), CENTRES, 0.1),
}


@pytest.fixture(scope="module")
def rows():
    return build_problem(one_row(), "prior", C, SEEDS, ROWS, takes_fit=True)


@pytest.mark.few(2)
@pytest.mark.parametrize("name", FITS)
def test_each_row_has_the_density_of_the_model_that_holds_it(name, rows):
    problem, fitted = rows, FITS[name]
    if fitted:
        problem = rows.with_fit(fitted, None)
        assert problem.label == f"the prior (10%) and {fitted.shape} fitted to the pilot around each row (90%)"
    assert problem.is_prior == (fitted is None)
    together = problem.draw([2, 0, 1, 0], streams(4), 30)
    assert together.alive.all()
    assert together.state.position.shape == (4, 30, 2)
    for b, row in enumerate([2, 0, 1, 0]):
        model = with_table(problem.model, {name: value[row] for name, value in ROWS.items()})
        np.testing.assert_array_equal(model["scale"].get_value(), ROWS["scale"][row])
        # The posterior density is that of the row's own model, wherever the particles start.
        layout, prior = bind_reference(model, "prior", SEEDS)
        alone = with_reference(model, layout, prior, C, SEEDS)
        state = alone.engine.start(together.state.position[b : b + 1], [], together.keys[b : b + 1])
        joint, expected = (one.log_reference + one.log_ratio for one in (together.state, state))
        np.testing.assert_allclose(joint[b], expected[0], rtol=1e-10)
        gradient, expected = (one.grad_reference + one.grad_ratio for one in (together.state, state))
        np.testing.assert_allclose(gradient[b], expected[0], rtol=1e-8, atol=1e-10)
        if not fitted:
            for field in FIELDS:
                value = getattr(together.state, field)[b]
                np.testing.assert_allclose(value, getattr(state, field)[0], rtol=1e-10, err_msg=field)


@pytest.mark.parametrize("name", ["Gaussian", "Student-t"])
def test_most_draws_are_around_the_fit_of_their_row_and_some_are_the_references_own(name, rows):
    problem = rows.with_fit(FITS[name], None)
    particles = problem.draw([1], streams(1), 4000)
    own = rows.draw([1], streams(1), 4000).state.position
    position = particles.state.position[0]
    shared = np.isin(position[:, 0], own)
    assert shared.sum() == 400
    near = position[~shared] - CENTRES[1]
    assert_mean(np.tanh(near), np.zeros(2))
    np.testing.assert_array_equal(particles.ancestors[0], np.arange(4000))
    # The mean ratio of two normalised densities at the draws of one of them is one.
    reference = stats.multivariate_normal(np.zeros(2), 4.0 * np.eye(2))
    assert_mean(np.exp(reference.logpdf(position) - particles.state.log_reference[0]), 1.0)


@pytest.mark.parametrize("n", [20, 23])
def test_every_population_has_its_share_of_the_references_own_draws(n, rows):
    far = Fitted(Gaussian(np.zeros(2), np.eye(2)), 100.0 + CENTRES, 0.1)
    start = rows.with_fit(far, None).start([0, 1] * 20, streams(40), n)
    own = start.positions[:, :, 0] < 50.0
    # A tenth, in every one; where that is not whole, chance decides about one draw, which is then of no part for sure.
    assert set(own.sum(axis=1)) == ({2} if n == 20 else {2, 3})
    unsure = start.parts == 0
    np.testing.assert_array_equal(unsure.sum(axis=1), 0 if n == 20 else 1)
    np.testing.assert_array_equal(own[~unsure], (start.parts == 1)[~unsure])


def test_a_population_is_the_same_whatever_others_are_drawn_beside_it(rows):
    problem = rows.with_fit(FITS["Student-t"], None)
    several = problem.draw([0, 1, 2], streams(3), 20)
    alone = problem.draw([1], streams(3)[1:2], 20)
    for one, other in zip(several.state, alone.state, strict=True):
        np.testing.assert_array_equal(one[1], other[0])
    np.testing.assert_array_equal(several.keys[1], alone.keys[0])
    assert several.rngs[1].random() == alone.rngs[0].random()
    np.testing.assert_array_equal(several.ancestors, np.tile(np.arange(20), (3, 1)))


def test_a_model_as_it_is_is_one_row_without_inputs():
    problem = build_problem(one_row(), "prior", C, SEEDS)
    assert problem.n_rows == 1
    assert problem.inputs([0, 0]) == []
    assert len(problem.draw([0, 0], streams(2), 5).alive) == 2


def test_draws_beyond_floating_point_weigh_nothing_and_what_they_might_have_added_is_known():
    with pm.Model() as model:
        x = pm.Gamma("x", 0.001, 1.0)  # half of the draws underflow
        pm.Normal("y", x, 1.0, observed=0.0)
    problem = build_problem(model, "prior", C, SEEDS)
    particles = problem.draw([0, 0], streams(2), 400)
    clipped = np.isclose(problem.to_model(np.asarray(particles.state.position))[..., 0], -700.0)
    np.testing.assert_array_equal(particles.alive, ~clipped)
    assert 100 < clipped[0].sum() < 300
    log_ratio = np.where(clipped, particles.state.log_ratio, -np.inf)
    np.testing.assert_allclose(particles.log_z_dropped, logsumexp(log_ratio, axis=1) - np.log(400))


def test_draws_outside_the_walls_weigh_nothing():
    walls = LinearConstraints([[1.0, 1.0]], [0.5])
    problem = build_problem(one_row(), "prior", Compiler(Hamiltonian(constraints=walls), "c"), SEEDS)
    particles = problem.draw([0, 0], streams(2), 50)
    np.testing.assert_array_equal(particles.alive, particles.state.position.sum(axis=2) <= 0.5)
    assert 20 < particles.alive.sum() < 80
    assert np.all(particles.log_z_dropped == -np.inf)
