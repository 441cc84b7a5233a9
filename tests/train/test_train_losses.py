"""The distillation loss against scipy, in float64."""

import copy

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import rel_entr, softmax
from training import net

from compress.train.losses import Distillation, distance, divergence, frozen


def logits(n: int, classes: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 4, (n, classes))


@given(n=st.integers(1, 9), classes=st.integers(2, 12), seed=st.integers(0, 999), temperature=st.floats(0.5, 9))
def test_distillation_is_the_textbook_loss(n: int, classes: int, seed: int, temperature: float):
    student, teacher = logits(n, classes, seed), logits(n, classes, seed + 1)
    wanted, given_ = softmax(teacher / temperature, axis=1), softmax(student / temperature, axis=1)
    # Summed over classes, mean over samples, T^2 once.
    expected = rel_entr(wanted, given_).sum(axis=1).mean() * temperature**2
    found = divergence(torch.tensor(student), torch.tensor(teacher), temperature)
    assert float(found) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_the_gradient_keeps_its_size_at_any_temperature():
    """In the limit of high temperatures the gradient tends to (z - v) / classes: Hinton et al. 2015, equation 4."""
    student = torch.tensor(logits(5, 4, 0)).requires_grad_()
    teacher = torch.tensor(logits(5, 4, 1))
    divergence(student, teacher, 1000.0).backward()
    centred = (student - teacher).detach()
    expected = (centred - centred.mean(dim=1, keepdim=True)) / 4 / 5
    torch.testing.assert_close(student.grad, expected, rtol=1e-2, atol=1e-4)


def test_places_beyond_classes_are_averaged():
    student, teacher = (torch.tensor(logits(2 * 7, 5, seed)).reshape(2, 7, 5) for seed in (0, 1))
    flat = divergence(student.reshape(-1, 5), teacher.reshape(-1, 5), 2.0)
    assert float(divergence(student.transpose(1, 2), teacher.transpose(1, 2), 2.0)) == pytest.approx(float(flat))


def test_outputs_that_are_no_classes_are_followed_whatever_their_scale():
    student, teacher = torch.tensor(logits(9, 4, 0)), torch.tensor(logits(9, 4, 1))
    assert float(distance(teacher, teacher)) == 0
    assert float(distance(student * 1e4, teacher * 1e4)) == pytest.approx(float(distance(student, teacher)))
    expected = ((student - teacher) ** 2).mean().item() / np.var(teacher.numpy())
    assert float(distance(student, teacher)) == pytest.approx(expected)


def test_labels_take_the_share_that_they_are_given():
    model = net()
    teacher = frozen(net(1))
    inputs, labels = {"input": torch.randn(4, 6)}, torch.tensor([0, 1, 2, 0])
    outputs = {"output": model(inputs["input"])}
    soft, hard, half = (
        float(Distillation(teacher=teacher, classes=True, label_weight=share)(outputs, inputs, labels).detach())
        for share in (0.0, 1.0, 0.5)
    )
    assert hard == pytest.approx(float(torch.nn.functional.cross_entropy(outputs["output"], labels).detach()))
    assert half == pytest.approx((soft + hard) / 2)


def test_a_teacher_is_a_copy_that_learns_nothing():
    model = net().train()
    teacher = frozen(model)
    before = copy.deepcopy(teacher.state_dict())
    inputs = {"input": torch.randn(16, 6)}
    outputs = {"output": model(inputs["input"])}
    Distillation(teacher=teacher, classes=True)(outputs, inputs, torch.zeros(16, dtype=torch.long)).backward()
    assert model.training
    assert not any(module.training for module in teacher.modules())
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert all(torch.equal(tensor, before[name]) for name, tensor in teacher.state_dict().items())
