# %% [markdown]
# # Deployment: from a certified design to noise that nodes draw
#
# A design is a matrix; a run needs noise. Five nodes on a ring get a file each, agree on the
# seeds that they share, draw their noise, train, and lose a partner. Nobody deals noise, and no
# file holds a secret.

# %%
# %matplotlib inline
from pathlib import Path

import numpy as np

import noisedesign as nd
from noisedesign.noise import Agreement, Plan, Secret, noise
from noisedesign.pages.plot import drop_out_figure
from noisedesign.tasks.deploy import deploy, figure_of, rehearse

nodes, steps, batch = 5, 12, 20
ring = nd.build_graph("ring", nodes=nodes)

# %% [markdown]
# **A design that nodes can draw by themselves**: noise of each node's own, and noise that two
# neighbours draw from a seed that only they have.

# %%
problem = nd.SpaceProblem.from_graph(
    ring,
    structure=nd.SpaceStructure(kind="edge-local"),
    participation=nd.participation.FixedEpoch(epochs=2, separation=steps // 2),
    privacy=nd.PrivacyTarget(epsilon=4.0, delta=1e-5, clip=1.0, adjacency="replace"),
    name="ring-of-five",
)
design = nd.solve(problem).design
nd.calibrate(problem)

# %% [markdown]
# **A file a node.** It has the node's part of the noise, its row of W, horizon, clip and
# participation, and what all of it protects.

# %%
files = deploy(design, "nodes", batch_size=batch)
for file in files:
    print(file.path.name, [stream.name for stream in file.plan.streams])

# %% [markdown]
# **Seeds without a dealer.** Nodes exchange keys made for this run, pass messages until all have
# finished, and hold the same seed exactly where the plan says that they share one. Who only reads
# the messages learns no seed.

# %%
plans = [Plan.load(file.path) for file in files]
agreements = [Agreement(plan) for plan in plans]
letters = [
    (sender, receiver, text)
    for sender, agreement in enumerate(agreements)
    for receiver, text in agreement.start()
]
sent = 0
while letters:
    sender, receiver, text = letters.pop(0)
    sent += 1
    if not agreements[receiver].finished:
        answers = agreements[receiver].take(text)
        letters += [(receiver, to, answer) for to, answer in answers]
seeds = [agreement.secrets() for agreement in agreements]
print(f"{sent} messages, all finished: {all(agreement.finished for agreement in agreements)}")

# %% [markdown]
# **Noise, step by step.** The mean of all noise is smaller than that of independent noise would
# be, as what neighbours share cancels in it.

# %%
size = 20_000
own = [Secret.new() for _ in range(nodes)]


def source_of(node, **options):
    given = {"secret": own[node], "seeds": seeds[node], "batch_size": batch, "record": False}
    return noise(plans[node], **given | options)


drawn = np.stack([source_of(node).step(0, size) for node in range(nodes)])
each, mean = drawn.std(), drawn.mean(axis=0).std()
print(f"a node {each:.2f}, their mean {mean:.2f}, of independent noise {each / nodes**0.5:.2f}")

# %% [markdown]
# **What is refused.** A step past the horizon, another clip or another batch size than designed
# for: an error, and no noise.

# %%
for attempt in (
    lambda: source_of(0).step(steps, size),
    lambda: source_of(0, clip=2.0),
    lambda: source_of(0, batch_size=2 * batch),
):
    try:
        attempt()
    except nd.InputError as error:
        print(error)

# %% [markdown]
# **A rehearsal** trains logistic regression with these files on this machine, a process a node,
# over sockets. A small model on little data has a lot of noise: this is about the protocol, not
# about the loss.

# %%
rng = np.random.default_rng(0)
features = rng.standard_normal((nodes * batch * steps // 2, 2)) / 2
labels = (features.sum(axis=1) > 0).astype(float)
np.savez("data.npz", features=features, labels=labels)
rehearsal = rehearse("nodes", "data.npz", step_size=4.0)
figure_of(rehearsal)

# %% [markdown]
# **When a partner drops out**, the noise that it shared no longer cancels. The average gets
# worse, and those left stay protected as designed.

# %%
gone = nd.privacy.every_drop_out(design)
drop_out_figure(gone, title="One node of five is gone")

# %% [markdown]
# **Verified from the file alone**, by the arrays in it and no solver.

# %%
path = nd.save(design, Path("ring-of-five.npz"))
nd.verify(nd.load(path))
