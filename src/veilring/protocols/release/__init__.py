"""One noisy sum of bounded statistics, released once by peers or an owner.

Whatever is computed from the sum afterwards, for any number of queries, is post-processing.
"""
