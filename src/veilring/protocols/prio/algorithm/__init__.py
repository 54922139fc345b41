"""The cryptography of verified sums: pure functions over many reports, without I/O or clock.

- `drafts`: the constants of each draft of the standard.
- `fields`: arithmetic on arrays of field elements, and their bytes.
- `polynomials`: number-theoretic transforms, and polynomials at a point.
- `keccak`: TurboSHAKE128 of many short messages.
- `xof`: bytes and field elements expanded from seeds.
- `circuits`: valid measurements, as arithmetic circuits.
- `proofs`: fully linear proofs that an encoded measurement is valid.
- `prio3`: the whole scheme, from measurements to totals.

Source: Barnes, Cook, Patton and Schoppmann, "Verifiable Distributed Aggregation Functions",
`draft-irtf-cfrg-vdaf-08` (2023). Sections are cited by the draft's own names.

Field elements have the shape (words, length, reports), so that each step computes on all reports of
a block at once. Rows of bytes have the shape (reports, bytes). Shares, seeds and keys are secret.
"""
