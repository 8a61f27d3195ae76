"""Findings of an audit, in numbers and in sentences (`hmcgp.posterior.audit`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hmcgp.evidence import EP, TAP
from hmcgp.numerics.weighted import K_LIMIT
from hmcgp.runtime.typing import Array

SE_LIMIT, SE_EVEN = 0.3, 0.02  # standard errors of log Z: too large; so small that a heavy tail does not matter
UNSURE_LIMIT = 0.1  # share of draws whose exact evidence may be in doubt
LEAST_EFFECTIVE = 10.0  # draws that must carry the weights
RMS_GOOD, RMS_FAIR, WORST_GOOD = 0.01, 0.03, 0.05  # changes of probabilities
SHIFT_LARGE = 0.5  # of a posterior mean, in posterior standard deviations


def reliable_weights(k: float, n_effective: float) -> bool:
    """Whether weights of this Pareto k and effective number can be relied on."""
    return bool(k <= K_LIMIT and n_effective >= LEAST_EFFECTIVE)


@dataclass(frozen=True, repr=False, eq=False)
class Audit:
    """How far an approximate evidence is from the exact one.  Printed, it says what was found in a few sentences.

    Attributes
    ----------
    evidence : str
        Class of the evidence provider that was audited.
    draws : ndarray of shape (S,)
        Positions of the audited draws among those given.
    n_given : int
        Number of draws given.
    log_z_change : ndarray of shape (S,)
        log Z_exact - log Z_provider of each draw.
    standard_error, pareto_k : ndarrays of shape (S,)
        Of log Z_exact; above 0.7, k says that the standard error is not reliable unless it is tiny.
    n_samples : ndarray of shape (S,)
        Samples of the latent values.
    log_weights : ndarray of shape (S,)
        Normalised weights of the draws under the exact posterior.
    weights_k, n_effective : float
        Pareto k of these weights, infinite below 25 draws and NaN for one; and (Σw)²/Σw².
    names : list of str
        Of the hyperparameters.
    shift, shift_error : ndarrays of shape (p,)
        Exact less approximate posterior mean of each hyperparameter, in posterior standard deviations, on the scale on
        which it is sampled (the logarithm of a positive one); and its standard error.  NaN for one draw.
    probability, exact_probability : ndarrays of shape (m,)
        Of the second class (label +1), approximate and exact.  The exact one is averaged with the weights, or without
        them where they cannot be relied on (`weights_reliable`).
    change_error : ndarray of shape (m,)
        Standard error of the difference, from the choice of draws; NaN for one draw.
    rows : str
        "training rows" or "given rows".
    """

    evidence: str
    draws: NDArray[np.intp]
    n_given: int
    log_z_change: Array
    standard_error: Array
    pareto_k: Array
    n_samples: NDArray[np.intp]
    log_weights: Array
    weights_k: float
    n_effective: float
    names: list[str]
    shift: Array
    shift_error: Array
    probability: Array
    exact_probability: Array
    change_error: Array
    rows: str

    # -- summaries ---------------------------------------------------------------------------------------------------

    @property
    def change(self) -> Array:
        """Exact less approximate probability of the second class, of shape (m,)."""
        return self.exact_probability - self.probability

    @property
    def rms_change(self) -> float:
        """Root mean square of `change`."""
        return float(np.sqrt(np.mean(self.change**2)))

    @property
    def worst_rows(self) -> NDArray[np.intp]:
        """Rows in the order of the size of their change, the largest first, of shape (m,)."""
        return np.argsort(-np.abs(self.change), kind="stable")

    @property
    def unsure(self) -> NDArray[np.bool_]:
        """Whether the exact evidence of each draw is itself in doubt, of shape (S,)."""
        uneven = self.standard_error > SE_EVEN
        return np.asarray((self.standard_error > SE_LIMIT) | (uneven & (self.pareto_k > K_LIMIT)))

    @property
    def evidence_reliable(self) -> bool:
        """Whether the exact evidence is known at nine of ten draws."""
        return bool(np.mean(self.unsure) <= UNSURE_LIMIT)

    @property
    def weights_reliable(self) -> bool:
        """Whether the weights to the exact posterior can be relied on; never for one draw."""
        return reliable_weights(self.weights_k, self.n_effective)

    @property
    def status(self) -> str:
        """One of "good", "fair", "poor" and "unknown", about the probabilities."""
        if not self.evidence_reliable or (len(self.draws) > 1 and not self.weights_reliable):
            return "unknown"
        worst, noise = float(np.max(np.abs(self.change))), float(np.sqrt(np.nanmean([0.0, *self.change_error**2])))
        if self.rms_change <= RMS_GOOD and worst <= WORST_GOOD:
            return "good"
        if self.rms_change <= 2.0 * noise:
            return "unknown"
        return "fair" if self.rms_change <= RMS_FAIR else "poor"

    @property
    def verdict(self) -> str:
        """Conclusion in a sentence."""
        name = self.evidence
        if not self.evidence_reliable:
            n = int(self.unsure.sum())
            return f"cannot tell: the exact evidence is itself in doubt at {n} of {len(self.draws)} draws."
        if len(self.draws) > 1 and not self.weights_reliable:
            return (
                f"cannot tell: the exact posterior of the hyperparameters rests on too few of these draws (Pareto k "
                f"{self.weights_k:.2f}, effective number {self.n_effective:.0f}); the probabilities above are those of "
                "the draws as they are."
            )
        return {
            "good": f"the probabilities of {name} can be relied on; {self._about_hyperparameters()}",
            "fair": f"the probabilities of {name} are nearly right; {self._about_hyperparameters()}",
            "poor": f"the probabilities of {name} are off; {self._about_hyperparameters()}",
            "unknown": "cannot tell: the change of the probabilities is no larger than its sampling error.",
        }[self.status]

    @property
    def advice(self) -> str:
        """Recommended action, in a sentence."""
        if not self.evidence_reliable:
            return "raise max_samples (exact=LatentSampling(max_samples=100_000)); or let fewer labels be certain."
        is_ep = self.evidence in {EP.__name__, TAP.__name__}
        if self.status == "unknown":
            more = f"audit more draws (n_draws={4 * len(self.draws)})"
            return f"{more}." if is_ep else f"{more}, or fit with refine='ep' and audit again."
        if self.status == "good" and len(self._moved) == 0:
            return "nothing."
        if is_ep:
            return "fit with refine='exact', which averages over the exact latent posterior."
        return "fit with refine='ep' (or evidence='ep'), and audit again."

    @property
    def _moved(self) -> NDArray[np.intp]:
        """Hyperparameters whose means move by more than SHIFT_LARGE, beyond doubt, the farthest first."""
        size = np.nan_to_num(np.abs(self.shift))
        far = (size > SHIFT_LARGE) & (size > 2.0 * np.nan_to_num(self.shift_error))
        order = np.argsort(-size, kind="stable")
        return order[far[order]]

    def _about_hyperparameters(self) -> str:
        if len(self.draws) == 1:
            return "one draw says nothing about the hyperparameters."
        moved = [self.names[i] for i in self._moved]
        if not moved:
            return (
                "so can the hyperparameters."
                if self.status == "good"
                else "no hyperparameter clearly moves by half an sd."
            )
        more = f" and {len(moved) - 3} others" if len(moved) > 3 else ""
        return f"{', '.join(moved[:3])}{more} would lie elsewhere."

    def __repr__(self) -> str:
        S, worst, j = len(self.draws), int(self.worst_rows[0]), int(np.argmax(np.nan_to_num(np.abs(self.shift))))
        p, exact = self.probability[worst], self.exact_probability[worst]
        hyper = "one draw, no statement"
        if S > 1:
            hyper = f"posterior means move by {abs(self.shift[j]):.2f} ± {self.shift_error[j]:.2f} sd at most"
            hyper += f" ({self.names[j]})"
        spread = f", standard deviation over draws {np.std(self.log_z_change):.2f}" if S > 1 else ""
        return "\n".join(
            [
                f"Audit of {self.evidence} at {S} of {self.n_given} draws, {len(self.probability)} {self.rows}",
                f"  Log evidence: exact minus {self.evidence} is {np.mean(self.log_z_change):.2f} on average{spread}; "
                f"the standard error of one is {np.median(self.standard_error):.3f}",
                f"  Hyperparameters: {hyper}",
                f"  Probabilities: change by {self.rms_change:.3f} rms; most in row {worst}, from {p:.3f} to "
                f"{exact:.3f}",
                f"  Verdict: {self.verdict}",
                f"  What to do: {self.advice}",
            ]
        )

    def to_dict(self) -> dict[str, dict[str, Any]]:
        """Numbers of the audit by what they belong to: "draw", "parameter" and "row" have arrays, "audit" the rest."""
        per_draw = ("log_z_change", "standard_error", "pareto_k", "n_samples", "log_weights")
        return {
            "draw": {"draw": self.draws} | {name: getattr(self, name) for name in per_draw},
            "parameter": {"name": self.names, "shift": self.shift, "shift_error": self.shift_error},
            "row": {name: getattr(self, name) for name in ("probability", "exact_probability", "change_error")},
            "audit": {
                name: getattr(self, name)
                for name in (
                    "evidence", "n_given", "weights_k", "n_effective", "rms_change", "rows", "status", "verdict",
                    "advice",
                )
            },
        }  # fmt: skip
