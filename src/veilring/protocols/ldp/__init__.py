"""Local differential privacy: many clients, one untrusted aggregator.

Source: Yilmaz, Al-Rubaie and Chang, "Locally differentially private naive Bayes classification",
2019. Each client sends one perturbed report; the aggregator estimates frequencies and means, and
learns a naive Bayes classifier.

The mathematics is in `algorithm`. A long-lived collection uses a `collector` with a `store`, and an
`outbox` at each survey client; `parquet` exports reports.
"""
