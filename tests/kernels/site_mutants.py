"""Wrong programs that move discrete sites, made from the package's own source."""

from pymc_hais.kernels import composed, gibbs, metropolis
from tests.mutants import mutate


def _of_gibbs(*replacements):
    return mutate(gibbs, *replacements)


_STALE = "._replace(grad_reference=state.grad_reference, grad_ratio=state.grad_ratio)"


def _gain_inverted():
    return _of_gibbs(("there - here", "here - there"))


def _gain_of_the_target():
    return _of_gibbs(("def gain(state, other, beta):", "def gain(state, other, beta):\n        beta = 1.0"))


def _gain_of_the_reference():
    return _of_gibbs(("def gain(state, other, beta):", "def gain(state, other, beta):\n        beta = 0.0"))


_GAIN_MUTANTS = [_gain_inverted, _gain_of_the_target, _gain_of_the_reference]


def _odds_inverted():
    return _of_gibbs(("xp.exp(odds)", "xp.exp(-odds)"))


def _odds_of_the_target():
    return _of_gibbs(("odds = gradient_at(", "odds = (lambda first, second, beta: gradient_at(first, second, 1.0))("))


def _odds_of_the_reference():
    return _of_gibbs(("odds = gradient_at(", "odds = (lambda first, second, beta: gradient_at(first, second, 0.0))("))


def _odds_from_before_the_first_colour():
    move = "return move(state, sites + moved * (drawn - sites), beta, data)"
    return _of_gibbs((move, move + _STALE))


def _odds_draw_all_colours():
    return _of_gibbs(("moved = mask * (odds == odds)", "moved = 1.0 * (odds == odds)"))


def _one_number_for_all_odds():
    return _of_gibbs(("(uniforms > 1.0", "(uniforms[0] > 1.0"))


def _table_from_before_the_first_colour():
    move = "return move(state, shifted(sites, mask, shift), beta, data)"
    return _of_gibbs((move, move + _STALE))


def _table_shifts_all_colours():
    return _of_gibbs(("mask * shift", "shift"))


def _table_ends_one_early():
    return _of_gibbs(("uniforms * cumulative[n_values - 1]", "uniforms * cumulative[n_values - 2]"))


def _table_leaves_out_the_last_value():
    return _of_gibbs(("build_repeat(n_values,", "build_repeat(n_values - 1,"))


def _table_draws_the_next_value():
    return _of_gibbs((">= cumulative) * 1.0, 0)", ">= cumulative) * 1.0, 0) + 1.0"))


def _one_number_for_the_whole_table():
    return _of_gibbs(("uniforms * cumulative", "uniforms[0] * cumulative"))


def _flip_keeps_the_old_sums():
    names = ("grad_reference", "grad_ratio")
    wrong = mutate(metropolis, *((f"xp.where(accepted, end.{name}, kept.{name})", f"kept.{name}") for name in names))
    return mutate(gibbs, build_choose=wrong.build_choose)


def _one_number_for_all_flips():
    return _of_gibbs(("xp.sum(mask * uniforms)", "uniforms[0]"))


def _flip_turns_all_sites():
    return _of_gibbs(
        ("shifted(state.position[start:stop], mask, 1.0)", "shifted(state.position[start:stop], 1.0, 1.0)")
    )


def _steps_accepted_always():
    return _of_gibbs(("uniforms[n_sites:] < xp.exp(xp.fmin(gain, 0.0))", "uniforms[n_sites:] < 2.0"))


def _more_steps_up_than_down():
    return _of_gibbs(("2.0 * uniforms[:n_sites] - 1.0", "2.0 * uniforms[:n_sites] - 0.8"))


def _longer_steps_from_larger_counts():
    return _of_gibbs(("xp.floor(far)", "xp.floor(far * (0.5 + sites))"))


def _one_number_proposes_and_judges():
    return _of_gibbs(("(uniforms[n_sites:] <", "(uniforms[:n_sites] <"))


