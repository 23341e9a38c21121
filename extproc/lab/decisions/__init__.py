"""A hash of all decisions on one workload: what two versions of the code must have in common."""
