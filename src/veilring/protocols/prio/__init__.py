"""Verified sums: each client splits its report for two aggregators and proves that it is valid.

Source: Corrigan-Gibbs and Boneh, "Prio: private, robust, and scalable computation of aggregate
statistics", NSDI 2017, as standardised in the IRTF draft on verifiable distributed aggregation
functions (VDAF-08) and in the IETF draft of their protocol (DAP-09).

`algorithm` contains the cryptography of reports. `task` is what clients report, and to which
aggregators. `dap`, `hpke` and `sealing` are the messages of an upload and their encryption, and
`uploads` is the leader's check of them.
"""
