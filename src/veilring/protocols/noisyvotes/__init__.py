"""Noisy votes: r-N and k-N classification among parties, without a trusted owner.

Each party counts its own rows near the queries and adds its share of the noise; a secure sum adds
them up. Nobody has all rows, or all noise. `algorithm` contains pure functions; the classifier is
that of the family `radius`, and the sums are those of `ring`.
"""
