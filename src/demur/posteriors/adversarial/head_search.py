"""Searches last layers that disagree with the deployed one, for all target classes at once."""

from __future__ import annotations

from typing import Any

from demur.posteriors.adversarial.plan import Found, SearchPlan
from demur.posteriors.chains.minibatches import ArrayMinibatches
from demur.posteriors.heads.features import Features
from demur.posteriors.heads.training import check_labels
from demur.posteriors.last_layer import LastLayer

_WEIGHTS_TOGETHER = 1 << 25
"""Weights of the heads searched at a time, at most: 128 MB; gradient and both moments take as much each."""


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
    plan, batch_size, seed
        As for `QUAM`.
    """

    def __init__(
        self, source: LastLayer, training: Features, plan: SearchPlan, batch_size: int, seed: int
    ) -> None:
        import torch

        self.source, self.plan, self.training = source, plan, training
        layer = source.layer
        self.classes: int = layer.out_features
        # Half precision would lose the small differences in loss that decide the weights.
        self.kind = torch.float64 if layer.weight.dtype == torch.float64 else torch.float32
        weight = layer.weight.detach().to(self.kind)
        self._has_bias = layer.bias is not None
        self.start = (
            torch.cat([weight, layer.bias.detach().to(weight)[:, None]], 1) if self._has_bias else weight
        )
        labels = check_labels(training, layer).to(weight.device)
        values = torch.as_tensor(training.values).to(weight)
        self.minibatches = ArrayMinibatches(self._append_one(values), labels, batch_size, seed)
        self._reference = [
            self._compute_logs(self.start, 1, *self.minibatches.at(step))[1].item()
            for step in range(plan.steps + 1)
        ]

    def _append_one(self, values: Any) -> Any:
        """Return features with a column of ones for the bias, where there is one."""
        import torch

        return torch.cat([values, values.new_ones(len(values), 1)], 1) if self._has_bias else values

    def _compute_logs(self, heads: Any, count: int, features: Any, labels: Any) -> tuple[Any, Any]:
        """Return log-probabilities (heads, classes, inputs), and each head's average loss."""
        import torch

        # Classes are not the last axis: a softmax over many short rows is twenty times slower.
        logs = torch.log_softmax((heads @ features.T).view(count, self.classes, -1), 1)
        return logs, -logs.gather(1, labels.expand(count, 1, -1)).mean((1, 2))

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
        found, excess = heads.new_empty(count, plan.steps, classes), heads.new_empty(count, plan.steps)
        for step in range(plan.steps + 1):
            features, labels = self.minibatches.at(step)
            logs, loss = self._compute_logs(heads, count, features, labels)
            logits = (heads @ point).view(count, classes)
            if step:
                found[:, step - 1], excess[:, step - 1] = logits, loss - self._reference[step]
            if step == plan.steps:
                break
            # Probabilities, less one for the label's class.
            errors = logs.exp_().scatter_add_(
                1, labels.expand(count, 1, -1), logs.new_full((1, 1, 1), -1.0).expand(count, 1, len(labels))
            )
            gradient = errors.view(-1, len(labels)) @ features
            gradient *= plan.find_penalty(step) / len(labels)
            own = torch.softmax(logits, 1).scatter_add_(
                1, targets[:, None], logits.new_full((count, 1), -1.0)
            )
            gradient.addr_(own.view(-1), point)
            heads.grad = gradient
            plan.advance(optimizer, step)
        return found.flatten(0, 1), excess.flatten()

    def describe(self) -> list[Any]:
        return [self.source.model, self.minibatches.inputs, self.minibatches.targets]
