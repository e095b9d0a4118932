# %% noise_and_deep_traceback
import sys
for n in range(20_000): print('noise', n, file=sys.stderr)
print('result')
def deep(n): return deep(n - 1) if n else 1 / 0
deep(200)

# %% both_streams_and_exit
print('a\n\nb, c')
import sys; print('warned', file=sys.stderr)
raise SystemExit(3)
