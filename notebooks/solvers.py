# %% [markdown]
# # Solvers compared, and judged by one certificate
#
# A solver's own word is never used: what it returns is made feasible, and a bound that is
# computed from matrices alone says how far it can be from the optimum. So any solver may be used,
# and all can be compared. Times depend on the machine: [Benchmarks](../benchmarks.md) has them;
# here is what does not.

# %%
import matplotlib.pyplot as plt

import noisedesign as nd
from noisedesign.pages.plot import draw_convergence

names = ("whisper/florentine", "whisper/ring-20", "objectives/florentine-momentum")
problems = [nd.load(f"{name}.toml") for name in names]

# %% [markdown]
# **The same problems, three backends.** Our Newton method on the dual, and two conic solvers on a
# model in matrix inequalities: a first-order and an interior-point method.

# %%
found = nd.compare(problems, backends=("native", "scs", "clarabel"), time_limit=60)
for row in found.rows:
    certified = "certified to 1e-06" if row["solved"] and row["gap"] <= 1e-6 else row["status"]
    print(f"{row['name']:<24} {row['backend']:<9} {row['objective']:.5f}   {certified}")

# %% [markdown]
# **What the solvers left to repair.** The DIMACS errors of an answer are computed from the model
# and not by the solver: infeasibility, negative eigenvalues, and what is left of the gap. SCS
# leaves more of all of them, and the certificate still holds.

# %%
for row in found.rows:
    if row["err1"] is not None:
        errors = "  ".join(f"{abs(row[f'err{place}']):.0e}" for place in range(1, 7))
        print(f"{row['name']:<24} {row['backend']:<9} {errors}")

# %% [markdown]
# **How the native solver converges**: its certified gap after each eigendecomposition, in space
# and over time.

# %%
in_space = nd.solve(problems[0], gap=1e-9).design
in_time = nd.solve(nd.load("prefix/prefix-8x16.toml"), gap=1e-9).design
figure, axes = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for place, design in zip(axes, (in_space, in_time), strict=True):
    draw_convergence(place, design)
    place.set_title(design.problem.name)

# %% [markdown]
# **What nobody certifies.** A Kronecker product of noise over nodes and over steps is not convex:
# what a search ends with is the best that was found, with a bound on noise of any shape.

# %%
searched = nd.solve(nd.load("space-time/ring-8-kronecker.toml"))
print(searched.status)
print(f"at most {100 * searched.design.gap:.0f} % above the best noise of any shape")

# %% [markdown]
# **A wrong answer is noticed.** Ten per cent less noise is below the bound of the certificate,
# and its sensitivity is above the budget: `verify` computes both again, from the arrays of a
# file.

# %%
from dataclasses import replace

from noisedesign.forms import Noise

less = replace(in_space, noise=Noise.of_covariance(0.9 * in_space.covariance))
verification = nd.verify(nd.load(nd.save(less, "less.npz")))
print(verification.ok)
verification
