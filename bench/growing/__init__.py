"""Four ways in which a broker grows. Each one makes a broker larger and measures the same small work at every size."""
