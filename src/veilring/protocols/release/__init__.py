"""Release of one noisy sum of bounded statistics, once, by peers or an owner.

All later computations on the sum, for any number of queries, are post-processing.
"""
