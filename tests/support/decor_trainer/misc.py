"""As DECOR's own: V is drawn once, made antisymmetric, and multiplied by W."""

import torch


def to_antisymmetric(tensor, W, device):
    made = torch.tril(tensor.permute(2, 0, 1), -1)
    return (made - made.transpose(1, 2)).permute(1, 2, 0) * W[:, :, None].to(device)


def list_neighbors(tensor, idx):
    return [i for i in range(len(tensor[idx])) if tensor[idx, i].any()]
