"""The limits of the test: when draws are suspected, and when they count as draws of another density."""

from typing import NamedTuple


class Limits(NamedTuple):
    """Limits of all statistics; errors are standard errors, from the spread of independent families of draws."""

    #: Errors of Stein's identity beyond which a direction or an edge of the particles is suspected.
    suspected: float = 4.0
    #: Errors of the balance of moves beyond which a direction counts as too narrow: without gradients 16 are tried.
    narrow: float = 5.0
    #: The same of moves across an edge: twelve at most, so that exact draws are judged to lack mass one time in 2,500.
    unreached: float = 4.0
    #: Share of the target's variance below which the weights of normal particles have no variance.
    no_variance: float = 0.5
    #: Share below which the error bar misleads: of runs of 1000 particles that are so narrow in one direction of a
    #: normal target about a tenth, and in five directions a fifth, err by more than three standard errors.
    misleading: float = 0.4
    #: Probability that a right reference is tested a second time, where statistics are normal.
    suspicion: float = 1e-2
    #: Probability that a right reference is refused, over all tests of it together.
    false_alarm: float = 1e-6
    #: p-value of a reference's first draws above which no more are drawn.
    doubt: float = 0.5
    #: Share of Z from which on a joint state of discrete sites counts.
    share: float = 0.05
    #: By how much fewer particles are in a missed joint state than its share.
    times: float = 10.0
    #: Nats of rounding that are small beside the error that is asked for.
    rounding: float = 0.05


LIMITS = Limits()
