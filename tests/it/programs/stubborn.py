# %% sleeping
import time
while True:
    try:
        time.sleep(100)
    except BaseException:
        continue

# %% daemons
import os, signal, time
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        while True:
            time.sleep(1000)
os._exit(1)

# %% busy
while True:
    try:
        while True: pass
    except BaseException:
        continue
