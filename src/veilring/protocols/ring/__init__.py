"""Private kNN among peers in a ring: PP-TopK, secure sums and PP-kNN.

Source: Xiong, Chitti and Liu, "Mining multiple private databases using a kNN classifier", 2007.
"""
