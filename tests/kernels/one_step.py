"""A step of training on two pairs."""

from duplexmt.data.batch import Example, collate
from duplexmt.data.tokenizer import StreamTokens
from duplexmt.training.module import GridTranslation


def losses(model, device):
    """Its loss and, as numbers, its gradients."""
    task = GridTranslation(model.train(), StreamTokens(end=0, seed=1), lam=0.1, learning_rate=1e-3, warmup_steps=0)
    batch = collate([Example((5, 6, 7, 0), (1, 8, 9, 0)), Example((10, 0), (1, 11, 12, 13, 0))]).to(device)
    found, _ = task.losses(batch)
    loss = found.total(found.lm_weights, found.emit_weights)
    loss.backward()
    return [loss.item(), *(weight.grad.tolist() for weight in model.parameters() if weight.grad is not None)]
