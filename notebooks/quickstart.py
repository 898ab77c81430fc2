# %% [markdown]
# # Quickstart: from a graph to a certified noise design
#
# Fifteen Florentine families train a model together. Every family adds noise to its gradients
# before it tells its neighbours. This notebook designs that noise twice, correlated across families
# and correlated over time, proves both designs optimal, and looks at them.

# %%
import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import noisedesign as nd
from noisedesign.pages.plot import draw_comparison, draw_convergence, draw_matrix

graph = nx.florentine_families_graph()
nx.draw_networkx(graph, pos=nx.spring_layout(graph, seed=1), node_color="#aecbfa", font_size=8)

# %% [markdown]
# **The mixing matrix.** After every local step a node replaces its model by a weighted mean of its
# own and its neighbours'. Metropolis-Hastings weights make W symmetric and doubly stochastic.

# %%
W = nd.mixing_matrix(graph, weights="metropolis-hastings")
eigenvalues = np.linalg.eigvalsh(W)
print(f"{W.shape}, spectral gap {1 - np.abs(eigenvalues[:-1]).max():.3f}")

# %% [markdown]
# **The problem.** Among all covariances R of the families' noise that protect each of them equally,
# $[R^{-1}]_{ii} \le \tau$, find the one that leaves the least noise after mixing,
# $\mathrm{tr}(W R W^\top)$. The privacy target is used later, to scale the answer.

# %%
target = nd.PrivacyTarget(epsilon=5.0, delta=1e-5, clip=1.0, steps=100, adjacency="replace")
problem = nd.SpaceProblem(
    mixing=W, budget=1.0, nodes=tuple(graph), name="whisper-florentine", privacy=target
)

# %% [markdown]
# **Solve it.** The status is the verdict of the certificate, not of the solver.

# %%
solution = nd.solve(problem)
design = solution.design
solution

# %% [markdown]
# **The certificate.** The exported matrix keeps its budget, and nothing that keeps it has an error
# below the lower bound.

# %%
certificate = design.certificate
certificate

# %% [markdown]
# **What it looks like.** Families that mix with each other mostly get noise of opposite sign
# (blue), which cancels in their mean.

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.5), constrained_layout=True)
draw_matrix(axes[0], design)
draw_convergence(axes[1], design)

# %% [markdown]
# **Against published mechanisms**, at equal privacy. The noise of a trusted server (CDP) is shown
# for scale: it protects only the average, so the bound is not about it.

# %%
others = [nd.baseline(problem, name, dual=design) for name in nd.baseline_names(problem)]
relative = {d.provenance.method: d.objective / others[0].objective for d in [*others, design]}
figure, axes = plt.subplots(figsize=(7, 2.8))
draw_comparison(axes, [*others, design])

# %% [markdown]
# **From budgets to (epsilon, delta).** A record takes part in each of the 100 steps. Gradients
# are clipped to norm 1, so replacing one record by another moves a step by up to 2.

# %%
calibration = nd.calibrate(problem)
print(f"noise N(0, {calibration.noise_stddev:.3f}^2 R) at every step")
calibration

# %% [markdown]
# **Simulate it.** D-SGD with noise drawn from the exported matrix: does the error come out as
# predicted, and can an eavesdropper tell neighbouring gradients apart any better than claimed?

# %%
simulation = nd.simulate(design, runs=2000, seed=0)
simulation

# %% [markdown]
# **Save, verify from the file alone, and export** to the trainer of Whisper D-SGD.

# %%
path = nd.save(design, "florentine.npz")
verification = nd.verify(nd.load(path))
exported = nd.export(design, to="whisper-dsgd", path="florentine-whisper.npz")
print(path, *exported)
verification

# %% [markdown]
# **The same in time.** Each family correlates its own noise over 8 epochs of 16 steps and shares
# nothing with the others; the error is that of all iterates of all families.

# %%
rounds = nd.participation.FixedEpoch(epochs=8, separation=16)
in_time = nd.TimeProblem.decentralized(
    mixing=W, participation=rounds, nodes=tuple(graph), name="mafalda-florentine-8x16"
)
time_design = nd.solve(in_time).design
names = [name for name in nd.baseline_names(in_time) if name != "antipgd"]
time_others = [nd.baseline(in_time, name, dual=time_design) for name in names]
figure, axes = plt.subplots(1, 2, figsize=(12, 4.2), constrained_layout=True)
draw_matrix(axes[0], time_design)
draw_comparison(axes[1], [*time_others, time_design])
