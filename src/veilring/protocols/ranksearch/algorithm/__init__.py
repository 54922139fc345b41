"""The mathematics of rank search: it knows no party, no clock and no network."""
