"""Methods of fitted estimators beside fit and predict: tables, evidence, leave-one-out, export."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from hmcgp.estimators.table import Inputs, Targets
from hmcgp.kernels import Parameter
from hmcgp.model import GrowingModel, Model
from hmcgp.model.growing import effective_share, resampled
from hmcgp.model.model import Theta
from hmcgp.posterior import leave_one_out as leaving_out
from hmcgp.posterior import predict
from hmcgp.reporting import arviz_export, diagnostics
from hmcgp.runtime.typing import Array
from hmcgp.samplers import Trace

if TYPE_CHECKING:
    import pandas as pd


class PosteriorMixin:
    """Tables, evidence and leave-one-out of a fitted estimator."""

    model_: Model
    trace_: Trace
    predict_draws: int | None
    n_jobs: int | None
    _inputs: Inputs
    _targets: Targets
    _best: Array
    _log_weight: Array

    def _kept_draws(self) -> Array:
        """The draws that everything after the fit averages over, of shape (S, p)."""
        check_is_fitted(self)
        if isinstance(self.model_, GrowingModel):  # rows were appended, and the draws got weights
            return self.model_.draws[resampled(effective_share(self._log_weight)[0])]
        return predict.thin(self.trace_.flat, self.predict_draws)

    @property
    def parameters_(self) -> list[Parameter]:
        """The free hyperparameters with their priors, in the order of the columns of the trace."""
        check_is_fitted(self)
        return self.model_.parameters

    def summary(self) -> pd.DataFrame:
        """Posterior mean, sd, quantiles, effective sample sizes and R-hat of every hyperparameter."""
        check_is_fitted(self)
        return diagnostics.summary(self.trace_)

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
            Only with `eval_gradient`.
        """
        check_is_fitted(self)
        log_z, grad = self.model_.log_evidence(self._best if theta is None else theta)
        return (log_z, grad) if eval_gradient else log_z

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
        return self._leave_out(None)

    def _leave_out(self, row_groups: NDArray[np.intp] | None) -> leaving_out.LeaveOneOut:
        """Leave each row out, or each group of rows (see `hmcgp.posterior.leave_one_out.loo`)."""
        draws = self._kept_draws()
        r_eff = 1.0
        if len(draws) > 1:
            ess = self.summary()["ess_bulk"].min() / len(draws)
            r_eff = float(np.clip(ess, 1.0 / len(draws), 1.0)) if np.isfinite(ess) else 1.0
        return leaving_out.loo(self.model_, draws, row_groups=row_groups, r_eff=r_eff, n_jobs=self.n_jobs)

    def to_arviz(self) -> Any:
        """The posterior as arviz's own container (InferenceData, or DataTree from arviz 1.0 on).

        The group `log_likelihood` holds `log_evidence`, log p(y | hyperparameters) of all labels together, one number
        per draw: the latent function is integrated out, so there are no pointwise terms.  Do not call `arviz.loo` on
        it, which would take the whole table for one observation: `loo` leaves out single rows.
        """
        check_is_fitted(self)
        log_prior = [[self.model_.log_prior(u)[0] for u in chain] for chain in self.trace_.unconstrained]
        return arviz_export.to_arviz(
            self,
            X=self._inputs.scaling.undo(self._targets.layout.inputs(self.model_.X)),
            y=self._targets.observed(self.model_),
            log_likelihood={"log_evidence": np.asarray(self.trace_.stats["lp"] - np.array(log_prior))},
        )
