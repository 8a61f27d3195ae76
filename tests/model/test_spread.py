"""Rows in blocks, in threads and on a cluster: the numbers of one process, whatever the blocks and who is killed."""

from __future__ import annotations

import os
import pickle
import signal
import threading
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest

from hmcgp import Model, RowBlocks, SpreadModel, find_map, sample
from hmcgp.errors import HmcgpError, InvalidInput
from hmcgp.evidence import Exact, Laplace
from hmcgp.model import block_work
from hmcgp.posterior.predict import latent_moments, probabilities
from hmcgp.samplers import HMC, Metropolis
from tests.helpers.checks import check_gradient
from tests.helpers.processes import two_workers

N = 200
RNG = np.random.default_rng(6)
X = RNG.normal(size=(N, 2))
LABELS = np.where(X[:, 0] + 0.5 * RNG.normal(size=N) > 0.0, 1.0, -1.0)
NUMBERS = np.sin(X[:, 0]) + 0.2 * RNG.normal(size=N)
WEIGHTS = RNG.uniform(0.5, 2.0, size=N)
Z = X[:15] + 0.01
NEW = RNG.normal(size=(6, 2))

MODELS = {
    "logistic": ({}, LABELS, None),
    "probit-weights": ({"likelihood": "probit"}, LABELS, WEIGHTS),
    "gaussian": ({"likelihood": "gaussian"}, NUMBERS, None),
    "gaussian-weights": ({"likelihood": "gaussian"}, NUMBERS, WEIGHTS),
    "varying": ({"likelihood": "varying_noise"}, NUMBERS, None),
    "columns": ({"likelihood": "gaussian"}, np.stack([NUMBERS, LABELS], axis=1), None),
}
models = pytest.mark.parametrize("name", MODELS)


def whole(name):
    settings, y, weights = MODELS[name]
    return Model(X, y, weights=weights, inducing=Z, **settings)


def in_blocks(name, rows=60, **more):
    settings, y, weights = MODELS[name]
    return SpreadModel(RowBlocks.of_arrays(X, y, weights, rows=rows), **({"inducing": Z} | settings | more))


def positions(model, count=3):
    return [0.4 * np.random.default_rng(s).normal(size=model.n_dim) for s in range(count)]


def same(one, other, u):
    """Value and gradient, to 1e-10."""
    for gradient in (True, False):
        a, b = one.evaluate(u, gradient=gradient), other.evaluate(u, gradient=gradient)
        assert abs(a.logdensity - b.logdensity) < 1e-10 * max(1.0, abs(a.logdensity))
        if gradient:
            np.testing.assert_allclose(a.grad, b.grad, rtol=1e-9, atol=1e-9)


