"""As DECOR's own: own noise, and that of the edges, go to the mean of clipped gradients."""

import torch


class Worker:
    def __init__(self, train_data_loader, batch_size, sigma, gradient_clip, privacy):
        self.train_data_loader, self.batch_size = train_data_loader, batch_size
        self.train_iterator = iter(train_data_loader)
        self.sigma, self.gradient_clip, self.privacy = sigma, gradient_clip, privacy

    def sample_train_batch(self):
        try:
            return next(self.train_iterator)
        except StopIteration:
            self.train_iterator = iter(self.train_data_loader)
            return next(self.train_iterator)

    def grad_descent(self, noises):
        """The noisy gradient: one row an example, or their mean, clipped."""
        (rows,) = self.sample_train_batch()
        rows = rows if self.privacy == "example" else rows.mean(dim=0, keepdim=True)
        rows = rows / torch.clamp(rows.norm(dim=1, keepdim=True) / self.gradient_clip, min=1)
        gradient = rows.mean(dim=0)
        gradient = gradient + torch.randn(gradient.shape) * self.sigma
        return gradient + torch.sum(noises, dim=0), len(rows)
