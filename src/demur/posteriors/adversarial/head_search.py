"""Searches last layers that disagree with the deployed one, for all target classes at once."""

from __future__ import annotations

from typing import Any

from demur.posteriors.adversarial.plan import Found, SearchPlan, choose_compared
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.heads.features import Features
from demur.posteriors.heads.training import check_labels
from demur.posteriors.last_layer import LastLayer

_WEIGHTS_TOGETHER = 1 << 25
"""Weights of the heads searched at a time, at most: 128 MB; gradient and both moments take as much each."""


_LOGITS_TOGETHER = 1 << 24
"""Logits of heads for training inputs computed at a time, at most, when losses are compared: 64 MB."""


class HeadSearch:
    """Searches heads of one network, one for each target class.

    The gradient is written out: two matrix products for all heads together. Every input is searched alone, in
    products of the same shapes, so that nothing else in its batch can change a bit of the result.

    Parameters
    ----------
    source
        The network up to its last layer.
    training
        The features of the training data.
    plan, batch_size, loss_inputs, seed
        As for `QUAM`.
    """

    def __init__(
        self, source: LastLayer, training: Features, plan: SearchPlan, batch_size: int, loss_inputs: int,
        seed: int,
    ) -> None:  # fmt: skip
        import torch

        self.source, self.plan, self.training = source, plan, training
        layer = source.layer
        self.classes: int = layer.out_features
        # Half precision would lose the small differences in loss that decide the weights.
        kind = torch.float64 if layer.weight.dtype == torch.float64 else torch.float32
        weight = layer.weight.detach().to(kind)
        self._has_bias = layer.bias is not None
        self.start = (
            torch.cat([weight, layer.bias.detach().to(weight)[:, None]], 1) if self._has_bias else weight
        )
        labels = check_labels(training, layer).to(weight.device)
        values = self._append_one(torch.as_tensor(training.values).to(weight))
        self.minibatches = ArrayMinibatches(values, labels, batch_size, seed)
        self._compared = choose_compared(self.minibatches, loss_inputs, seed)
        self._reference = self._compute_losses(self.start, 1)

    def _append_one(self, values: Any) -> Any:
        """Return features with a column of ones for the bias, where there is one."""
        import torch

        return torch.cat([values, values.new_ones(len(values), 1)], 1) if self._has_bias else values

    def _compute_logs(self, heads: Any, count: int, features: Any) -> Any:
        """Return the log-probabilities of heads, (heads, classes, inputs)."""
        import torch

        # Classes are not the last axis: a softmax over many short rows is twenty times slower.
        return torch.log_softmax((heads @ features.T).view(count, self.classes, -1), 1)

    def _compute_losses(self, heads: Any, count: int) -> Any:
        """Return each head's average loss on the training inputs that all are compared on."""
        features, labels = self._compared
        size = max(1, _LOGITS_TOGETHER // len(heads))
        total = 0.0
        for some, own in zip(features.split(size), labels.split(size), strict=True):
            logs = self._compute_logs(heads, count, some)
            total = total - logs.gather(1, own.expand(count, 1, -1)).sum((1, 2))
        return total / len(labels)

    def predict(self, row: Any) -> Any:
        return self.source.features(row)[1].detach()

    def run(self, row: Any, targets: Any) -> Found:
        import torch

        features, _ = self.source.features(row)
        point = self._append_one(features.detach().to(self.start))[0]
        block = max(1, _WEIGHTS_TOGETHER // self.start.numel())
        parts = [self._search_block(point, some) for some in targets.to(point.device).split(block)]
        return Found(*(torch.cat(each) for each in zip(*parts, strict=True)))

    def _search_block(self, point: Any, targets: Any) -> tuple[Any, Any]:
        """Search some target classes; return logits (models, classes) and excess losses (models,)."""
        import torch

        count, classes, plan = len(targets), self.classes, self.plan
        heads = self.start.repeat(count, 1)
        optimizer = plan.make_optimizer([heads])
        found, excess = [], []
        for step in range(plan.steps):
            features, labels = self.minibatches.at(step)
            errors = self._compute_logs(heads, count, features).exp_()
            _subtract_one(errors, labels.expand(count, 1, -1))
            gradient = errors.view(-1, len(labels)) @ features
            gradient *= plan.find_penalty(step) / len(labels)
            own = torch.softmax((heads @ point).view(count, classes), 1)
            _subtract_one(own, targets[:, None])
            heads.grad = gradient.addr_(own.view(-1), point)
            plan.advance(optimizer, step)
            if plan.keeps(step):
                found.append((heads @ point).view(count, classes))
                excess.append(self._compute_losses(heads, count) - self._reference)
        return torch.stack(found, 1).flatten(0, 1), torch.stack(excess, 1).flatten()

    def describe(self) -> list[Any]:
        return [self.source.model, self.minibatches.inputs, self.minibatches.targets]


def _subtract_one(probabilities: Any, classes: Any) -> None:
    """Subtract one from the probabilities of classes, (heads, 1, ...): the gradient of the loss in logits."""
    probabilities.scatter_add_(1, classes, probabilities.new_full((), -1.0).expand(classes.shape))
