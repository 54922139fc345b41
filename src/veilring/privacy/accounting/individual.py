"""The budget of one record under an individual filter of Gaussian releases."""

from typing import Literal, assert_never

from veilring.privacy.accounting.gaussian import GaussianDP
from veilring.privacy.accounting.zcdp import ZCDP

Accountant = Literal["rdp", "gdp"]


def individual_budget(epsilon: float, delta: float, accountant: Accountant = "rdp") -> float:
    """Return the budget B that each record has, in the unit of zCDP.

    A record pays `(its own sensitivity)**2 / (2 sigma**2)` for each Gaussian release that it takes
    part in, and takes part in no more when it could exceed B. All answers together are then
    (epsilon, delta)-DP.

    Args:
        epsilon: The target, above 0.
        delta: The target, in (0, 1).
        accountant: `"rdp"`: (alpha, alpha B)-Renyi DP for all alpha, converted as by Balle et al.
            2020 (the accounting of Individual Kernelized Nearest Neighbor; filters: Feldman and
            Zrnic 2021). `"gdp"`: exact Gaussian DP with mu = sqrt(2 B), which is larger and needs
            that every charged release is exactly Gaussian: neither subsampled nor discrete (fully
            adaptive filters: Smith and Thakurta 2022; individual ones: Koskela et al. 2023).

    Raises:
        InputError: If epsilon or delta is outside its range.
    """
    match accountant:
        case "rdp":
            return ZCDP.calibrate(epsilon, delta).rho
        case "gdp":
            return GaussianDP.calibrate(epsilon, delta).mu ** 2 / 2
        case _:
            assert_never(accountant)
