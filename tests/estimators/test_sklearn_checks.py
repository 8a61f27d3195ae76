"""scikit-learn's own checks of an estimator."""

import warnings

import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.estimator_checks import parametrize_with_checks

from hmcgp import GPClassifier, GPRegressor
from hmcgp.errors import HmcgpWarning
from hmcgp.samplers import HMC

# as short as the checks on accuracy allow
SAMPLED = GPClassifier(sampler=HMC(step_size=0.2, n_steps=5), draws=12, tune=12, chains=1, progressbar=False)
MAXIMISED = GPClassifier(sampler="map", progressbar=False)
REGRESSOR = GPRegressor(sampler="map", progressbar=False)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::RuntimeWarning")
@parametrize_with_checks([SAMPLED, MAXIMISED, REGRESSOR])
def test_scikit_learn_check(estimator, check):
    with warnings.catch_warnings():
        for category in (ConvergenceWarning, HmcgpWarning):
            warnings.simplefilter("ignore", category)
        check(estimator)
