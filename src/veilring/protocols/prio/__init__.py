"""Verified sums: clients share each report between two aggregators, which prove it valid first.

Sources: Corrigan-Gibbs and Boneh, "Prio: private, robust, and scalable computation of aggregate
statistics", NSDI 2017; the IRTF's draft VDAF-08 (Prio3); the IETF's draft DAP-09 (the upload).
"""
