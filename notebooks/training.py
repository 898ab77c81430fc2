# %% [markdown]
# # Training: what the noise does to a loss
#
# A design has an error that is certified; a user has a loss. Fifteen Florentine families train
# logistic regression by decentralised SGD, with the same data, batches and white noise under every
# mechanism, at the same privacy against an eavesdropper on all links.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import noisedesign as nd
import noisedesign_lab as lab
from noisedesign.files.picture_looks import looks_of
from noisedesign_lab.datasets import Examples
from noisedesign_lab.training.losses import Logistic
from noisedesign_lab.training.partition import iid

graph = nx.florentine_families_graph()
W = nd.mixing_matrix(graph)

# %% [markdown]
# **Data** of two classes, 900 examples to train on and 2000 to test with, dealt to the families at
# random for every seed.

# %%
rng = np.random.default_rng(0)
features = rng.standard_normal((2900, 10))
labels = np.sign(features @ np.linspace(-1, 1, 10) + 0.5 * rng.standard_normal(2900))
train = Examples(features=features[:900], targets=labels[:900])
test = Examples(features=features[900:], targets=labels[900:])

# %% [markdown]
# **The task**: gradients clipped to norm 1, five epochs of six batches, and mechanisms that
# correlate noise over nowhere, steps, nodes, and both. Budgets are of single examples, δ = 1e-6.

# %%
task = lab.TrainingTask(
    loss=Logistic(features=10),
    examples=train,
    test=test,
    partition=iid(900, len(graph)),
    mixing=W,
    participation=nd.participation.FixedEpoch(epochs=5, separation=6),
    mechanisms=["none", "ldp", "whisper", "edge-local", "mafalda", "kronecker"],
    epsilons=[1.0, 2.0, 4.0, 8.0, 16.0],
    step_sizes=1.0,
    seeds=20,
    record=range(0, 31, 2),
)
found = lab.train(task)
found

# %% [markdown]
# **Loss against epsilon**, after the last step: means over twenty seeds, with intervals of two
# standard errors. At equal privacy less error in the design is less loss.

# %%
last = max(row["step"] for row in found.rows)
at_end = [row for row in found.rows if row["step"] == last]


def mean_and_error(rows):
    losses = np.array([row["test_loss"] for row in rows])
    return losses.mean(), losses.std(ddof=1) / len(losses) ** 0.5


figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
noiseless, _ = mean_and_error([row for row in at_end if row["mechanism"] == "none"])
looks = looks_of(task.mechanisms)  # each has one colour in all pictures
axes.axhline(noiseless, **looks["none"] | {"marker": ""}, linewidth=1, label="none")
for mechanism in task.mechanisms[1:]:
    points = [
        mean_and_error(
            [r for r in at_end if r["mechanism"] == mechanism and r["epsilon"] == epsilon]
        )
        for epsilon in task.epsilons
    ]
    means, errors = np.transpose(points)
    axes.errorbar(task.epsilons, means, yerr=2 * errors, label=mechanism, **looks[mechanism])
axes.set_xscale("log")
axes.set_yscale("log")
axes.set_xticks(task.epsilons, [f"{epsilon:g}" for epsilon in task.epsilons])
axes.set_yticks([0.25, 0.5, 1, 2], ["0.25", "0.5", "1", "2"])
axes.minorticks_off()
axes.set_xlabel("epsilon")
axes.set_ylabel("test loss, mean over nodes")
figure.legend(loc="outside right upper")
axes.grid(visible=True)

# %% [markdown]
# **Over the steps**, at ε = 4: the test loss, and how far the families' models are from their mean.
# Independent noise piles up in both.

# %%
figure, both = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for mechanism in task.mechanisms:
    rows = [r for r in found.rows if r["mechanism"] == mechanism and r["epsilon"] in (None, 4.0)]
    steps = sorted({row["step"] for row in rows})
    for axes, column in zip(both, ("test_loss", "consensus_distance"), strict=True):
        means = [np.mean([row[column] for row in rows if row["step"] == step]) for step in steps]
        axes.plot(steps, means, label=mechanism, **looks[mechanism] | {"marker": ""})
        axes.set_xlabel("step")
        axes.set_ylabel(column.replace("_", " "))
handles, names = both[0].get_legend_handles_labels()
figure.legend(handles, names, loc="outside lower center", ncols=6)
both[0].set_ylim(bottom=0)
plt.show()

# %% [markdown]
# **The price in words**: by which factor a mechanism's epsilon may be smaller than that of
# independent noise for the same loss, read off the curves.

# %%
epsilons = np.array(task.epsilons)
curves = {
    mechanism: np.array(
        [
            mean_and_error(
                [r for r in at_end if r["mechanism"] == mechanism and r["epsilon"] == epsilon]
            )[0]
            for epsilon in epsilons
        ]
    )
    for mechanism in task.mechanisms[1:]
}
wanted = curves["ldp"][2]
for mechanism, losses in curves.items():
    needed = np.exp(np.interp(-np.log(wanted), -np.log(losses), np.log(epsilons)))
    print(f"{mechanism:<11} loss {wanted:.3f} at epsilon {needed:.2f}")
