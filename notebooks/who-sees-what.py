# %% [markdown]
# # Who sees what: one algorithm, seven threat models
#
# "(ε, δ)-private" is half a sentence: the other half says against whom. Fifteen Florentine
# families run ten steps of DP-D-SGD; this notebook accounts for what each kind of observer learns
# of each family, and shows how the same noise is worth much or nothing.

# %%
# %matplotlib inline
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.pages.plot import account_figure
from noisedesign.privacy import views

graph = nx.florentine_families_graph()
W = nd.mixing_matrix(graph, weights="metropolis-hastings")
families = tuple(graph)
steps, multiplier = 10, 4.0

# %% [markdown]
# **The algorithm.** Each family adds independent Gaussian noise, four times the clip, to its
# gradient and sends its model to its neighbours; a record takes part in every step.

# %%
algorithm = views.dp_d_sgd(mixing=W, horizon=steps).named("dp-d-sgd", nodes=families)
algorithm

# %% [markdown]
# **An eavesdropper** who reads every message learns the same of every family: this is local
# differential privacy, and μ is the root of the steps times the sensitivity of one, 2 over 4.

# %%
common = {
    "participation": nd.participation.every_step(steps),
    "noise_multiplier": multiplier,
    "adjacency": "replace",
    "delta": 1e-6,
}
everything = nd.account(algorithm, nd.observers.ldp(), **common)
print({f"{exposure.mu:.6f}" for exposure in everything}, f"{2 / multiplier * np.sqrt(steps):.6f}")

# %% [markdown]
# **An honest-but-curious node** sees what its neighbours send it, and knows its own noise. Of a
# neighbour it learns as much as the eavesdropper; of families further away less is left after
# mixing. This is pairwise network differential privacy.

# %%
medici = families.index("Medici")
pairwise = nd.account(algorithm, nd.observers.pndp(nodes=(medici,)), **common)
account_figure(pairwise, title="What the Medici learn of the others")

# %% [markdown]
# **Every observer beside the others**: the worst and the median μ over the victims. Secure
# aggregation hides which neighbour sent what; two nodes who share what they saw learn more than
# one; and whoever knows the seed of all noise learns everything, which no finite μ describes.

# %%
ridolfi = families.index("Ridolfi")
observers = {
    "eavesdropper": nd.observers.ldp(),
    "tap on the Medici's links": nd.observers.tap(nodes=(medici,)),
    "Medici": nd.observers.pndp(nodes=(medici,)),
    "Medici and Ridolfi": nd.observers.pndp(nodes=(medici, ridolfi)),
    "Medici, secure aggregation": nd.observers.secure_sum(nodes=(medici,)),
    "knows the seed of all noise": nd.observers.shared_seed(),
}
found = {name: nd.account(algorithm, who, **common) for name, who in observers.items()}
for name, exposures in found.items():
    mu = [exposure.mu for exposure in exposures]
    print(f"{name:<28} worst mu {max(mu):8.4f}   median {np.median(mu):8.4f}")

# %% [markdown]
# **Other algorithms before the same observers.** Muffliato mixes in three rounds of gossip a
# step; DECOR adds noise that two neighbours share and that cancels between them; AntiPGD adds at
# every step what takes back the noise of the step before. Noise of another size is another
# comparison: the errors are not equal here.

# %%
algorithms = {
    "DP-D-SGD": algorithm,
    "Muffliato, 3 rounds": views.muffliato(mixing=W, horizon=steps, rounds=3),
    "DECOR": views.decor(mixing=W, horizon=steps, node_variance=1.0, edge_variance=1.0),
    "AntiPGD": views.antipgd(mixing=W, horizon=steps),
}
kinds = {"eavesdropper": nd.observers.ldp(), "Medici": nd.observers.pndp(nodes=(medici,))}
worst = {
    (name, kind): max(exposure.mu for exposure in nd.account(made, who, **common))
    for name, made in algorithms.items()
    for kind, who in kinds.items()
}
figure, axes = plt.subplots(figsize=(7, 2.8), layout="constrained")
places = np.arange(len(algorithms))
for shift, kind in zip((-0.2, 0.2), kinds, strict=True):
    axes.barh(places + shift, [worst[name, kind] for name in algorithms], height=0.38, label=kind)
axes.set_yticks(places, list(algorithms))
axes.set_xlabel("worst mu over the victims")
figure.legend(loc="outside lower center", ncols=2)
axes.invert_yaxis()

# %% [markdown]
# **A design before every observer.** A covariance over nodes, solved for the eavesdropper, whose
# noise is dealt as values or expanded from seeds: who holds what decides what they learn.

# %%
target = nd.PrivacyTarget(epsilon=5.0, delta=1e-6, clip=1.0, steps=steps, adjacency="replace")
edges = nd.SpaceStructure(kind="edge-local")
problem = nd.SpaceProblem(mixing=W, nodes=families, structure=edges, privacy=target)
design = nd.solve(problem).design
print(f"before an eavesdropper: mu {nd.calibrate(problem).mu:.4f}")
held = nd.privacy.mu_to_holders(design)
print(f"before a node of the network, with the seeds it holds: mu {held:.4f}")