def _steps_from_before_the_first_colour():
    move = "return move(state, sites + accepted * (proposed - sites), beta, data)"
    return _of_gibbs((move, move + _STALE))


def _steps_of_all_colours():
    return _of_gibbs(("sites + mask * xp.sign", "sites + xp.sign"))


#: Each builds a module with a wrong ``Gibbs``, by what moves the sites; those that move sites out of turn are apart.
GIBBS_MUTANTS = {
    "gradient": [
        _odds_inverted,
        _odds_of_the_target,
        _odds_of_the_reference,
        _odds_from_before_the_first_colour,
        _one_number_for_all_odds,
    ],
    "table": [
        *_GAIN_MUTANTS,
        _table_from_before_the_first_colour,
        _table_ends_one_early,
        _table_leaves_out_the_last_value,
        _table_draws_the_next_value,
        _one_number_for_the_whole_table,
    ],
    "flip": [*_GAIN_MUTANTS, _flip_keeps_the_old_sums, _one_number_for_all_flips],
    "walk": [
        *_GAIN_MUTANTS,
        _steps_accepted_always,
        _more_steps_up_than_down,
        _longer_steps_from_larger_counts,
        _one_number_proposes_and_judges,
        _steps_from_before_the_first_colour,
    ],
}
GIBBS_MUTANTS_OUT_OF_TURN = {
    "gradient": _odds_draw_all_colours,
    "table": _table_shifts_all_colours,
    "flip": _flip_turns_all_sites,
    "walk": _steps_of_all_colours,
}


def blocks_that_share_numbers():
    """Return a module whose ``Gibbs`` gives every block the numbers of the first."""
    return _of_gibbs(("first += block.n_uniforms", "first += 0"))


def _sites_given_where_the_rest_was():
    old = "rest = (moved.log_reference, moved.log_ratio, moved.grad_reference, moved.grad_ratio)"
    return mutate(composed, (old, old.replace("moved.grad", "state.grad")))


_PUT = "evaluate_all(put(whole, position), beta, of_path)"


def _sites_that_drift_along():
    return mutate(composed, (_PUT, _PUT.replace("put(whole,", "put(whole + position[0],")))


def _sites_that_turn_when_the_rest_moves():
    position = "put(state.position, moved.position)"
    turned = "xp.abs(state.position - (moved.position[0] > state.position[0]))"
    return mutate(composed, (position, position.replace("state.position", turned)))


def _rest_given_other_sites():
    return mutate(composed, (_PUT, _PUT.replace("put(whole,", "put(1.0 - whole,")))


def _gradients_not_renewed():
    return mutate(composed, keeps_gradients=lambda kernel: True)


def _one_number_moves_all_blocks():
    return mutate(composed, ("noise.normal[low:high]", "noise.normal[: high - low]"))


def _a_block_with_the_momentum_of_the_first():
    return mutate(composed, ("state.momentum[start:stop]", "state.momentum[: stop - start]"))


def _a_block_given_where_the_others_were():
    """Each block starts from the position before the step, and so loses what the others moved."""
    after = "own = move(state, numbered(noise), beta, params, data)"
    wrong = after.replace("move(state", "move(state._replace(position=began.position)")
    begin = "state, info = before(state, noise, beta, params, data)\n        state, own"
    return mutate(composed, (begin, "began = state\n        " + begin), (after, wrong))


#: Each builds a module whose ``Composed`` is wrong where there are several continuous blocks.
MUTANTS_OF_BLOCKS = [
    _one_number_moves_all_blocks,
    _a_block_with_the_momentum_of_the_first,
    _a_block_given_where_the_others_were,
]
#: Each builds a module with a wrong ``Composed``, by the integrator that shows it.
COMPOSED_MUTANTS = {
    "kick-drift-kick": [
        _sites_given_where_the_rest_was,
        _sites_that_drift_along,
        _sites_that_turn_when_the_rest_moves,
        _rest_given_other_sites,
    ],
    "drift-kick-drift": [_gradients_not_renewed],
}