@models
@pytest.mark.parametrize("rows", [17, 200])
def test_blocks_give_the_numbers_of_one_process(name, rows):
    one, many = whole(name), in_blocks(name, rows, n_jobs=2)
    for u in positions(one):
        same(one, many, u)
    theta = one.constrain(positions(one)[0])[None]
    for ours, theirs in zip(latent_moments(many, theta, NEW), latent_moments(one, theta, NEW), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


@models
def test_gradient_matches_central_differences(name):
    model = in_blocks(name)
    check_gradient(model.logdensity_and_grad, positions(model)[1], rtol=1e-5, atol=1e-6)


def test_a_warm_start_saves_steps_and_decides_nothing():
    model = in_blocks("logistic")
    u, near = positions(model)[0], positions(model)[0] + 0.02
    cold, first = model.evaluate(near), model.evaluate(u)
    warm = model.evaluate(near, first.carry)
    assert abs(cold.logdensity - warm.logdensity) < 1e-9
    assert warm.solver_iterations < cold.solver_iterations
    far = model.evaluate(near, pickle.loads(pickle.dumps(model.evaluate(np.full(model.n_dim, 3.0)).carry)))
    assert abs(far.logdensity - cold.logdensity) < 1e-9


@pytest.mark.parametrize("variance", [1e-6, 1e4, 1e8])
def test_narrow_and_wide_priors(variance):
    one, many = whole("logistic"), in_blocks("logistic")
    u = one.unconstrain(np.array([variance, 1.0, 1.5]))
    assert abs(one.evaluate(u).logdensity - many.evaluate(u).logdensity) < 1e-7 * abs(one.evaluate(u).logdensity)


def test_failures_are_minus_infinity():
    for model, u in (
        (in_blocks("logistic", evidence=Laplace(max_iter=1)), np.zeros(3)),
        (in_blocks("logistic"), np.full(3, 650.0)),
    ):
        found = model.evaluate(u)
        assert found.logdensity == -np.inf
        assert found.failure != 0


def test_a_worker_without_room_makes_covariances_again(monkeypatch):
    monkeypatch.setattr(block_work, "KEPT_BYTES", 1)
    model = in_blocks("logistic")
    same(whole("logistic"), model, positions(model)[0])
    model.close()
    assert not [key for key in block_work.kept._entries if key[0][1] == model._number]


def test_it_is_maximised_sampled_and_predicts_as_any_model():
    one, many = whole("logistic"), in_blocks("logistic", rows=100)
    found, expected = (find_map(model, n_restarts=1, start=np.zeros(3), n_jobs=1) for model in (many, one))
    np.testing.assert_allclose(found.position, expected.position, atol=1e-3)
    settings: dict[str, Any] = {"draws": 4, "tune": 4, "chains": 2, "random_state": 0, "progressbar": False}
    runs = [sample(model, HMC(), n_jobs=2, **settings) for model in (one, many)]
    np.testing.assert_allclose(runs[0].draws, runs[1].draws, rtol=1e-6)
    theta = found.parameters[None]
    np.testing.assert_allclose(probabilities(many, theta, NEW), probabilities(one, theta, NEW), atol=1e-8)


def test_identity_is_of_all_rows():
    other = NUMBERS.copy()
    other[-1] += 1e-9
    blocks = [RowBlocks.of_arrays(X, y, rows=60) for y in (NUMBERS, other)]
    one, two = (SpreadModel(each, inducing=Z, likelihood="gaussian").identity() for each in blocks)
    assert one == in_blocks("gaussian").identity()
    assert one != two


# -- where rows come from --------------------------------------------------------------------------------------------


def test_dask_collections_are_read_where_they_are_used():
    dd = pytest.importorskip("dask.dataframe")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": NUMBERS, "w": WEIGHTS})
    one, u = whole("gaussian-weights"), positions(whole("gaussian"))[0]
    frame = RowBlocks.of_dask(dd.from_pandas(table, npartitions=3), "y", "w")
    model = SpreadModel(frame, inducing=Z, likelihood="gaussian")
    assert model.input_names == ["a", "b"]
    assert model.n_rows == N
    same(one, model, u)


def test_dask_arrays_are_read_where_they_are_used():
    da = pytest.importorskip("dask.array")
    one, u = whole("gaussian-weights"), positions(whole("gaussian"))[0]
    arrays = [da.from_array(part, chunks=(60, *part.shape[1:])) for part in (X, NUMBERS, WEIGHTS)]
    same(one, SpreadModel(RowBlocks.of_dask(*arrays), inducing=Z, likelihood="gaussian"), u)
    with pytest.raises(InvalidInput, match="cut between its columns"):
        RowBlocks.of_dask(da.from_array(X, chunks=(60, 1)), arrays[1])
    with pytest.raises(InvalidInput, match="repartition them alike"):
        RowBlocks.of_dask(arrays[0], da.from_array(NUMBERS, chunks=90))
    with pytest.raises(InvalidInput, match="take of_arrays"):
        RowBlocks.of_dask(X, NUMBERS)


def test_a_folder_of_parquet_files(tmp_path):
    pytest.importorskip("pyarrow")
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "y": LABELS})
    for k, rows in enumerate(np.array_split(np.arange(N), 3)):
        table.iloc[rows].to_parquet(tmp_path / f"part{k}.parquet")
    blocks = RowBlocks.of_parquet(tmp_path, target="y", inputs=["a", "b"])
    same(whole("logistic"), SpreadModel(blocks, inducing=Z), positions(whole("logistic"))[0])
    with pytest.raises(InvalidInput, match=r"no files \*.parquet"):
        RowBlocks.of_parquet(tmp_path / "elsewhere", target="y", inputs=["a", "b"])


@pytest.mark.parametrize("rows", [7, 200])
def test_standardised_blocks(rows):
    """Inputs of any unit and offset, one of them constant, give the model of inputs standardised beforehand."""
    raw = np.column_stack([1e3 + 1e-2 * X[:, 0], 1e6 * X[:, 1], np.full(N, 7.3)])
    blocks = RowBlocks.of_arrays(raw, LABELS, rows=rows).standardised(n_jobs=2)
    expected = np.column_stack([(X - X.mean(axis=0)) / X.std(axis=0), np.zeros(N)])
    np.testing.assert_allclose(blocks.scale(raw), expected, atol=1e-10)
    np.testing.assert_allclose(np.vstack([source.read().X for source in blocks.sources]), expected, atol=1e-10)
    same(Model(expected, LABELS, inducing=expected[:15]), SpreadModel(blocks, inducing=expected[:15]), np.zeros(4))
    np.testing.assert_array_equal(blocks.standardised().mean, blocks.mean)  # once and for all
    with pytest.raises(InvalidInput, match="standardised"):
        RowBlocks.of_arrays(raw, LABELS).scale(raw)


