"""Programs that the fits of one file of tests share."""

import pytest
from pytensor.graph.basic import equal_computations

from pymc_hais.learning import program


@pytest.fixture(scope="module", autouse=True)
def shared_programs():
    """Compile equal graphs once a file: many tests fit the same model, and compiling takes longer than the fit."""
    made, compile_first = [], program.compile_first

    def compile_once(inputs, outputs, trial, backend):
        kind = backend, program.available_backends(), [one.type for one in inputs]
        for other, its_inputs, its_outputs, found in made:
            if kind == other and equal_computations(outputs, its_outputs, inputs, its_inputs):
                return found
        made.append((kind, inputs, outputs, compile_first(inputs, outputs, trial, backend)))
        return made[-1][-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "compile_first", compile_once)
        yield
