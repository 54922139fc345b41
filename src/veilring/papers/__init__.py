"""The figures of the papers, measured again: each with its claims, and whether they hold.

`claims` is how a claim is tested and `evidence` what it is tested on, `figure` what a figure is and
how it is measured, `reproduce` writes what comes of it and knows every figure by its name. Each
paper has a module with a table of its figures; `baselines` are classifiers that only figures need.
"""
