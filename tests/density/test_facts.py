"""Facts of a model, which many ask for and which are found once."""

import pymc as pm
from pymc.distributions.transforms import log

from pymc_hais.density import facts, unnormalised_priors


def test_a_transform_is_looked_at_once(monkeypatch):
    looked = []
    keeps_all = facts._keeps_all
    monkeypatch.setattr(facts, "_keeps_all", lambda rv, *args: looked.append(rv.name) or keeps_all(rv, *args))
    with pm.Model() as model:
        pm.Uniform("u", 0.0, 1.0)
        pm.Normal("x")
    assert unnormalised_priors(model) == unnormalised_priors(model) == []
    assert looked == ["u"]


def test_another_transform_of_a_variable_is_looked_at_anew():
    with pm.Model() as model:
        x = pm.HalfNormal("x")
        y = pm.Normal("y")
    assert unnormalised_priors(model) == []
    model.rvs_to_transforms[y] = log
    assert unnormalised_priors(model) == ["y"]
    model.rvs_to_transforms[y] = None
    model.rvs_to_transforms[x] = None
    assert unnormalised_priors(model) == []
