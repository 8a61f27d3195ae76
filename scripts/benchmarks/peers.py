"""Two peers to measure against: a Laplace evidence in JAX under BlackJAX's NUTS, and PyMC on the latent values.

Both are given the model of Barber & Williams (1997) in the coordinates of `hmcgp.Model`, u = (log variance,
log length_scale_1, …), with log variance ~ N(-3, 3²) and log length_scale ~ N(1.5, 1.5²), which is N(-3, 3²) on log w.

JAX: the density is the very one that we sample, the log evidence of GPML's algorithm 3.1 with the gradient of algorithm
5.1 in adjoint form: G = ∂ log Z/∂K in closed form, pulled back to u without an array of (n, n, p).  Float64, one
factorisation per Newton iteration, everything compiled into one loop.  BlackJAX hands nothing from one evaluation to
the next, so Newton's method starts from zero.

PyMC: f = L z with K = LL' and z ~ N(0, I) sampled together with u.  No approximation, so the posterior of u differs
from Laplace's; the price is n more dimensions.  K needs a jitter to have a factor, `JITTER` times the variance.

This module knows nothing of hmcgp; that the densities agree is checked by `contenders.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

PRIOR_VARIANCE = (-3.0, 3.0)  # mean and sd of the logarithm
PRIOR_LENGTH_SCALE = (1.5, 1.5)
JITTER = 1e-6
NEWTON_STEP = 1e-4  # the last step in f; the error left is about its square
MAX_NEWTON = 100


class Run(NamedTuple):
    """What a contender leaves behind."""

    draws: Any  # (chains, draws, n_dim), u after warm-up
    compile_s: float
    warmup_s: float
    sampling_s: float
    run_s: float  # warm-up and draws of all chains, on the clock; on one core the sum of the two
    run_cpu_s: float  # the same in processor time, which other work on the machine does not lengthen
    evaluations_warmup: int  # of log density and gradient
    evaluations_draws: int
    divergences: int


def prior_moments(n_inputs: int) -> tuple[Any, Any]:
    """Mean and standard deviation of u under the prior."""
    mean = np.concatenate([[PRIOR_VARIANCE[0]], np.full(n_inputs, PRIOR_LENGTH_SCALE[0])])
    sd = np.concatenate([[PRIOR_VARIANCE[1]], np.full(n_inputs, PRIOR_LENGTH_SCALE[1])])
    return mean, sd


# -- JAX and BlackJAX ----------------------------------------------------------------------------------------------


def jax_value_and_grad(X: Any, y: Any) -> Callable[[Any], tuple[Any, Any]]:
    """Log posterior of u (up to a constant) and its gradient, to be compiled by JAX."""
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import cho_solve

    jax.config.update("jax_enable_x64", True)
    n, d = X.shape
    X, y, t, eye = jnp.asarray(X - X.mean(axis=0)), jnp.asarray(y), jnp.asarray(0.5 * (y + 1.0)), jnp.eye(n)
    prior_mean, prior_sd = (jnp.asarray(m) for m in prior_moments(d))

    def psi(a: Any, f: Any) -> Any:
        return jnp.sum(jax.nn.log_sigmoid(y * f)) - 0.5 * a @ f

    def factor(K: Any, f: Any) -> Any:
        pi = jax.nn.sigmoid(f)
        W = pi * (1.0 - pi)
        s = jnp.sqrt(W)
        return pi, W, s, jnp.linalg.cholesky(eye + s[:, None] * K * s, symmetrize_input=False)

    def newton(state: Any) -> Any:
        K, a, f, value, _, k = state
        pi, W, s, L = factor(K, f)
        b = W * f + t - pi
        da = b - s * cho_solve((L, True), s * (K @ b)) - a  # algorithm 3.1, line 7
        df = K @ da

        def falls(trial: Any) -> Any:
            return (trial[1] < value - 1e-12 * jnp.abs(value)) & (trial[0] > 1e-10)

        def halve(trial: Any) -> Any:
            step = 0.5 * trial[0]
            return step, psi(a + step * da, f + step * df)

        step, value = jax.lax.while_loop(falls, halve, (1.0, psi(a + da, f + df)))
        return K, a + step * da, f + step * df, value, jnp.max(jnp.abs(step * df)), k + 1

    def value_and_grad(u: Any) -> tuple[Any, Any]:
        Z = X * jnp.exp(-u[1:])
        q = jnp.sum(Z * Z, axis=1)
        K = jnp.exp(u[0] - 0.5 * jnp.maximum(q[:, None] + q - 2.0 * Z @ Z.T, 0.0))
        zero = jnp.zeros(n)
        start = (K, zero, zero, psi(zero, zero), jnp.inf, 0)
        _, _, f, value, _, _ = jax.lax.while_loop(
            lambda state: (state[4] > NEWTON_STEP) & (state[5] < MAX_NEWTON), newton, start
        )
        pi, _, s, L = factor(K, f)
        log_z = value - jnp.sum(jnp.log(jnp.diag(L)))
        g, inverse = t - pi, cho_solve((L, True), eye)  # B⁻¹
        c = -0.5 * (1.0 - jnp.diag(inverse)) * (1.0 - 2.0 * pi)  # ½ s ∂³log p, W cancelled
        v = c - s * (inverse @ (s * (K @ c))) + 0.5 * g
        S = 0.5 * K * (v[:, None] * g + g[:, None] * v - s[:, None] * inverse * s)  # G ∘ K
        row = jnp.sum(S, axis=1)
        dlength = 2.0 * (row @ Z**2 - jnp.sum(Z * (S @ Z), axis=0))
        e = (u - prior_mean) / prior_sd
        return log_z - 0.5 * e @ e, jnp.concatenate([jnp.sum(row)[None], dlength]) - e / prior_sd

    return value_and_grad


def jax_logdensity(X: Any, y: Any) -> Callable[[Any], Any]:
    """The same as a function that `jax.grad` differentiates by its closed form."""
    import jax

    value_and_grad = jax_value_and_grad(X, y)

    @jax.custom_vjp
    def logdensity(u: Any) -> Any:
        return value_and_grad(u)[0]

    logdensity.defvjp(value_and_grad, lambda grad, cotangent: (cotangent * grad,))
    return logdensity


def run_blackjax(X: Any, y: Any, starts: Any, *, tune: int, draws: int, seed: int, diagonal: bool) -> Run:
    """BlackJAX's NUTS with its window adaptation, one chain per start, one after another."""
    import blackjax
    import jax

    logdensity = jax_logdensity(X, y)
    adaptation = blackjax.window_adaptation(
        blackjax.nuts,
        logdensity,
        is_mass_matrix_diagonal=diagonal,
        adaptation_info_fn=lambda _state, info, _adaptation: info.num_integration_steps,
    )

    def warm_up(key: Any, u: Any) -> Any:
        (state, found), n_steps = adaptation.run(key, u, tune)
        return state, found["step_size"], found["inverse_mass_matrix"], n_steps.sum()

    def draw(key: Any, state: Any, step_size: Any, inverse_mass: Any) -> Any:
        kernel = blackjax.nuts(logdensity, step_size, inverse_mass)

        def one(state: Any, key: Any) -> Any:
            state, info = kernel.step(key, state)
            return state, (state.position, info.num_integration_steps, info.is_divergent)

        _, (u, n_steps, divergent) = jax.lax.scan(one, state, jax.random.split(key, draws))
        return u, n_steps.sum(), divergent.sum()

    keys = jax.random.split(jax.random.key(seed), (len(starts), 2))
    begin = time.perf_counter()
    compiled_warm_up = jax.jit(warm_up).lower(keys[0, 0], starts[0]).compile()
    shapes = jax.eval_shape(warm_up, keys[0, 0], starts[0])
    compiled_draw = jax.jit(draw).lower(keys[0, 1], *shapes[:3]).compile()
    compile_s = time.perf_counter() - begin

    def chain(c: int) -> Any:
        t0 = time.perf_counter()
        *tuned, n_warmup = jax.block_until_ready(compiled_warm_up(keys[c, 0], starts[c]))
        t1 = time.perf_counter()
        u, n_draws, divergences = jax.block_until_ready(compiled_draw(keys[c, 1], *tuned))
        return np.asarray(u), t1 - t0, time.perf_counter() - t1, int(n_warmup), int(n_draws), int(divergences)

    begin, cpu = time.perf_counter(), time.process_time()
    chains = [chain(c) for c in range(len(starts))]
    run_s, run_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    u, *columns = zip(*chains, strict=True)
    warmup_s, sampling_s, *counts = (sum(column) for column in columns)
    return Run(np.stack(u), compile_s, warmup_s, sampling_s, run_s, run_cpu_s, *counts)


