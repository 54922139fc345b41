"""Verified sums: each client splits its report for two aggregators and proves that it is valid.

Source: Corrigan-Gibbs and Boneh, "Prio: private, robust, and scalable computation of aggregate
statistics", NSDI 2017, as standardised in the IRTF draft on verifiable distributed aggregation
functions. `algorithm` contains the cryptography.
"""
