# %% with_seen
seen = [0]
print('ready', flush=True)
import time; time.sleep(1000)

# %% three_seconds
import time
time.sleep(3)
6 * 7

# %% six_seconds
import time
until = time.monotonic() + 6
while time.monotonic() < until: time.sleep(0.1)
'slept'

# %% with_x
x = 1
print('ready', flush=True)
import time; time.sleep(1000)

# %% with_variable
x = 42
print('ready', flush=True)
import time; time.sleep(1000)

# %% with_list
ran = []
print('ready', flush=True)
import time; time.sleep(1000)

# %% with_namespace
import os, time
print('ready', os.readlink('/proc/self/ns/pid'), flush=True)
time.sleep(1000)

# %% ready
print('ready', flush=True)
import time; time.sleep(1000)

# %% imports_first
import time
print('ready', flush=True)
time.sleep(1000)
