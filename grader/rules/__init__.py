"""The checks of the experiments' files that carry points, and how all checks read those files.

    experiment    load(folder): every file as a data frame, its sidecar, the data sheet of its GPU
    rule          what a rule is, and which ones an experiment has
    completeness, bounds, bookkeeping, order    the rules

A rule may fail no honest measurement, whatever it ran on: a busy machine, a shared GPU, another
model of GPU, a slice of one, a driver that does not tell the clock.  So the bounds are physics, and
rows are compared with one another only where far more than noise separates them.
"""
