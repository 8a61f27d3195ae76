"""An attack on the package's promises: random models, fits, damaged files and interrupts, each case from its seed.

    python -m scripts.attack                                           everything: about 25 minutes on two cores
    python -m scripts.attack --sections models files --files 100 --seed 7
    python -m scripts.attack --replay fits:0:17                        one case again, told in full

Case i of a section depends on --seed and i alone, so that what broke a promise can be replayed.

    models      `Model.evaluate` gives a finite value, or -inf with a zero gradient; it never raises; the same twice,
                warm or cold, with or without a gradient; the gradient agrees with differences
    fits        an estimator refuses a table or a setting with an error that says why, or its predictions are finite,
                the same bit for bit in every repetition, with any number of workers, and from a file
    files       a damaged file is refused with InvalidInput, soon, or gives what the sound one gives; none runs code
    interrupts  Ctrl-C keeps the draws or leaves everything as it was; a run that was interrupted or killed goes on to
                the draws of a run that was not
"""