def test_blocks_of_one_label_each():
    """Files are often sorted by their target; and a block may be a single row."""
    order = np.argsort(LABELS, kind="stable")
    blocks = RowBlocks.of_arrays(X[order], LABELS[order], rows=50)
    first = RowBlocks.of_arrays(X[order[:1]], LABELS[order[:1]])
    rest = RowBlocks.of_arrays(X[order[1:]], LABELS[order[1:]], rows=50)
    for each in (blocks, RowBlocks(first.sources + rest.sources)):
        same(whole("logistic"), SpreadModel(each, inducing=Z), positions(whole("logistic"))[0])


def test_a_number_of_inducing_inputs_is_chosen_among_the_rows():
    model = in_blocks("logistic", inducing=12)
    assert model.inducing.shape == (12, 2)
    assert all((z == X).all(axis=1).any() for z in model.inducing)
    assert "blocks=4, inducing=12" in repr(model)


# -- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"inducing": N + 1}, "between 1 and the number of rows"),
        ({"inducing": np.zeros((3, 4))}, "must have the 2 inputs of the rows"),
        ({"inducing": np.vstack([Z, Z[:1]])}, "equal rows"),
        ({"inducing": 30.0 + Z}, "farther outside the range"),
        ({"evidence": "ep"}, "known with evidence='laplace'"),
        ({"likelihood": "gaussian", "evidence": Exact(variational=True)}, "known with evidence='laplace'"),
        ({"evidence": Laplace(newton="conjugate_gradients")}, "knows dense covariances only"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    blocks = RowBlocks.of_arrays(X, NUMBERS if "likelihood" in settings else LABELS, rows=60)
    with pytest.raises(InvalidInput, match=message):
        SpreadModel(blocks, **({"inducing": Z} | settings))


def test_bad_rows_are_refused():
    missing = X.copy()
    missing[150, 0] = np.nan
    with pytest.raises(InvalidInput, match="missing or infinite"):
        SpreadModel(RowBlocks.of_arrays(missing, LABELS, rows=60), inducing=Z)
    labels = LABELS.copy()
    labels[-1] = 3.0  # in the last block
    with pytest.raises(InvalidInput, match="labels -1 and \\+1"):
        SpreadModel(RowBlocks.of_arrays(X, labels, rows=60), inducing=Z)
    with pytest.raises(InvalidInput, match="a value for each row"):
        RowBlocks.of_arrays(X, LABELS[:-1])


def test_what_needs_the_rows_here_is_refused():
    model = in_blocks("logistic")
    with pytest.raises(InvalidInput, match="takes no more rows"):
        model.with_rows(NEW, LABELS[:6])
    with pytest.raises(InvalidInput, match="make another one, with evidence="):
        model.with_evidence("ep")
    with pytest.raises(pickle.PicklingError, match=r"outside of joblib.parallel_config"):
        pickle.dumps(model)


# -- on a cluster ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_one_of_them_killed():
    """A worker dies while chains run: its blocks are made again, and no draw differs from those of one process."""
    options: dict[str, Any] = {"draws": 6, "tune": 0, "chains": 2, "random_state": 0, "progressbar": False, "n_jobs": 2}
    one = whole("logistic")
    expected = sample(one, Metropolis(0.2), start=np.zeros(3), **options)
    with two_workers() as client:
        client.wait_for_workers(2)
        victims = list(client.run(os.getpid).values())
        with joblib.parallel_config(backend="dask"):
            model, numbers = in_blocks("logistic", rows=60), in_blocks("gaussian", rows=60)
            np.testing.assert_allclose(RowBlocks.of_arrays(X, LABELS, rows=60).standardised().mean, X.mean(axis=0))
        same(one, model, positions(model)[0])
        same(whole("gaussian"), numbers, positions(numbers)[0])
        held = [key for keys in client.has_what().values() for key in keys]
        assert len(held) >= len(model._blocks) + len(numbers._blocks)  # the rows live there
        killer = threading.Timer(0.5, os.kill, (victims[0], signal.SIGKILL))
        killer.start()
        run = sample(
            model, Metropolis(0.2), start=np.zeros(3), **options
        )  # two chains side by side on one set of blocks
        killer.join()
        assert victims[0] not in client.run(os.getpid).values()
        np.testing.assert_allclose(run.draws, expected.draws, rtol=1e-6)
        same(whole("gaussian"), numbers, positions(numbers)[1])
        with joblib.parallel_config(backend="dask"), pytest.raises(HmcgpError, match="without parallel_config"):
            sample(model, Metropolis(0.2), **options)
