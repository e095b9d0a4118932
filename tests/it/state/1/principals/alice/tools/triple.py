def triple(n):
    """Triples a number."""
    return 3 * n
