"""What the package takes from private and moving names of PyMC and PyTensor is there, and does what it is taken for.

Where one of these fails with a new release, :mod:`pymc_hais.density.compat` is the file to mend.
"""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.abstract import _logprob
from pytensor.compile.builders import OpFromGraph
from pytensor.compile.mode import Mode, optdb
from pytensor.graph.basic import Apply
from pytensor.graph.fg import FunctionGraph
from pytensor.graph.rewriting.basic import dfs_rewriter, node_rewriter
from pytensor.graph.rewriting.db import RewriteDatabase, RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors
from pytensor.tensor.math import Argmax

from pymc_hais.density import compat
from pymc_hais.density.rewrites.graphs import scalar_op

REWRITES = {
    *("merge", "ShapeOpt", "canonicalize", "stabilize", "specialize", "fast_run", "jax"),
    *(compat._NESTED_POWERS, compat.LOWER_XTENSOR),
    *(*compat.NOT_WITH_GRADIENTS, *compat.NOT_INTERPRETED, *compat.NOT_BEFORE_JAX, *compat.OF_CHECKS.values()),
}


def names_of(database):
    """Return the names and tags of all rewrites in a database, and in those within it."""
    found = set(database.__db__)
    for members in database.__db__.values():
        for member in members:
            found |= names_of(member) if isinstance(member, RewriteDatabase) else set()
    return found


def ops_of(*outputs):
    return [variable.owner.op for variable in ancestors(outputs) if variable.owner is not None]


@pytest.mark.parametrize("name", sorted(REWRITES))
def test_a_rewrite_has_the_name_by_which_it_is_asked_for(name):
    """PyTensor passes over a name that it does not know."""
    assert name in names_of(optdb)


def test_powers_keep_their_gradient():
    x = pt.dscalar("x")
    (power,) = compat.rewrite_for_gradients([x**7], "canonicalize", "specialize")
    assert pytensor.grad(power, x).eval({x: 2.0}, mode="FAST_COMPILE") == 7 * 2.0**6


def test_rewrites_before_gradients_are_those_of_pymc():
    x = pt.dvector("x")
    (simple,) = compat.rewrite_pregrad([pt.log(pt.exp(x))])
    assert simple is x


def test_a_graph_within_a_graph_is_written_out():
    x, y = pt.dscalars("x", "y")
    (output,) = compat.inline_inner_graph(OpFromGraph([x], [2.0 * x])(y).owner)
    assert not any(isinstance(op, OpFromGraph) for op in ops_of(output))
    assert output.eval({y: 3.0}, mode="FAST_COMPILE") == 6.0


def test_the_graph_of_a_loop_is_rewritten():
    @node_rewriter([pt.exp])
    def doubled(fgraph, node):
        return [2.0 * node.inputs[0]]

    x = pt.dvector("x")
    looped = pytensor.scan(pt.exp, sequences=[x], return_updates=False)
    graph = FunctionGraph([x], [looped], clone=True)
    compat.rewrite_inside_out(graph, dfs_rewriter(doubled).rewrite)
    np.testing.assert_allclose(graph.outputs[0].eval({graph.inputs[0]: [1.0, 2.0]}, mode="FAST_COMPILE"), [2.0, 4.0])


def test_the_largest_of_whole_numbers_lets_gradients_through():
    x = pt.dvector("x")
    chosen = x[pt.argmax(pt.floor(x).astype(int))]
    assert any(isinstance(op, Argmax) for op in ops_of(chosen))
    (chosen,) = compat.with_real_argmax([chosen])
    np.testing.assert_array_equal(
        pytensor.grad(chosen, x).eval({x: [1.0, 3.0, 2.0]}, mode="FAST_COMPILE"), [0.0, 1.0, 0.0]
    )


def test_the_function_inside_a_compiled_one_computes():
    pytest.importorskip("jax")
    x = pt.dscalar("x")
    function = compat.traceable(pytensor.function([x], [x + 1.0], mode="JAX"))
    assert float(function(np.float64(2.0))[0]) == 3.0


def test_the_linker_to_jax_exchanges_operations_first():
    pytest.importorskip("jax")

    def exchange(fgraph):
        (node,) = (node for node in fgraph.toposort() if isinstance(scalar_op(node.outputs[0]), type(pt.exp.scalar_op)))
        pair = (node.outputs[0], pt.sqr(node.inputs[0]))
        fgraph.replace_all([pair], import_missing=True)
        return [pair]

    x = pt.dvector("x")
    mode = Mode(compat.exchanging_linker(exchange), RewriteDatabaseQuery(include=["jax"]))
    np.testing.assert_allclose(pytensor.function([x], pt.exp(x) + 1.0, mode=mode)(np.array([3.0])), [10.0])


def test_products_with_matrices_are_undone_by_operations_of_their_own():
    matrix, vector = pt.matrix("matrix", shape=(2, 2)), pt.vector("vector", shape=(2,))
    undone = {
        compat.Cholesky: pt.linalg.cholesky(matrix),
        compat.Solve: pt.linalg.solve(matrix, vector),
        compat.CholeskySolve: pt.linalg.cho_solve((matrix, True), vector),
        compat.SolveTriangular: pt.linalg.solve_triangular(matrix, vector, lower=True),
    }
    for kind, output in undone.items():
        assert any(type(getattr(op, "core_op", op)) is kind for op in ops_of(output)), kind


def test_the_indices_of_a_lookup_are_told():
    node = pt.dmatrix("table")[pt.lscalar("i"), 1:].owner
    first, second = compat.indices_from_subtensor(list(node.inputs[1:]), node.op.idx_list)
    assert not isinstance(first, slice)
    assert isinstance(second, slice)


