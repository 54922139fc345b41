"""Reproduction of the papers' figures, with tests of their claims.

`claims` tests claims, `evidence` extracts their evidence, `figure` defines a figure and its
measurement, and `reproduce` writes the results and knows every figure by its name. Each paper has a
module with a table of its figures; `baselines` are classifiers used only by figures.
"""