# -- PyMC ----------------------------------------------------------------------------------------------------------


def pymc_model(X: Any, y: Any) -> Any:
    """The latent model: `log_variance`, `log_length_scale` and the whitened latent vector `z`."""
    import pymc as pm
    import pytensor.tensor as pt

    n, d = X.shape
    squares = ((X[:, None, :] - X) ** 2).transpose(2, 0, 1).reshape(d, n * n)  # one product gives all distances
    with pm.Model() as model:
        log_variance = pm.Normal("log_variance", *PRIOR_VARIANCE)
        log_length_scale = pm.Normal("log_length_scale", *PRIOR_LENGTH_SCALE, shape=d)
        z = pm.Normal("z", 0.0, 1.0, shape=n)
        distances = (pt.exp(-2.0 * log_length_scale) @ squares).reshape((n, n))
        L = pt.linalg.cholesky(pt.exp(log_variance) * (pt.exp(-0.5 * distances) + JITTER * pt.eye(n)))
        pm.Potential("labels", -pt.softplus(-y * (L @ z)).sum())
    return model


def run_pymc(X: Any, y: Any, starts: Any, *, tune: int, draws: int, seed: int) -> Run:
    """PyMC's model under nutpie's NUTS, or PyMC's own where nutpie is missing; one chain after another, own starts.

    Compiled by numba, the fastest set-up found among numba and JAX.
    """
    begin = time.perf_counter()
    model = pymc_model(X, y)
    try:
        import nutpie
    except ImportError:
        return _run_pymc_alone(model, len(starts), tune=tune, draws=draws, seed=seed)
    compiled = nutpie.compile_pymc_model(model, backend="numba")
    compile_s = time.perf_counter() - begin
    begin, cpu = time.perf_counter(), time.process_time()
    tree = nutpie.sample(compiled, draws=draws, tune=tune, chains=len(starts), cores=1, seed=seed, progress_bar=False)
    run_s, run_cpu_s = time.perf_counter() - begin, time.process_time() - cpu
    return _pymc_result(tree, compile_s, run_s, run_cpu_s)


