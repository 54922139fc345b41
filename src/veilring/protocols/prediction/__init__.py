"""Private prediction: a server answers a stream of queries on rows that each have a budget.

Source: Zhu, Zhao, Guo and Wang, "Private Prediction Strikes Back! Private Kernelized Nearest
Neighbors with Individual Rényi Filter", UAI 2023.
"""
