"""As DECOR's own: V before the first step, and a step more than --num-iter. Gradients are zero, so
that what is kept is the noise, shape (steps, n, d)."""

import argparse
from pathlib import Path

import misc
import numpy as np
import torch
from utils import topology
from worker import Worker

parser = argparse.ArgumentParser()
parser.add_argument("--num-nodes", type=int)
parser.add_argument("--num-iter", type=int)
parser.add_argument("--topology-name")
parser.add_argument("--method")
parser.add_argument("--sigma", type=float)
parser.add_argument("--sigma-cor", type=float)
parser.add_argument("--epsilon", type=float)
parser.add_argument("--delta", type=float)
parser.add_argument("--gradient-clip", type=float)
parser.add_argument("--privacy")
parser.add_argument("--batch-size", type=int)
parser.add_argument("--seed", type=int, default=-1)
parser.add_argument("--dimension", type=int)
parser.add_argument("--examples", type=int)
args = parser.parse_args()

torch.manual_seed(1)
if args.seed >= 0:
    torch.manual_seed(args.seed)
n, d = args.num_nodes, args.dimension
data = torch.utils.data.TensorDataset(torch.zeros(args.examples, d))
loaders = [
    torch.utils.data.DataLoader(data, batch_size=args.batch_size, shuffle=True) for _ in range(n)
]
workers = [
    Worker(
        train_data_loader=loader,
        batch_size=args.batch_size,
        sigma=args.sigma,
        gradient_clip=args.gradient_clip,
        privacy=args.privacy,
    )
    for loader in loaders
]
W = torch.tensor(topology.topology_names[args.topology_name](n), dtype=torch.float)
V = torch.randn(n, n, d).mul_(args.sigma_cor)
V = misc.to_antisymmetric(V, W, "cpu")
print(misc.list_neighbors(V, 0))
kept, sizes, step = [], [], 0
while step <= args.num_iter:
    found = [workers[i].grad_descent(V[i]) for i in range(n)]
    kept.append(torch.stack([noise for noise, _ in found]).numpy())
    sizes.append([size for _, size in found])
    step += 1
np.save(Path("noise.npy"), np.array(kept))
np.save(Path("sizes.npy"), np.array(sizes))
