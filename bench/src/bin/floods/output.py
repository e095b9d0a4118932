# Output without end.
import sys

while running():
    sys.stdout.write("0123456789\n" * 100_000)
