# %% define_and_write
import json, inspect
def twice(n):
    return 2 * n
open('/tmp/a', 'w').write('tmp'); open('b', 'w').write('workspace')

# %% await_at_top_level
import asyncio
async def f(n):
    await asyncio.sleep(0)
    return n + 1
await f(1)

# %% task_in_background
import threading
ticked = threading.Event()
async def tick():
    await asyncio.sleep(0.05)
    ticked.set()
task = asyncio.create_task(tick())
await asyncio.sleep(0)

# %% every_kind_of_output
import subprocess, sys, os
print('a\n\n  b')
sys.stdout.flush()
subprocess.run([sys.executable, '-c', 'print("child"); import sys; print("oops", file=sys.stderr)'])
sys.stdout.buffer.write(b'\xff\xfe\n'); sys.stdout.flush(); os.write(1, b'raw\n'); None

# %% failing_function
x = 1
def f():
    raise ValueError('no luck')
f()

# %% surroundings
import os, sys, json
status = dict(l.split(':', 1) for l in open('/proc/self/status').read().splitlines() if ':' in l)
mounts = {l.split()[1]: l.split() for l in open('/proc/self/mounts')}
def opts(p): return sorted({'noexec', 'nosuid', 'nodev', 'rw'} & set(mounts[p][3].split(',')))
def size(p):
    s = os.statvfs(p)
    return s.f_blocks * s.f_frsize >> 20
print(json.dumps({'cwd': os.getcwd(), 'home': os.environ['HOME'], 'host': os.uname().nodename, 'env': 'SECRET_OF_THE_HOST' in os.environ, 'nnp': status['NoNewPrivs'].strip(), 'caps': status['CapEff'].strip(), 'bnd': status['CapBnd'].strip(), 'seccomp': status['Seccomp'].strip(), 'tmp': opts('/tmp'), 'workspace': opts('/workspace'), 'sizes': [size('/tmp'), size('/workspace')], 'users': open('/proc/self/uid_map').read().split(), 'ids': [os.getuid(), os.getgid(), os.getgroups()]}))
