"""Fully linear proofs that an encoded measurement is valid (section "A General-Purpose FLP").

The prover interpolates each wire of the gadget over its calls, with one random value in front, and
sends the polynomial that the gadget makes of the wires' polynomials. The verifiers read the
gadget's outputs from that polynomial, evaluate the circuit with them, and compare both sides of the
gadget at a random point. All they compute is linear, so shares of measurement and proof give shares
of the answers.

The circuits here have one gadget each. Several proofs of one measurement stand side by side as
further reports: see `prio3`.
"""

from typing import Final

import numpy as np

from veilring.arrays import Bools
from veilring.protocols.prio.algorithm.circuits import Circuit
from veilring.protocols.prio.algorithm.fields import Elements
from veilring.protocols.prio.algorithm.polynomials import (
    between,
    evaluate,
    interpolate,
    lagrange,
    next_power_of_two,
    powers_of,
    sum_values,
)

QUERY_RAND_LENGTH: Final = 1
GADGET_DEGREE: Final = 2


def _points(circuit: Circuit) -> int:
    """Return P, the number of points of a wire's polynomial: its calls, and one in front."""
    return next_power_of_two(1 + circuit.calls)


def proof_length(circuit: Circuit) -> int:
    """Return the number of elements of a proof: a seed for each wire, and a polynomial."""
    return circuit.arity + GADGET_DEGREE * (_points(circuit) - 1) + 1


def verifier_length(circuit: Circuit) -> int:
    """Return the number of elements of the answer to a query."""
    return 1 + circuit.arity + 1


def prove(circuit: Circuit, x: Elements, seeds: Elements, r: Elements) -> Elements:
    """Return proofs of the shape (words, proof_length, reports).

    Args:
        x: Encoded measurements, shape (words, length, reports).
        seeds: The prover's randomness, shape (words, arity, reports).
        r: The joint randomness, shape (words, joint_length, reports).
    """
    field, points = circuit.field, _points(circuit)
    values = field.zeros(points, *seeds.shape[1:])
    values[:, 0] = seeds
    values[:, 1 : 1 + circuit.calls] = circuit.wires(x, r, 1)
    # A polynomial of twice the degree takes twice the points: those of the wires, and as many more.
    outputs = [circuit.gadget(values), circuit.gadget(between(field, values))]
    denser = np.stack(outputs, axis=2).reshape(field.words, GADGET_DEGREE * points, -1)
    coefficients = interpolate(field, denser)
    return np.concatenate([seeds, coefficients[:, : GADGET_DEGREE * (points - 1) + 1]], axis=1)


def query(
    circuit: Circuit, x: Elements, proof: Elements, t: Elements, r: Elements, *, shares: int
) -> tuple[Elements, Bools]:
    """Return shares of the answers to a query.

    Args:
        x: Shares of encoded measurements, shape (words, length, reports).
        proof: Shares of proofs, shape (words, proof_length, reports).
        t: The random point of each report, shape (words, 1, reports).
        r: The joint randomness, shape (words, joint_length, reports).
        shares: The number of shares.

    Returns:
        The answers, shape (words, verifier_length, reports), and whether each may be revealed,
        shape (reports,): at a point that is a root of unity, it would be an output of the gadget.
    """
    field, points = circuit.field, _points(circuit)
    seeds, coefficients = proof[:, : circuit.arity], proof[:, circuit.arity :]
    v = circuit.output(_outputs(circuit, coefficients, r), x, r, shares)
    powers = powers_of(field, t, points)
    basis = lagrange(field, powers)
    wires = circuit.wires_at(basis[:, 1 : 1 + circuit.calls], x, r, shares)
    wires = field.add(wires, field.mul(basis[:, :1], seeds))
    top = field.mul(powers[:, -1:], t)
    low, high = coefficients[:, :points], coefficients[:, points:]
    above = _at(circuit, powers[:, : points - 1], high)
    gadget = field.add(_at(circuit, powers, low), field.mul(top, above))
    answers = np.concatenate([v[:, None], wires, gadget], axis=1)
    return answers, (top[:, 0] != field.elements([1])).any(axis=0)


def _outputs(circuit: Circuit, coefficients: Elements, r: Elements) -> Elements:
    """Return the weighted sum of the gadget's outputs, shape (words, reports)."""
    field, weights = circuit.field, circuit.weights(r)
    if weights is None:
        return sum_values(field, coefficients, _points(circuit), circuit.calls)
    outputs = evaluate(field, coefficients, _points(circuit))[:, 1 : 1 + circuit.calls]
    return field.matmul(weights[:, None], outputs[:, :, None])[:, 0, 0]


def _at(circuit: Circuit, powers: Elements, coefficients: Elements) -> Elements:
    """Return the values of polynomials at a point, shape (words, 1, reports)."""
    return circuit.field.matmul(powers[:, None], coefficients[:, :, None])[:, 0]


def decide(circuit: Circuit, answers: Elements) -> Bools:
    """Return whether each measurement is valid, from the sums of all shares of the answers.

    Args:
        answers: Shape (words, verifier_length, reports).
    """
    wires, gadget = answers[:, 1:-1], answers[:, -1]
    expected = circuit.gadget(wires[:, None])[:, 0]
    valid = (answers[:, 0] == 0) & (expected == gadget)
    return np.asarray(valid.all(axis=0))
