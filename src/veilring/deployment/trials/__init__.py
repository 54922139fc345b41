"""All files of a small deployment at once, on one machine: to try what `serve` and `ask` do."""
