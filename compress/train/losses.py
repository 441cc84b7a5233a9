"""Losses: distillation from a teacher, and labels. Every loss is a mean over samples."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from compress.export.onnx import call_arguments, name_outputs

Named = dict[str, Tensor]
Loss = Callable[[Named, Named, Tensor], Tensor]


def divergence(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """T^2 KL(teacher || student) of softened classes: summed over classes, mean over everything else.

    student, teacher: logits (n, classes, ...). Hinton, Vinyals and Dean 2015, section 2: T^2, once, keeps the size of
    the gradient whatever the temperature.
    """
    classes = torch.log_softmax(student / temperature, dim=1)
    wanted = torch.log_softmax(teacher / temperature, dim=1)
    return (wanted.exp() * (wanted - classes)).sum(dim=1).mean() * temperature**2


def distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Squared error relative to the teacher's own spread, for outputs that are no classes. Any equal shapes."""
    return (student - teacher).square().mean() / teacher.var(correction=0).clamp_min(1e-12)


@dataclass(frozen=True, kw_only=True)
class Distillation:
    """Follow a teacher on the same inputs; with label_weight > 0 part of the loss is cross-entropy with the labels.

    classes: outputs are logits (n, classes, ...); otherwise every output is followed by its distance. The teacher is
    run in eval mode without gradients, is no part of the student and is never written to.
    """

    teacher: nn.Module
    classes: bool
    temperature: float = 4.0
    label_weight: float = 0.0

    def __call__(self, outputs: Named, inputs: Named, labels: Tensor) -> Tensor:
        """outputs, inputs: by name, each (n, ...); labels: (n,). Returns a scalar."""
        wanted = run_frozen(self.teacher.to(labels.device), inputs)
        followed = sum(
            (self._follow(outputs[name], wanted[name]) for name in outputs), labels.new_zeros((), dtype=torch.float32)
        )
        if not self.label_weight:
            return followed
        hard = functional.cross_entropy(next(iter(outputs.values())), labels)
        return (1.0 - self.label_weight) * followed + self.label_weight * hard

    def _follow(self, student: Tensor, teacher: Tensor) -> Tensor:
        return divergence(student, teacher, self.temperature) if self.classes else distance(student, teacher)


def run_frozen(model: nn.Module, inputs: Named) -> Named:
    """Outputs by name, without gradients. The model stays in the mode it is in: put it into eval mode once."""
    with torch.no_grad():
        return run_named(model, inputs)


def run_named(model: nn.Module, inputs: Named) -> Named:
    """Outputs by name of one batch, each (n, ...)."""
    args, kwargs = call_arguments(inputs)
    found: Named = name_outputs(model(*args, **kwargs))
    return found


def frozen(model: nn.Module) -> nn.Module:
    """A copy in eval mode that takes no gradients: a teacher."""
    import copy

    teacher = copy.deepcopy(model).eval()
    for parameter in teacher.parameters():
        parameter.requires_grad_(False)
    return teacher
