"""Rows of the state of a Newton iteration to a mode, one array of shape (ROWS, n).

A tuple of arrays would read better, and takes three times as long to compile.
"""

ALPHA, LATENT = 0, 1  # α and f = Kα
LOG_P, SLOPE, CURVATURE, THIRD_RATIO = 2, 3, 4, 5  # log p at f, g, W, and the third derivative divided by W
PROBABILITY = 2  # of several classes: π at f, in the place of log p
ROOT_CURVATURE = 6  # √W of the factor at hand
RESIDUAL, STEP_ALPHA, STEP_LATENT = 7, 8, 9  # gradient of Ψ, and the step
TRIAL_ALPHA, TRIAL_LATENT = 10, 11  # where the step leads
LAST_STEP_ALPHA, LAST_STEP_LATENT = 12, 13  # direction of the chord step before,
MOVED_ALPHA, MOVED_LATENT = 14, 15  # and where it led
WEIGHT = 16  # by which a row's log likelihood is multiplied, so that LOG_P, SLOPE and CURVATURE are of p^weight
SENSITIVITY = 17  # -½ ∂ log|B|/∂f
THIRD, PULL = 5, 17  # of Student's t: the third derivative itself; and E, in the place of the sensitivity
OBSERVED = 18  # of Student's t: observed curvature -∂² log p, where CURVATURE holds the expected one
VARIANCE = 20  # of Student's t: S_ii, in the place of S_ii W_i
ROOT_NEGATIVE = 21  # √|W| of the factor at hand where W is negative, in the place of the shift, which comes last
FIRST, SECOND = 18, 19  # numbers of the row that its likelihood reads (`Likelihood.row_numbers`)
SHARE, SHIFT = 20, 21  # S_ii W_i, and (S c)_i, from which derivatives in the parameters of the likelihood are made
ROWS = 22
