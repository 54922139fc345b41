"""Private r-N and k-N classification of an analyst's batch by a data owner.

Source: Gursoy, Inan, Nergiz and Saygin, "Differentially private nearest neighbor classification",
Data Mining and Knowledge Discovery 31 (2017). `algorithm` contains the mathematics, and `leakage`
the exact privacy loss of the answers.
"""
