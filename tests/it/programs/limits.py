# %% many_threads
import threading
for n in range(500):
    threading.Thread(target=threading.Event().wait, daemon=True).start()

# %% fill_memory
import time
y = []
try:
    while True:
        y.append(bytearray(b'x') * (1 << 20))
except MemoryError:
    time.sleep(0.5)
full = len(y)
del y
full > 100

# %% children
import os, signal, time
def children(count, megabytes):
    ready, told = os.pipe()
    pids = []
    for _ in range(count):
        pid = os.fork()
        if not pid:
            own = bytearray(b'x') * (megabytes << 20)
            os.write(told, b'.')
            time.sleep(1000)
        pids.append(pid)
    return pids, ready
def end(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)

# %% largest_child
pids, _ = children(6, 40)
pid, status = os.wait()
pids.remove(pid)
end(pids)
os.WTERMSIG(status)

# %% largest_itself
children(3, 20)
own = bytearray(b'x') * (90 << 20)
os.wait()

# %% shared_pages
own = bytearray(b'x') * (60 << 20)
pids, ready = children(5, 1)
for _ in pids:
    os.read(ready, 1)
for _ in range(20):
    time.sleep(0.1)
    assert os.waitpid(-1, os.WNOHANG) == (0, 0)
end(pids)
len(own)

# %% end_children
for child in children:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)

# %% many_processes
import os, signal, time
children = []
try:
    for _ in range(1000):
        child = os.fork()
        if not child:
            time.sleep(1000)
        children.append(child)
except OSError as error:
    print(error.strerror)
print(len(children))

# %% many_files
import errno, os, shutil
folder = FOLDER + '/many'
os.mkdir(folder)
try:
    for n in range(1_000_000):
        os.mkdir(f'{folder}/{n}')
    result = 'all'
except OSError as error:
    result = errno.errorcode[error.errno]
shutil.rmtree(folder)
result
