"""The mathematics of private prediction: kernels, the filter's steps and their votes."""
