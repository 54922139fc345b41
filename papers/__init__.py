"""Reproductions of the papers' figures, with statistical tests of their claims.

`claims` tests claims on the numbers from `evidence`, `figure` defines and measures figures, and
`reproduce` lists all figures by name and writes the results. Each paper has a module with a table
of its figures; `baselines` has classifiers that only figures need.
"""
