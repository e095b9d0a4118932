def double(n):
    """Doubles a number."""
    return 2 * n
