"""Do weighted draws follow a log density?  One test, with a statistic for each way in which they may not.

1. Stein's identity [1]_ suspects: for draws x of a density pi and a smooth field phi that vanishes at the edges of its
   support, ``E[div phi(x) + phi(x) . grad log pi(x)] = 0``.  With the gradients at the draws, many fields cost little.
2. Moves decide: if the draws follow pi, whatever it is, a Metropolis rule accepts as many moves one way as back.

=====================  ===========================================  ========================================
statistic              draws                                        a departure leads to
=====================  ===========================================  ========================================
``stein, exchange``    independent draws of a reference             refusal (``problem/audit.py``)
``spread``             final particles of a round, without weights  another round, ``underdispersion``
``edges``              final particles of a run                     ``unreached``
=====================  ===========================================  ========================================

A statistic of particles is a function of :class:`~pymc_hais.goodness_of_fit.draws.Draws`, which
``run/final_particles.py`` calls; ``results/findings/particles.py`` has the findings, and ``limits.py`` all limits.

References
----------
.. [1] Gorham, J. and Mackey, L. (2015). Measuring sample quality with Stein's method. NeurIPS 28.
"""
