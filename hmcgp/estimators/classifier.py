"""From a table to averaged probabilities."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin

from hmcgp.estimators.base import GaussianProcess
from hmcgp.estimators.imputation import average, average_moments, probability_intervals
from hmcgp.estimators.labels import LabelTargets, label_table
from hmcgp.estimators.table import TrainingTable
from hmcgp.evidence import EvidenceProvider
from hmcgp.kernels import Kernel
from hmcgp.likelihoods import Likelihood
from hmcgp.posterior import audit as auditing
from hmcgp.posterior import evidence_bounds, joint, label_noise, predict
from hmcgp.posterior.audit_report import Audit
from hmcgp.runtime.checks import check_between, check_flag
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Sampler


class GPClassifier(ClassifierMixin, GaussianProcess):  # type: ignore[misc]
    """Gaussian-process classification with the hyperparameters integrated out.

    Parameters
    ----------
    kernel : Kernel, or list of Kernel, optional
        Covariance function.  A number is a fact, a prior is a question: `SquaredExponential(length_scale=1.0)` infers
        the variance only.  Both are in the units of the inputs, unless the kernel says `standardized=True`.
        Default: a curve, a line and an offset, `SquaredExponential(ard=True) + Linear() + Constant(9.0)`, with priors
        for the sum; categories multiply the curve by `Categorical` and add `CategoryEffects`: see Notes.
        With more than two classes, the latent functions of all classes share the kernel and its hyperparameters; a list
        has one for each class, in sorted order, with hyperparameters of its own.
    likelihood : {"logistic", "probit", "label_noise"} or Likelihood, default="logistic"
        With more than two classes, "logistic" (or "softmax") is the softmax of as many latent functions, and "probit"
        (or "multinomial_probit") has the class of the largest of them, each with noise of variance 1.
    evidence : {"laplace", "ep", "tap", "naive", "lower"} or EvidenceProvider, optional
        How the latent function is integrated out.  Default: "laplace", and "ep" for the likelihoods that "laplace" does
        not fit, label noise and, with more than two classes, "probit".  "ep" is the most accurate, at about three times
        the cost of "laplace" behind a probit, four to eight times behind a logistic; label noise needs "ep", "tap" or
        "naive"; "lower" is, for the logistic likelihood, the lower bound of Jaakkola & Jordan.  More than two classes
        take "laplace" with "logistic", or "ep" with "probit", at three times the cost with three classes and eight with
        six.
    refine : {"auto", "ep", "exact"} or None, default="auto"
        How the draws come to stand for a better evidence than the one that was sampled.  "auto": draws under "laplace"
        are weighted to expectation propagation, which also makes the predictions, for about a fifth more time; with
        more than two classes, to the multinomial probit by expectation propagation, whose probabilities are then
        reported (ask for likelihood="softmax" to stay with the softmax).  Where the weights fail, short chains are run
        under the better evidence instead, for about half as much time again; `refinement_` tells.  Other evidences are
        left alone.  "ep" does so from any evidence; "exact", for two classes, goes on to the exact posterior by
        importance sampling of the latent values.  None: averages under `evidence`, as in Barber & Williams (1997).
    inducing : "auto", int, array-like of shape (m, d) or None, default="auto"
        Inducing inputs, through which the rows see each other: an approximation (FITC) in O(nm²) operations and O(nm)
        memory, for more rows than a few thousand.  None: all rows see each other.  A number m: as many rows, chosen
        before sampling for the kernel that a pilot finds.  "auto": none up to 1,500 rows, and where `evidence` or
        `refine` know nothing else; beyond, as many, 100 to 400, as the evidence asks for (none up to 3,000 rows if it
        asks for more).  Or the inputs themselves, in the units of X.  What it costs is in `inducing_error_`, and a
        warning says where that is too much.  Known to the evidences "laplace", "ep" (two classes; of label noise,
        behind a probit) and "lower", and to Laplace's approximation of more classes, which is not refined then.
    sampler : {"surrogate", "hmc", "nuts", "jumps", "metropolis", "map"} or Sampler, optional
        How the hyperparameters are integrated.  "hmc" follows the posterior density itself.  "surrogate" follows a
        Gaussian process that is fitted to some hundred evaluations of it, and weights the draws to the density
        (`samplers.SurrogateHMC`); where that fails, HMC draws in its place, and `sampling_trace_.note` says so.
        "jumps" is "hmc" that first looks for the modes of the posterior, from 50 starts, and then jumps between them
        (`samplers.JumpingHMC`): for up to about fifteen hyperparameters, where chains disagree.  "map" takes the single
        most probable hyperparameters.  Default: "surrogate" for two classes under Laplace's approximation, 150 rows or
        more, up to ten hyperparameters (eight of a kernel that is given, twelve from 1,000 rows on) and at least 2000
        draws of all chains with their warm-up, without checkpoint; otherwise "hmc".  `sampling_trace_.sampler` names
        the one that drew.
    draws : int, default=1000
        Posterior draws kept from each chain; at most so many of the surrogate, as its draws are worth more.
    tune : int, default=500
        Warm-up draws of each chain, used to set the sampler and then kept apart.
    chains : int, default=4
    predict_draws : int, "auto" or None, default="auto"
        Predictions average over at most this many draws, as many of each chain and evenly spaced; None takes all.  Each
        costs a factorisation, once.  "auto" takes 500, and for predictions at new rows 50 of these, chosen and
        weighted to approximate the 500 (`posterior.compression`).  On six tables, class probabilities differ from those
        of the 500 by less than 0.006 (root mean square; 0.02 at most), and ends of 90 % intervals by less than 0.02
        (0.1 at most); `predict_draws=500` avoids these differences for ten times the cost of the first prediction.  The
        choice is made once for a fit, so that the prediction of a row does not depend on the rows predicted with it.
    n_jobs : int, optional
        Workers for chains and predictions; default: all cores (one inside a joblib worker).  Threads, unless
        `joblib.parallel_config` names a backend: "loky" for processes, "dask" for a cluster.  Draws do not depend
        on it.
    class_weight : dict, "balanced" or None, default=None
        Weights of the classes, by which the weights of their rows are multiplied (see `fit`): a dict from label to
        weight; "balanced" gives all classes the same total weight, and together that of all rows, so that the posterior
        stays as sharp as it is.  Weights answer another question than the data ask: probabilities are then those of a
        population in which the classes have these weights.
    standardize : bool, default=True
        Give every input mean 0 and standard deviation 1, which is what the default priors expect.  Length scales of the
        trace then are in units of standard deviations; `summary(units="input")` has those of the table.
    missing : {"auto", "indicator", "error"}, default="auto"
        Missing values in X (NaN, None).  "error" raises an error.  "indicator" gives each input with missing values in
        the training rows an indicator, 0 or 1, as a further input with its own length scale ("missingindicator_glu"),
        and fills the value with the mean; missing categories are a separate category.  Where only new rows have missing
        values, their predictions are averaged over 20 training values of the input, which widens intervals, with a
        `DataWarning` (`append`, `audit` and joint samples raise an error).  "auto" is "indicator" with a `DataWarning`
        if the training rows have missing values.
    random_state : None, int, SeedSequence, Generator or RandomState
        An int makes the fit reproducible.
    progressbar : bool, default=True
        A forecast of the running time and bars of warm-up and draws, shown in terminals and notebooks only.
    max_time : float, optional
        Seconds after which sampling stops with the draws so far, and says so.
    checkpoint : path-like, optional
        File (say "run.nc") to which the draws are written while chains run.  The same fit again, after a crash or an
        interruption, goes on from there; see `hmcgp.sample`.  Not for "map" and "surrogate".

    Attributes
    ----------
    classes_ : ndarray of shape (C,)
        The labels, sorted; columns of `predict_proba` follow them.
    trace_ : Trace
        Draws of the hyperparameters that are averaged over, with their weights if they carry any.
    model_ : Model
        The log density that they stand for.
    refinement_ : Refinement or None
        How draws of another density came to stand for it; printed, it says which likelihood and evidence the
        probabilities belong to.
    inducing_error_ : InducingError or None
        How far the inducing inputs, if there are any, are from twice as many.
    sampling_trace_ : Trace
        All draws of the chains, with the sampler's statistics: those to judge convergence by.
    warnings_ : list of str
        Warnings that `fit` gave, and `append` since then; `report` shows them.
    parameters_ : list of Parameter
        The free hyperparameters with their priors.
    kernel_ : Kernel
        The kernel at the draw of highest posterior density.
    n_features_in_, feature_names_in_
        As everywhere in scikit-learn.
    target_name_ : str
        Name of y, which plots show.  Only if y is a Series, or a DataFrame of one column, with a name.

    Notes
    -----
    *The default kernel.*  With d standardised quantities, length scales have the prior LogNormal(½ + ½ log d, ½), half
    as wide as elsewhere since a line is there, the slopes the variance LogNormal(-log d, 2), effects of c columns of
    categories LogNormal(-log c, 2), and the offset has variance 9.  Far from all rows probabilities then follow the
    line, in the place of a half.  Of probabilities drawn from these priors 35 % lie between 0.1 and 0.9, and of data
    sets with 1, 7 and 30 inputs 51, 35 and 32 % have more than 95 of 100 rows on one side (1,000 draws each).

    *A kernel for each of several classes.*  What tells one class from the rest may not be what tells another, and
    Williams & Barber (1998) give each hyperparameters of its own.  In `scripts/study` (repeat 1) the shared default had
    the smaller log loss on seven of eight tables, in less time on six, than `SquaredExponential(ard=True)` for each.

    Examples
    --------
    >>> from hmcgp import GPClassifier, datasets
    >>> X, y = datasets.load_crabs(return_X_y=True)
    >>> gp = GPClassifier(sampler="map").fit(X[::4], y[::4])  # without `sampler`, hyperparameters are integrated
    >>> gp.predict_proba(X[1::4]).shape
    (50, 2)
    >>> gp.classes_.tolist()
    ['F', 'M']
    """

    targets: ClassVar[str] = "labels"
    _targets: LabelTargets
    classes_: NDArray[Any]

    def __init__(
        self,
        kernel: Kernel | Sequence[Kernel] | None = None,
        *,
        likelihood: str | Likelihood = "logistic",
        evidence: str | EvidenceProvider | None = None,
        refine: str | None = "auto",
        sampler: str | Sampler | None = None,
        draws: int = 1000,
        tune: int = 500,
        chains: int = 4,
        predict_draws: int | str | None = "auto",
        n_jobs: int | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        standardize: bool = True,
        random_state: RandomStateLike = None,
        progressbar: bool = True,
        max_time: float | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        inducing: int | str | Any | None = "auto",
        missing: str = "auto",
    ) -> None:
        self._keep_settings(locals())

    def _training_table(self, X: Any, y: Any, row_data: Any, sample_weight: Any) -> TrainingTable:
        return label_table(self, X, y, sample_weight)

    def predict_proba(self, X: Any) -> Array:
        """Class probabilities, averaged over the latent function and the hyperparameters.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        ndarray of shape (m, C)
            Columns in the order of `classes_`.  The average over the latent function of two classes is accurate to all
            digits; that of more is made by quasi-Monte Carlo.  The softmax, with 8192 points, is good to 1e-3 where the
            latent values have variances of order 10, and to a few times 1e-3 at 1000; the multinomial probit, with
            1024, to 5e-4 and 2e-3 with up to ten classes.

        Notes
        -----
        The first call solves the latent posterior of each draw and keeps what later calls need of it, in 1 GiB at most
        (`clear_cache`).  Probabilities are summed draw by draw: beside that, the matrices of a draw and 8 MB per
        worker, the memory is that of a few results, and 256 MB at most for those of groups of draws.

        Variances of latent values of two classes are computed in float32 for draws where that changes a probability by
        less than 1e-5.  From 4096 rows on, and with 400 training rows or more, they come from as few of the training
        rows as leave the probabilities of 256 of the rows within 0.002 (`posterior.reduction`).
        """
        parts, found = self._row_parts(X), []
        for part in parts:
            p = predict.probabilities(self.model_, parts.draws, part.inputs, n_jobs=self.n_jobs)
            found.append(average(p, part.copies))
        return parts.merged(found)

    def predict_log_proba(self, X: Any) -> Array:
        """Logarithms of `predict_proba`, of shape (m, C); -inf where a probability is 0."""
        with np.errstate(divide="ignore"):
            return np.log(self.predict_proba(X))

    def predict(self, X: Any) -> Any:
        """The most probable class of each row, of shape (m,)."""
        likeliest = np.argmax(self.predict_proba(X), axis=1)
        return self.classes_[likeliest]

    def predict_proba_interval(self, X: Any, level: float = 0.9) -> Array:
        """Interval that holds the probability of each class with the probability `level`.

        Central, over the latent function and the hyperparameters: of σ(f) with all that is not known about f.  (The
        draws of `predict_proba_draws` average over the latent function, and their spread says much less.)

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        level : float, default=0.9
            Strictly between 0 and 1.

        Returns
        -------
        ndarray of shape (m, C, 2)
            Lower and upper end for each of `classes_`: ``low, high = gp.predict_proba_interval(X)[:, 1].T`` are those
            of the second class.  Of two classes accurate to all digits, given the draws; of more by quasi-Monte Carlo,
            to about 0.01, or 0.016 at worst of what was measured, and not below 1.5e-8 (`posterior.intervals`).
            Of more classes, and of label noise of an inferred rate, rows that are averaged over missing values (see
            `missing`) have the union of the intervals of these values, which is wider than `level` asks for.

        Notes
        -----
        Rows come in blocks that hold 256 MB at most, 160,000 rows of two classes with 50 draws, or 5,000 rows of three
        classes; draws of which nothing could be kept (`clear_cache`) are solved anew for each.
        """
        check_between("level", level, 0.0, 1.0)
        return self._predict_rows(
            X,
            lambda draws, inputs, _, copies: probability_intervals(
                self.model_, draws, inputs, float(level), copies, n_jobs=self.n_jobs
            ),
        )

    def predict_proba_draws(self, X: Any, latent: bool = False, random_state: RandomStateLike = 0) -> Array:
        """Class probabilities under each draw of the hyperparameters, or samples of all that is not known about them.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)
        latent : bool, default=False
            False: averaged over the latent function under each draw.  The spread over draws shows how much the
            hyperparameters matter; it is not how sure a probability is (see `predict_proba_interval`).  Their average,
            with the weights of the draws if they carry any (`trace_.thinned(predict_draws).weight`), is
            `predict_proba`; with predict_draws="auto" there are 500 draws here, and `predict_proba` differs from their
            average by less than 0.006 (root mean square, on six tables).
            True: given one sample of the latent function, at all rows jointly, for each draw.  These are posterior
            samples of the probabilities, all of the same weight; differences and maxima over rows can be taken sample
            by sample.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            Of the samples.

        Returns
        -------
        ndarray of shape (n_draws, m, C)
            For at most `predict_draws` draws, or 500; resampled by their weights if `latent`.

        Notes
        -----
        Joint samples take a covariance of all rows, m x m, or Cm x Cm for C > 2 classes, and its factor for each draw:
        they are for up to a few thousand rows.  The first call solves the draws and keeps them (`clear_cache`).
        """
        check_flag("latent", latent)
        if latent:
            return joint.probability_samples(*self._new_inputs(X, each_draw=True), random_state, n_jobs=self.n_jobs)
        by_row = self._predict_rows(
            X,
            lambda draws, inputs, _, copies: average(
                predict.probabilities_per_draw(self.model_, draws, inputs, n_jobs=self.n_jobs).swapaxes(0, 1), copies
            ),
            each_draw=True,
        )
        return by_row.swapaxes(0, 1)

    def latent_mean_and_variance(self, X: Any) -> tuple[Array, Array]:
        """Mean and variance of the latent function, hyperparameters integrated out.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d)

        Returns
        -------
        mean, variance : ndarrays of shape (m,), or (m, C) with C > 2 classes
            Of the mixture over draws.
        """
        found = self._predict_rows(
            X,
            lambda draws, inputs, _, copies: average_moments(
                *predict.mixture_moments(self.model_, draws, inputs, n_jobs=self.n_jobs), copies
            ),
        )
        return found[:, 0], found[:, 1]

    def evidence_bounds(self) -> evidence_bounds.EvidenceBounds:
        """Lower and upper bound on the log evidence of each draw, whatever `evidence` the fit was made with.

        Their distance says how far the evidence of any approximation can be off; for the logistic likelihood only.

        Returns
        -------
        EvidenceBounds
            `lower` and `upper`, each of shape (n_draws,), for the draws that predictions average over (see
            `predict_draws`).
        """
        draws = self._kept_draws()  # refuses an estimator that is not fitted
        return evidence_bounds.evidence_bounds(self.model_, draws, n_jobs=self.n_jobs)

    def audit(self, X: Any = None, *, n_draws: int = auditing.N_DRAWS) -> Audit:
        """How far the evidence, the hyperparameters and the probabilities of this fit are from exact ones.

        The latent values are sampled at some of the draws (`evidence.LatentSampling`); see `posterior.audit.audit`.

        Parameters
        ----------
        X : array-like or DataFrame of shape (m, d), optional
            Rows whose probabilities are compared; default: the training rows.
        n_draws : int, default=50
            Draws that are audited, evenly spaced among those that predictions average over (see `predict_draws`).
            Each takes about 0.02, 0.04, 0.14 and 0.4 s of processor time with 80, 200, 500 and 1000 training rows.

        Returns
        -------
        Audit
            Print it; `plots.audit` draws it.  For two classes.
        """
        draws = self._kept_draws()
        rows = None if X is None else self._scaled(X)
        return auditing.audit(self.model_, draws, rows, n_draws=n_draws, n_jobs=self.n_jobs)

    def label_noise(self) -> Array:
        """Posterior probability that each training label is wrong, averaged over the draws.

        For the likelihood "label_noise".

        Returns
        -------
        ndarray of shape (n,)
            In the order of the rows given to `fit`.
        """
        draws = self._kept_draws()
        return label_noise.flip_probability(self.model_, draws, n_jobs=self.n_jobs)
