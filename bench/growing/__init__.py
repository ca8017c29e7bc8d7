"""The four ways in which a broker grows: each makes the size on one broker, and measures the same small work at it."""
