"""Deployed surveys: a collector of LDP reports, or two aggregators that verify sums.

A questionnaire makes the terms of either, and the page that people answer. `collector` and `client`
are the roles of LDP reports under `terms`. `aggregators` has those of verified sums, whose clients
send their reports by HTTPS (`upload`, `upload_client`).
"""
