"""Questions to a fitted estimator: its evidence, its rows left out, its posterior in arviz."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from hmcgp.estimators import effects, export, relevance
from hmcgp.estimators.prediction_draws import n_each
from hmcgp.estimators.predictive_checks import PredictiveChecks
from hmcgp.estimators.table import Targets
from hmcgp.kernels import Parameter
from hmcgp.model import Model
from hmcgp.model.model import Theta
from hmcgp.posterior import leave_one_out as leaving_out
from hmcgp.posterior import marginal_evidence
from hmcgp.posterior.audit_report import Audit
from hmcgp.posterior.weights import WeightedDraws
from hmcgp.reporting import diagnostics, sensitivity
from hmcgp.reporting import units as reporting_units
from hmcgp.runtime.blas_threads import single_blas_thread
from hmcgp.runtime.random import RandomStateLike
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Trace


class Inspection(PredictiveChecks):
    """Methods for inspecting a fitted estimator, which all four estimators share."""

    model_: Model
    trace_: Trace
    predict_draws: int | str | None
    n_jobs: int | None
    _targets: Targets
    _best: Array

    def _kept_draws(self) -> WeightedDraws:
        """The draws that results for each draw are for; averages may take fewer (`GaussianProcess._new_inputs`)."""
        check_is_fitted(self)
        kept = self.trace_.thinned(n_each(self.predict_draws))
        return WeightedDraws(kept.flat, kept.weight)

    @property
    def parameters_(self) -> list[Parameter]:
        """The free hyperparameters with their priors, in the order of the columns of the trace."""
        check_is_fitted(self)
        return self.model_.parameters

    def summary(self, round_to: int | None = 3, *, units: str = "standardized") -> pd.DataFrame:
        """Posterior mean, sd, quantiles, effective sample sizes and R-hat of every hyperparameter.

        `attrs` of the table name the sampler, how a surrogate was fitted or why it was abandoned, and as `draws_note`
        which draws these are.

        Parameters
        ----------
        round_to : int or None, default=3
            Significant digits; None keeps all.  The columns are those of `hmcgp.diagnostics.summary`.
        units : {"standardized", "input"}, default="standardized"
            Of the hyperparameters: those of standardised inputs and targets, or of the table.  The column `units` says
            which each row has: "any" where they are the same, and "standardized" for what inputs of different units
            share.
        """
        check_is_fitted(self)
        trace = reporting_units.in_units(self.trace_, self.parameters_, units)
        labels = reporting_units.labels(self.parameters_, units)
        table = diagnostics.summary(trace, round_to=round_to).assign(units=labels)
        table.attrs["draws_note"] = export.how_drawn(self)
        return table

    def prior_sensitivity(self) -> pd.DataFrame:
        """Sensitivity of the posterior to the priors and to the likelihood, by power scaling.

        How much the marginal posterior of each hyperparameter changes when the prior, or the likelihood, is raised to a
        power near 1, computed by importance weights without refitting (Kallioinen et al. 2024, Stat. Comput. 34:57).
        The same table as `arviz.psense_summary` of arviz 1.x, for weighted draws too.

        Returns
        -------
        pandas.DataFrame
            One row per hyperparameter: `prior` and `likelihood`, the sensitivities, of which above 0.05 counts as
            sensitive; `diagnosis`: "potential prior-data conflict" (both), "potential strong prior / weak likelihood"
            (the prior only), or "✓".

        Raises
        ------
        InvalidInput
            For fewer than 40 draws, as after sampler="map".
        """
        check_is_fitted(self)
        log_prior = sensitivity.log_prior_terms(self.trace_.draws, self.parameters_).sum(axis=2)
        return sensitivity.sensitivity(self.trace_, log_prior, export.log_evidence(self, self.trace_))

    def log_marginal_likelihood(self, theta: Theta | None = None, eval_gradient: bool = False) -> Any:
        """Log evidence of the training labels at given hyperparameters.

        Parameters
        ----------
        theta : ndarray of shape (p,) or dict, optional
            Natural (not log-transformed) hyperparameters, in the order of `model_.names` or by name.  Default: those of
            `kernel_`.
        eval_gradient : bool, default=False
            Return the gradient with respect to theta too.

        Returns
        -------
        log_z : float
        grad : ndarray of shape (p,)
            Only with `eval_gradient`; after refine="exact" there is none.
        """
        check_is_fitted(self)
        theta = self._best if theta is None else theta
        with single_blas_thread():
            return self.model_.log_evidence(theta) if eval_gradient else self.model_.posterior(theta)[1].log_z

    def loo(self) -> leaving_out.LeaveOneOut:
        """How well each training row is predicted by all others, without refitting.

        Closed-form leave-one-out predictions of each draw, combined by Pareto-smoothed importance weights.

        Returns
        -------
        LeaveOneOut
            `elpd`, `se`, `log_loss`; for each row `pointwise`, `probability` and `pareto_k`.  For the draws that
            predictions average over (see `predict_draws`).

        Warns
        -----
        ApproximationWarning
            When some Pareto k exceeds 0.7.
        """
        draws, groups = self._kept_draws(), self._targets.layout.row_groups
        found = leaving_out.loo(self.model_, draws, row_groups=groups, r_eff=self._r_eff(draws), n_jobs=self.n_jobs)
        return found.in_units(self._targets.log_units(self.model_))

    def _r_eff(self, draws: WeightedDraws) -> float:
        """Effective draws per draw, between 1/S and 1."""
        if len(draws) == 1:
            return 1.0
        share = diagnostics.summary(self.trace_)["ess_bulk"].min() / len(draws)
        return float(np.clip(share, 1.0 / len(draws), 1.0)) if np.isfinite(share) else 1.0

    def log_marginal_evidence(
        self, n_points: int = 1000, random_state: RandomStateLike = 0
    ) -> marginal_evidence.MarginalEvidence:
        """Log evidence of the training targets with the hyperparameters integrated out, and its standard error.

        By bridge sampling from the draws: what Bayes factors compare (see `hmcgp.compare`).  It depends on the priors
        of the hyperparameters, which `loo` hardly does.

        Parameters
        ----------
        n_points : int, default=1000
            Hyperparameters around the draws at which the evidence is evaluated, one solve each.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            Of these points.

        Returns
        -------
        MarginalEvidence
            `log_z`, of densities in the units of y, and `se`.

        Raises
        ------
        InvalidInput
            For fewer than 40 draws, as after sampler="map".
        """
        check_is_fitted(self)
        found = marginal_evidence.log_marginal_evidence(
            self.model_,
            WeightedDraws(self.trace_.flat, self.trace_.weight),
            log_density=np.ravel(self.trace_.stats["lp"]),
            n_chains=self.trace_.n_chains,
            n_points=n_points,
            random_state=random_state,
            n_jobs=self.n_jobs,
        )
        return found._replace(log_z=found.log_z - self._log_unit())

    def _log_unit(self) -> float:
        """Logarithm of the unit of density of all targets, with the weights of their rows."""
        log_units, weights = self._targets.log_units(self.model_), self.model_.likelihood.weights
        if weights is None:
            return float(log_units.sum())
        groups = self._targets.layout.row_groups  # of the rows of the model, of which a row of the table has several
        first = slice(None) if groups is None else np.unique(groups, return_index=True)[1]
        return float(np.array(weights)[first] @ log_units)

    def effect(
        self,
        inputs: Any,
        *,
        at: Any = None,
        values: Any = None,
        rows: int = 100,
        level: float = 0.9,
        curves: bool = False,
        term: int | str | None = None,
        random_state: RandomStateLike = 0,
    ) -> effects.Effect:
        """How the response changes with one input, or with two; `plots.effect` draws it.

        The response is the probability of a class, or the mean of a number.  The interval is over the latent function
        and the hyperparameters: it says how well the *average* curve is known, not how rows differ (see `curves`).

        Parameters
        ----------
        inputs : str or int, or a pair of them
            Names or positions of the inputs.
        at : dict or "median", optional
            Values of other inputs, by name; those left out are at their medians (categories at their commonest level).
            Default: the response is averaged over training rows (partial dependence), with the inputs in question
            set to each value in turn.  Where inputs are strongly correlated, some of these combinations never occur.
        values : array-like, or a pair of them, optional
            Values of the inputs, in their own units.  Default: all levels of a category, all values of an input with
            at most 25 (15 for two inputs) different ones, otherwise as many over its range.
        rows : int, default=100
            Training rows, evenly spaced, that are averaged over.
        level : float, default=0.9
            Probability of the interval.
        curves : bool, default=False
            Keep the curve of each of these rows, too (individual conditional expectations).
        term : int or str, optional
            Only what one term of a sum of kernels contributes to the latent function, by its position, or by the name
            of its class (of an `Additive` kernel, of its input) if it is the only one.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            Of the samples from which intervals of probabilities are made: 8 of the latent function for each of 50
            draws of the hyperparameters.

        Returns
        -------
        Effect
            With `to_frame()`.

        Examples
        --------
        >>> from hmcgp import GPRegressor
        >>> gp = GPRegressor(sampler="map").fit([[0.0], [1.0], [2.0], [4.0]], [0.0, 1.1, 1.9, 4.1])
        >>> list(gp.effect(0, values=[1.0, 3.0]).to_frame().columns)
        ['mean', 'low', 'high']
        """
        return effects.effect_of(
            self,
            inputs,
            at=at,
            values=values,
            rows=rows,
            level=level,
            curves=curves,
            term=term,
            random_state=random_state,
        )

    def relevance(
        self,
        *,
        rows: int = 100,
        permutation: bool = False,
        repeats: int = 3,
        random_state: RandomStateLike = 0,
    ) -> relevance.Relevance:
        """Compute the change of predictions when each input moves; `plots.relevance` draws it.

        The change of the response (the probability of a class, the mean of a regression target, the rate of counts)
        when an input moves up by its standard deviation and the others stay, averaged over training rows (average
        predictive comparison, Gelman & Pardoe 2007).  A category moves from its most frequent level to each other one.
        It has a sign, and intervals over the latent function and the hyperparameters; `size` is its root mean square
        over rows.  Unlike a length scale, it is large for an input that acts linearly.

        Parameters
        ----------
        rows : int, default=100
            Training rows, evenly spaced.
        permutation : bool, default=False
            Also the loss of leave-one-out log predictive density when an input is that of another row, in closed form
            for each draw: without refitting, and without the optimism of rows that were fitted.
        repeats : int, default=3
            Permutations of each input.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            Of the samples of the latent function, and of the permutations.

        Returns
        -------
        Relevance
            With `to_frame()`.

        Examples
        --------
        >>> from hmcgp import GPRegressor
        >>> gp = GPRegressor(sampler="map").fit([[0.0, 3.0], [1.0, 1.0], [2.0, 2.0], [4.0, 1.5]], [0.0, 1.1, 1.9, 4.1])
        >>> list(gp.relevance(permutation=True).to_frame().index)
        ['x0', 'x1']
        """
        return relevance.relevance_of(
            self, rows=rows, permutation=permutation, repeats=repeats, random_state=random_state
        )

    def training_data(self) -> tuple[pd.DataFrame, Any]:
        """The rows of the fit in the user's units: a DataFrame of inputs, categories as text, and the targets."""
        check_is_fitted(self)
        return effects.UserTable(self).frame(), self._targets.observed(self.model_)

    def report(self, path: str | os.PathLike[str], title: str | None = None) -> Path:
        """Write one self-contained HTML page about this fit.

        How well it predicts (leave-one-out, beside a linear model), which inputs matter and what they do, whether the
        draws can be trusted and what to do if not, the most surprising rows, the data, and the settings.

        Parameters
        ----------
        path : path-like
            By custom ``*.html``.
        title : str, optional

        Returns
        -------
        Path
        """
        from hmcgp.report import write_report  # imports every plot, and the models that a report compares with

        check_is_fitted(self)
        return write_report(self, path, title)

    def to_arviz(
        self,
        *,
        log_likelihood: bool = False,
        posterior_predictive: bool = False,
        prior: int = 0,
        resample: bool = True,
        audit: Audit | None = None,
        units: str = "standardized",
        random_state: RandomStateLike = 0,
    ) -> Any:
        """The posterior as arviz's own container (InferenceData, or DataTree from arviz 1.0 on).

        `posterior` holds draws of equal weight from the posterior that `summary` and predictions describe, as arviz
        averages without weights: `arviz.summary` agrees with `summary` to a small part of its Monte Carlo errors.  The
        attribute `draws_note` says in words which draws these are.  There may be fewer than `draws` of each chain:
        where the evidence is refined, at most `predict_draws` (500 by default) of all chains are evaluated again.  All
        draws that were sampled are then in `sampling_posterior`, their statistics in `sampling_sample_stats`, with
        `log_weight` (-inf where a draw was not evaluated); `averaged_posterior` has the draws that predictions average
        over, with `log_weight`.  Trace plots and `arviz.bfmi` need the run itself: ``gp.sampling_trace_.to_arviz()``.

        `sample_stats` holds, besides the sampler's statistics, `log_evidence`: log p(y | hyperparameters) of all
        targets together, one number per draw.  `log_prior` (of natural hyperparameters, without Jacobians) and
        `log_likelihood` are what `arviz.psense_summary` (arviz 1.x) needs; see `prior_sensitivity`.

        Parameters
        ----------
        log_likelihood : bool, default=False
            Let `log_likelihood` hold log p(y_i | y_-i, θ) of each row given all others, whose latent function is
            integrated out.  `arviz.loo` on it leaves rows out for the hyperparameters too, as
            p(θ | y) ∝ p(θ | y_-i) p(y_i | y_-i, θ), and agrees with `loo`.  Default: log p(y | θ) of all rows together,
            as the terms `evidence` and `units` (of the density of y), for `arviz.psense_summary`; `arviz.loo` raises.
        posterior_predictive : bool, default=False
            Add the group `posterior_predictive`: targets drawn anew at the training rows, for `arviz.plot_ppc` (0.2x)
            or `arviz.plot_ppc_dist`.  Labels that are no numbers are also there as numbers, `y_code`, as are those
            observed: ``arviz.plot_ppc(tree, var_names="y_code")``.
        prior : int, default=0
            Add the group `prior` with so many draws of the hyperparameters from their prior.
        resample : bool, default=True
            Where draws carry weights: export as many of equal weight, each repeated or left out according to its
            weight.  False: the weighted draws, with `log_weight` in `sample_stats`, which arviz ignores.
        audit : Audit, optional
            Result of `GPClassifier.audit`: added as the group `audit`, its verdict in the attributes.
        units : {"standardized", "input"}, default="standardized"
            Of the hyperparameters, as of `summary`; also in the attributes, as `units`.
        random_state : None, int, SeedSequence, Generator or RandomState, default=0
            Of what is drawn from the posterior predictive and from the prior.

        Returns
        -------
        InferenceData or DataTree
            With `log_likelihood` or `posterior_predictive`, of the draws that predictions average over (see
            `predict_draws`): each takes a solve.
        """
        return export.to_arviz(
            self,
            log_likelihood=log_likelihood,
            posterior_predictive=posterior_predictive,
            prior=prior,
            resample=resample,
            audit=audit,
            units=units,
            random_state=random_state,
        )
