import numpy as np
import pytest
import torch

from compress.errors import EnvironmentProblem
from compress.zoo import heads


def samples(n=400, width=6, classes=3, seed=0):
    random = torch.Generator().manual_seed(seed)
    features = torch.randn(n, width, generator=random) * torch.arange(1, width + 1) + 2
    mixing = torch.randn(width, classes, generator=random)
    return features, (features @ mixing + torch.randn(n, classes, generator=random)).argmax(1)


@pytest.mark.parametrize("penalty", [1e-3, 1e-1])
def test_a_head_is_the_logistic_regression_of_scikit_learn(penalty):
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, labels = samples()
    centred = features - features.mean(0)
    scaled = (centred / centred.square().mean().sqrt()).numpy()
    # Their loss is C times the sum over samples plus half the squared norm: C = 1 / (2 n penalty).
    theirs = linear_model.LogisticRegression(C=1 / (2 * len(labels) * penalty), tol=1e-8, max_iter=2000)
    expected = theirs.fit(scaled, labels.numpy()).predict_proba(scaled)
    got = heads.fitted((features, labels), penalty, 3)(features).softmax(1).detach().numpy()
    np.testing.assert_allclose(got, expected, atol=1e-3)


def test_a_constant_feature_does_no_harm():
    features, labels = samples()
    features = torch.cat([features, torch.full((len(labels), 1), 5.0)], dim=1)
    assert heads.fitted((features, labels), 1e-3, 3)(features).isfinite().all()


def test_fitting_twice_gives_the_same_head():
    first, second = (heads.fitted(samples(), 1e-3, 3).state_dict() for _ in range(2))
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_penalty_is_the_one_that_serves_samples_it_was_not_fitted_on():
    random = torch.Generator().manual_seed(0)
    features = torch.randn(500, 300, generator=random)
    noisy = features[:, 0] + 3 * torch.randn(500, generator=random) > 0
    # As many features as samples and labels that are mostly noise: only a heavy penalty is of use.
    assert heads.best_penalty((features, noisy.long()), 2) >= 1e-2


class Doubling(torch.nn.Module):
    def features(self, values):
        return 2 * values


def test_features_of_a_dataset_and_of_arrays_are_alike():
    values, labels = np.arange(240, dtype=np.float32).reshape(120, 2), np.arange(120)
    dataset = list(zip(values, labels, strict=True))
    for given in (dataset, ({"values": values}, labels)):
        features, found = heads.features_of(Doubling(), given)
        assert np.array_equal(features, 2 * values)
        assert np.array_equal(found, labels)


def test_a_missing_extra_stops_the_script_with_one_line(monkeypatch, capsys):
    def refuse():
        raise EnvironmentProblem("package x", "is not installed", "Install it")

    entry = heads.Entry(backbone=refuse, data=dict, prefix="", classes=2)
    monkeypatch.setitem(heads.ENTRIES, "minilm_sentiment", entry)
    threads = torch.get_num_threads()
    assert heads.main(["minilm_sentiment", "--threads", str(threads)]) == 3
    assert capsys.readouterr().err == "package x: is not installed. Install it.\n"
