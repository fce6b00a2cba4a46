"""The chains of linked importance sampling: averages over all states, and a linking state drawn by its weight."""

import numpy as np

from pymc_hais.estimators import Link
from pymc_hais.estimators import bridge as linked
from tests.mutants import mutate
from tests.statistical import assert_caught, assert_mean

LOG_RATIOS = np.array([0.3, -1.0, 2.0, 0.5])


def links(n=4000, build=Link):
    """Let n chains have the same four states; return the link, and which state links each chain."""
    link, chosen = build(n, 0.4, 0.7, np.random.default_rng(1)), np.zeros(n, dtype=int)
    for i, log_ratio in enumerate(LOG_RATIOS):
        chosen = np.where(link.add(np.full(n, log_ratio)), i, chosen)
    return link, chosen


def test_averages_are_those_of_the_geometric_bridges():
    link, _ = links(1)
    np.testing.assert_allclose(link.log_ahead, np.log(np.mean(np.exp(0.35 * LOG_RATIOS))))
    np.testing.assert_allclose(link.log_back, np.log(np.mean(np.exp(-0.2 * LOG_RATIOS))))


WEIGHTS = np.exp(0.35 * LOG_RATIOS) / np.exp(0.35 * LOG_RATIOS).sum()


def test_the_linking_state_is_drawn_by_its_weight():
    _, chosen = links()
    assert_mean(chosen[:, None] == np.arange(4), WEIGHTS)


def test_links_that_forget_the_weights_are_caught():
    wrong = mutate(
        linked, ("share = np.exp(ahead - self._ahead)", "share = np.full(len(ahead), 1 / (self._n_states + 1))")
    )
    _, chosen = links(build=wrong.Link)
    assert_caught(chosen[:, None] == np.arange(4), WEIGHTS)


def test_a_first_state_without_density_links_until_there_is_a_better_one():
    link = Link(1, 0.0, 1.0, np.random.default_rng(0))
    assert link.add(np.array([-np.inf]))[0]
    assert link.add(np.array([0.0]))[0]
