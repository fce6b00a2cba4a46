"""One tree of seeds: no two places of it share a random number."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymc_hais.core import seeds
from pymc_hais.core.seeds import Branch, Place, Purpose, Seeds
from pymc_hais.planning import learning
from pymc_hais.planning.choose import choose
from pymc_hais.planning.starts import Search, first_reference
from pymc_hais.problem.building import build_problem
from pymc_hais.problem.problem import Problem
from pymc_hais.run.rounds import run_rounds
from tests.marks import slow_but
from tests.mutants import mutate
from tests.quick import one_mean, shared
from tests.runs import call_of

entropies = st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=6).map(tuple)
branches = st.lists(st.sampled_from(Branch), max_size=3)
places = st.tuples(st.sampled_from(Purpose), st.integers(0, 2**20), st.integers(0, 2**20), st.integers(0, 1000))


def numbers_of(stream):
    """Return the first numbers of a stream's three kinds: reference draws, noise and resampling."""
    return tuple(stream.draws.generate_state(2)), tuple(stream.key), tuple(stream.rng.integers(2**32, size=2))


def root_of(entropy, path, module=seeds):
    root = module.Seeds(entropy)
    for branch in path:
        root = root.branch(branch)
    return root


# Of a few hundred pairs of words, two agree by chance once in 10^15.
@given(entropies, st.lists(st.tuples(branches, places), min_size=2, max_size=12, unique_by=repr))
def test_every_place_has_random_numbers_of_its_own(entropy, wanted):
    drawn = [number for path, place in wanted for number in numbers_of(root_of(entropy, path).stream(*place))]
    assert len(set(drawn)) == 3 * len(wanted)


NEAR = list(product([(), (Branch.PRIOR_MASS,), (Branch.LOG_Z,)], Purpose, (0, 1), (0, 1), (0, 1)))


def n_distinct(entropy, module=seeds):
    """Count the different numbers of places next to each other."""
    streams = (root_of(entropy, path, module).stream(*place) for path, *place in NEAR)
    return len({number for stream in streams for number in numbers_of(stream)})


@pytest.mark.parametrize("entropy", [(0,), (1,), (0, 1), (1, 0, 0, 0), tuple(range(9))], ids=str)
def test_places_next_to_each_other_have_random_numbers_of_their_own(entropy):
    assert n_distinct(entropy) == 3 * len(NEAR)


@pytest.mark.parametrize("left_out", ["*self.branches", "int(purpose)", "int(number)", "int(row)", "int(chain)"])
def test_leaving_anything_out_is_caught(left_out):
    place = "*self.branches, int(purpose), int(number), int(row), int(chain)"
    without = ", ".join(part for part in place.split(", ") if part != left_out)
    assert n_distinct((3,), mutate(seeds, (place, without))) < 3 * len(NEAR)


@given(entropies, branches, places)
def test_the_same_place_has_the_same_numbers(entropy, path, place):
    assert numbers_of(root_of(entropy, path).stream(*place)) == numbers_of(root_of(entropy, path).stream(*place))


def test_streams_go_chain_after_chain_of_each_row():
    several = Seeds((5,)).streams(Place(Purpose.ROUND, 2, [4, 7], range(3)))
    alone = [Seeds((5,)).stream(Purpose.ROUND, 2, row, chain) for row in (4, 7) for chain in range(3)]
    assert list(map(numbers_of, several)) == list(map(numbers_of, alone))


# A whole trip ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("random_seed", [[0, 1], None], ids=str)
def test_no_chain_of_a_round_starts_from_the_pilots_own_particles(random_seed):
    call = call_of(shared(one_mean), random_seed=random_seed)
    problem = build_problem(shared(one_mean), "prior", call.compiler, call.seeds)
    pilot = problem.draw([0], [call.seeds.stream(Purpose.PILOT)], 100).state
    for number in (1, 2):
        particles = problem.draw([0, 0], call.seeds.streams(Place(Purpose.ROUND, number, [0], range(2))), 100)
        for chain in (0, 1):
            assert not np.isin(particles.state.position[chain], pilot.position).any()
            assert not np.isin(particles.state.momentum[chain], pilot.momentum).any()


def populations_of_a_trip(monkeypatch, reference):
    """Take the trip to two rounds; return the numbers that its populations started from, by population."""
    call = call_of(shared(one_mean), target_se=1e-3, n_temperatures=80, max_temperatures=160, random_seed=[0, 1])
    started, draw = [], Problem.start
    start = first_reference(reference, shared(one_mean))
    problem = build_problem(shared(one_mean), start, call.compiler, call.seeds, takes_fit=reference == "fitted")

    def listen(self, rows, streams, n):
        begun = draw(self, rows, streams, n)
        particles = begun.evaluate(self.engine)
        for b, rng in enumerate(particles.rngs):
            resampling = np.random.Generator(type(rng.bit_generator)(rng.bit_generator.seed_seq)).random()
            words = (np.asarray(leaf[b]).ravel() for leaf in (particles.state.position, particles.state.momentum))
            started.append({resampling, *np.concatenate(list(words))})
        return begun

    monkeypatch.setattr(Problem, "start", listen)
    evidence = run_rounds(*choose(Search(problem, reference, call)), call)
    assert len(evidence.row.rounds) == 2
    return started


def n_shared(populations):
    return sum(len(one & other) for i, one in enumerate(populations) for other in populations[:i])


@pytest.mark.parametrize("reference", slow_but({"fitted"}, ["prior", "fitted"]))
def test_no_two_populations_of_a_trip_share_a_number(reference, monkeypatch):
    started = populations_of_a_trip(monkeypatch, reference)
    assert len(started) == {"prior": 5, "fitted": 6}[reference]  # pilots, and two rounds of two chains
    assert n_shared(started) == 0


def test_a_pilot_with_the_seed_of_a_chain_is_caught(monkeypatch):
    wrong = mutate(learning, ("Place(Purpose.PILOT, number, [row], [0])", "Place(Purpose.ROUND, 1, [row], [0])"))
    monkeypatch.setattr(learning, "run_pilots", wrong.run_pilots)
    assert n_shared(populations_of_a_trip(monkeypatch, "prior")) > 100