def test_a_shape_follows_from_those_of_the_inputs():
    x = pt.dvector("x")
    (shape,) = compat.infer_shape([pt.outer(x, x)], [x], [[pt.constant(5)]])
    assert [size.eval(mode="FAST_COMPILE") for size in shape] == [5, 5]


def test_what_graphs_are_made_of_has_these_classes():
    x = pt.dscalar("x")
    inner = OpFromGraph([x], [2.0 * x])
    assert isinstance(inner.fgraph, compat.AbstractFunctionGraph)
    assert isinstance(FunctionGraph([x], [x], clone=False), compat.AbstractFunctionGraph)
    assert all(isinstance(node, Apply | compat.FrozenApply) for node in inner.fgraph.toposort())
    assert isinstance(x.tag, compat.Scratchpad)
    assert isinstance(pytensor.function([x], x), compat.Function)


def test_pytensor_takes_keys_of_machine_code():
    from pytensor.link.numba.cache import CACHED_SRC_FUNCTIONS

    def function():
        pass

    compat.register_numba_cache_key(function, "key")
    assert len(CACHED_SRC_FUNCTIONS.pop(function)) == 64


def test_seeds_are_drawn_as_pymc_draws_them():
    first, again = (compat.seeds_per_chain(3, chains=4) for _ in range(2))
    assert list(first) == list(again)
    assert len(set(first)) == 4


def test_the_log_density_of_an_operation_is_found():
    op = pm.Normal.dist(0.0, 1.0).owner.op
    assert _logprob.dispatch(type(op)) in [one for _, one in compat.implementations_of(type(op))]


def test_the_transform_that_pymc_would_give():
    positive, real = pm.HalfNormal.dist(1.0), pm.Normal.dist(0.0, 1.0)
    assert isinstance(compat.default_transform(positive.owner.op, positive), compat.LogTransform)
    assert isinstance(compat.default_transform(positive.owner.op, positive), compat.Transform)
    assert compat.default_transform(real.owner.op, real) is None


def test_factors_of_covariance_matrices_have_their_own_operation():
    with pm.Model() as model:
        pm.LKJCholeskyCov("factor", eta=2.0, n=2, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
    assert isinstance(model["factor"].owner.op, compat.LKJFactorRV)
    alone = compat.LKJFactor.dist(n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))
    assert isinstance(alone.owner.op, compat.LKJFactorRV)


def test_parameters_are_checked_by_an_operation_that_says_what_it_stands_for():
    checks = [op for op in ops_of(pm.logp(pm.Normal.dist(0.0, pt.dscalar("sigma")), 0.0)) if "Check" in str(op)]
    assert checks
    assert all(isinstance(op, compat.CheckParameterValue) and op.can_be_replaced_by_ninf for op in checks)


def test_minibatches_are_seen():
    batch = pm.Minibatch(np.zeros(10), batch_size=2)
    assert any(isinstance(op, compat.MinibatchOp) for op in ops_of(batch))
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("x"), 1.0, observed=batch, total_size=10)
    assert isinstance(model["y"].owner.op, compat.MinibatchRandomVariable)


def test_draws_have_generators_that_can_be_replaced_and_seeded():
    draw = pm.Normal.dist(0.0, 1.0, size=3)
    (rng,) = compat.find_rng_nodes([draw])
    (other,) = compat.replace_rng_nodes([draw])
    (own,) = compat.find_rng_nodes([other])
    assert own is not rng
    values = []
    for _ in range(2):
        compat.reseed_rngs([own], 5)
        values.append(other.eval(mode="FAST_COMPILE"))
    np.testing.assert_array_equal(*values)


def test_variables_of_a_graph_are_replaced_in_order():
    x, y = pt.dscalars("x", "y")
    graph = FunctionGraph([x, y], [x * 2.0 + y], clone=False)
    compat.toposort_replace(graph, [(x, y)])
    assert graph.outputs[0].eval({y: 2.0}, mode="FAST_COMPILE") == 6.0


def test_what_a_model_has_observed_and_holds_is_found():
    with pm.Model(coords={"row": ["a", "b"]}) as model:
        scale = pm.Data("scale", 2.0)
        pm.Normal("y", pm.Normal("x", dims="row"), scale, observed=[0.0, 1.0], dims="row")
    np.testing.assert_array_equal(compat.find_observations(model)["y"], [0.0, 1.0])
    assert compat.find_constants(model)["scale"] == 2.0
    coords, dims = compat.coords_and_dims_for_inferencedata(model)
    assert list(coords["row"]) == ["a", "b"]
    assert list(dims["x"]) == ["row"]


def test_the_bar_of_pymc_shows_columns_of_ours():
    from rich.progress import TextColumn

    class Bar(compat.OneBar):
        update = compat.OneBar.move

    column = TextColumn("{task.fields[phase]}")
    with Bar(True, compat.default_theme, {"phase": "Pilot"}, lambda full_stats: [column], 80) as bar:
        assert column in bar._backend._progress.columns
        bar.update(50.0, {"phase": "Round"}, False)
        (task,) = bar._backend._progress.tasks
        assert (task.completed, task.fields["phase"]) == (50.0, "Round")


def test_a_model_without_initial_values_is_the_same_model():
    with pm.Model() as model:
        x = pm.Normal("x", initval=3.0)
    plain = compat.without_initvals(model)
    assert plain.free_RVs == [x]
    assert plain.rvs_to_initial_values == {x: None}
    assert model.rvs_to_initial_values == {x: 3.0}
    assert plain.compile_logp()({"x": 0.0}) == model.compile_logp()({"x": 0.0})
