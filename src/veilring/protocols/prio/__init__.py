"""Verified sums: clients share each report between two aggregators, which prove it valid first.

Sources: Corrigan-Gibbs and Boneh, "Prio: private, robust, and scalable computation of aggregate
statistics", NSDI 2017; draft-irtf-cfrg-vdaf-08 (Prio3); draft-ietf-ppm-dap-09 (the upload).
"""
