# %% [markdown]
# # Structures: who can draw the noise, and what that costs
#
# The best noise correlates every node with every other, or every step with all before it.
# Somebody has to draw it: a dealer, or nodes that remember a whole run. This notebook gives the
# noise shapes that nodes can draw by themselves, and then correlates it over nodes and steps at
# once.

# %%
import matplotlib.pyplot as plt
import networkx as nx

import noisedesign as nd
from noisedesign.pages.plot import draw_matrix

graph = nx.florentine_families_graph()
W = nd.mixing_matrix(graph)
common = {"mixing": W, "nodes": tuple(graph)}

# %% [markdown]
# **In space: seeds that some nodes share.** Edge-local noise is a sum of noise of each node's own
# and of noise that two neighbours draw from a seed that they share, with weights that are
# optimised. `relative_to_unrestricted` is the error over a proved bound on noise of any shape.

# %%
structures = {
    "any covariance": nd.SpaceStructure(kind="dense"),
    "two hops": nd.SpaceStructure(kind="hops", hops=2),
    "edge-local": nd.SpaceStructure(kind="edge-local"),
    "neighbourhood": nd.SpaceStructure(kind="neighbourhood"),
    "DECOR": nd.SpaceStructure(kind="decor"),
    "independent": nd.SpaceStructure(kind="independent"),
}
in_space = {
    name: nd.solve(nd.SpaceProblem(**common, structure=structure)).design
    for name, structure in structures.items()
}
for name, design in in_space.items():
    cost = design.certificate.relative_to_unrestricted
    print(f"{name:<15} {design.objective:.4f}   {'' if cost is None else f'{cost:.4f}'}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for place, name in zip(axes, ("any covariance", "edge-local"), strict=True):
    draw_matrix(place, in_space[name])
    place.set_title(f"R, {name}")

# %% [markdown]
# **In time: few numbers to remember.** With C in p bands a node keeps its noise of p - 1 steps;
# with few buffers, two vectors. Banded designs are certified, the others are the best of a
# search, with a bound on what the shape costs.

# %%
rounds = nd.participation.FixedEpoch(epochs=4, separation=16)
shapes = {
    "any C": nd.TimeStructure(kind="dense"),
    "8 bands": nd.TimeStructure(kind="banded", bands=8),
    "3 bands": nd.TimeStructure(kind="banded", bands=3),
    "Toeplitz": nd.TimeStructure(kind="toeplitz"),
    "2 buffers (BLT)": nd.TimeStructure(kind="blt", buffers=2),
}
in_time = {}
for name, structure in shapes.items():
    solution = nd.solve(nd.TimeProblem.prefix(participation=rounds, structure=structure))
    in_time[name] = solution.design
    cost = solution.design.certificate.relative_to_unrestricted
    shown = "" if cost is None else f"{cost:.4f}"
    print(f"{name:<16} {solution.design.objective:9.3f}   {shown:<7} {solution.status}")

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
for place, name in zip(axes, ("any C", "3 bands"), strict=True):
    draw_matrix(place, in_time[name])
    place.set_title(f"inverse of C, {name}")

# %% [markdown]
# **In space and time at once.** Noise correlated on one side only, as published; a Kronecker
# product of C and R, the best that a search finds; and noise of any shape, certified. The error
# of all iterates at equal privacy, over that of independent noise.

# %%
ring = nd.mixing_matrix(nx.cycle_graph(8))
product = nd.SpaceTimeProblem(mixing=ring, participation=nd.participation.single(8))
anything = nd.SpaceTimeProblem(mixing=ring, participation=nd.participation.single(8), joint="full")
joint = nd.solve(product).design
designs = {
    "over nodes, one step (Whisper)": nd.baseline(product, "whisper-one-step", dual=joint),
    "over nodes, all steps": nd.baseline(product, "whisper", dual=joint),
    "over steps (Mafalda)": nd.baseline(product, "mafalda", dual=joint),
    "over both, Kronecker": joint,
    "over both, any shape": nd.solve(anything).design,
}
relative = {name: design.relative_to_ldp for name, design in designs.items()}
figure, axes = plt.subplots(figsize=(7, 2.6), layout="constrained")
bars = axes.barh(list(relative), list(relative.values()))
axes.bar_label(bars, fmt="%.3f", padding=3)
axes.set_xlim(0, 1)
axes.set_xlabel("error over that of independent noise")
axes.invert_yaxis()

# %% [markdown]
# **Neighbours only, over steps too.** Edge-local seeds in space and few bands in time are noise
# that nodes draw by themselves, in bounded memory: both structures at once.

# %%
by_themselves = nd.SpaceTimeProblem(
    mixing=ring,
    participation=nd.participation.single(8),
    space=nd.SpaceStructure(kind="edge-local"),
    time=nd.TimeStructure(kind="banded", bands=3),
    privacy=nd.PrivacyTarget(epsilon=5.0, delta=1e-6, clip=1.0, adjacency="replace"),
)
solution = nd.solve(by_themselves)
print(f"{solution.status}: {solution.design.relative_to_ldp:.3f} of independent noise")
plan = solution.design.node_plan(0)
print(f"node 0 draws from {len(plan.streams)} streams over {plan.horizon} steps")
