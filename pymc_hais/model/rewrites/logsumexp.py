"""Logarithms of sums of exponentials whose gradient is the softmax that their own terms make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.rewriting.basic import node_rewriter
from pytensor.tensor.special import LogAddExp, LogSumExp


class DirectLogSumExp(LogSumExp):
    """PyTensor's but for the gradient, which does not go through the maximum: there it is zero."""

    def pullback(self, inputs: Any, outputs: Any, output_gradients: Any) -> list[Any]:
        """Share the terms with the value, once both are written out."""
        (x,), (gradient,) = inputs, output_gradients
        largest = x.max(axis=self.axis, keepdims=True, initial=-np.inf)
        terms = pt.exp(x - pt.switch(pt.isinf(largest), 0.0, largest))
        return [pt.expand_dims(gradient, self.axis) / terms.sum(axis=self.axis, keepdims=True) * terms]


class DirectLogAddExp(LogAddExp):
    """The same for terms of one shape in separate variables."""

    def pullback(self, inputs: Any, outputs: Any, output_gradients: Any) -> list[Any]:
        """Share the terms with the value, once both are written out."""
        (gradient,) = output_gradients
        largest = inputs[0]
        for x in inputs[1:]:
            largest = pt.maximum(largest, x)
        largest = pt.switch(pt.isinf(largest), 0.0, largest)
        terms = [pt.exp(x - largest) for x in inputs]
        return [gradient / pt.add(*terms) * term for term in terms]


@node_rewriter([LogSumExp, LogAddExp])
def local_direct_logsumexp(fgraph: Any, node: Any) -> list[Any] | None:
    """Exchange the gradient."""
    if isinstance(node.op, DirectLogSumExp | DirectLogAddExp):
        return None
    if isinstance(node.op, LogSumExp):
        return [DirectLogSumExp(axis=node.op.axis)(*node.inputs)]
    if any(x.type.broadcastable != node.outputs[0].type.broadcastable for x in node.inputs):
        return None
    return [DirectLogAddExp()(*node.inputs)]