def _run_pymc_alone(model: Any, chains: int, *, tune: int, draws: int, seed: int) -> Run:
    import pymc as pm

    begin, cpu = time.perf_counter(), time.process_time()
    with model:
        tree = pm.sample(
            draws=draws,
            tune=tune,
            chains=chains,
            cores=1,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
            discard_tuned_samples=False,
        )
    total, total_cpu = time.perf_counter() - begin, time.process_time() - cpu
    run_s = float(tree.posterior.attrs["sampling_time"])
    return _pymc_result(tree, total - run_s, run_s, total_cpu * run_s / total)


def _pymc_result(tree: Any, compile_s: float, run_s: float, run_cpu_s: float) -> Run:
    """Collect a run; its time is divided between warm-up and draws by their leapfrog steps, which all cost the same."""
    posterior = tree.posterior
    u = np.concatenate([posterior["log_variance"].values[..., None], posterior["log_length_scale"].values], axis=-1)
    n_warmup, n_draws = (int(s["n_steps"].sum()) for s in (tree.warmup_sample_stats, tree.sample_stats))
    share = n_draws / (n_warmup + n_draws)
    divergences = int(tree.sample_stats["diverging"].sum())
    return Run(u, compile_s, run_s * (1.0 - share), run_s * share, run_s, run_cpu_s, n_warmup, n_draws, divergences)
