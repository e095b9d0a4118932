# Running what was brought along, and becoming somebody else.


## from tmp
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
# outside: differs
import shutil

shutil.copy("/bin/true", "/tmp/attack-true")
os.execv("/tmp/attack-true", ["true"])

## from workspace
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
import shutil

shutil.copy("/bin/true", "/workspace/true")
os.execv("/workspace/true", ["true"])

## from projects
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
import shutil

shutil.copy("/bin/true", "/projects/true")
os.execv("/projects/true", ["true"])

## from shared memory
# refused: EACCES
import shutil

shutil.copy("/bin/true", "/dev/shm/true")
os.execv("/dev/shm/true", ["true"])

## a script with an interpreter
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
with open("/tmp/script", "w") as script:
    script.write("#!/bin/sh\ntrue")
os.chmod("/tmp/script", 0o755)
os.execv("/tmp/script", ["script"])

## by descriptor
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
import shutil

shutil.copy("/bin/true", "/tmp/by-descriptor")
os.execve(os.open("/tmp/by-descriptor", os.O_RDONLY), ["true"], {})

## by the loader
# refused: loader: failed to map segment from shared object
# refused on kubernetes: not tried: the folders of a pod have no noexec
import glob
import shutil
import subprocess

shutil.copy("/bin/true", "/tmp/by-loader")
loader = [place for place in glob.glob("/lib64/ld-*") + glob.glob("/lib/ld-*") + glob.glob("/lib/*/ld-linux*")][0]
ended = subprocess.run([loader, "/tmp/by-loader"], capture_output=True, text=True)
if ended.returncode:
    error = type("loader", (Exception,), {})
    raise error(ended.stderr.strip().rpartition(": ")[2])

## the loader works
# allowed: done: 0
import glob
import subprocess

loader = [place for place in glob.glob("/lib64/ld-*") + glob.glob("/lib/ld-*") + glob.glob("/lib/*/ld-linux*")][0]
result = subprocess.run([loader, "/bin/true"]).returncode

## as a library
# refused: EPERM
# refused on kubernetes: not tried: the folders of a pod have no noexec
import mmap
import shutil

shutil.copy("/bin/true", "/tmp/library")
with open("/tmp/library", "rb") as file:
    mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC)

## as a library, later
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
import mmap
import shutil

shutil.copy("/bin/true", "/tmp/later")
with open("/tmp/later", "rb") as file:
    page = mmap.mmap(file.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_WRITE)
checked(libc.mprotect(ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(page))), 4096, 5))

## from memory
# refused: EPERM
descriptor = syscall("memfd_create", b"x", 0)
os.write(descriptor, open("/bin/true", "rb").read())
os.execve(descriptor, ["true"], {})

## a file of one's own with the setuid bit
# refused: EACCES
# refused on kubernetes: not tried: the folders of a pod have no noexec
import shutil

shutil.copy("/bin/true", "/tmp/setuid")
os.chmod("/tmp/setuid", 0o6755)
os.execv("/tmp/setuid", ["setuid"])

## the setuid programs of the image
# allowed: done: []
# Who they are is the kernel's word, once they run; some of them take their time.
import glob
import subprocess

raised = []
for place in glob.glob("/usr/bin/*") + glob.glob("/usr/sbin/*"):
    if os.path.exists(place) and os.stat(place).st_mode & 0o6000:
        process = subprocess.Popen([place, "--help"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        try:
            ids = [line for line in open("/proc/%d/status" % process.pid) if line.startswith(("Uid", "Gid"))]
            if any(id != "65534" for line in ids for id in line.split()[1:]):
                raised.append(place)
        except (FileNotFoundError, ProcessLookupError):
            pass
        process.kill()
        process.communicate()
result = raised

## a program of the image
# allowed: done: 0
import subprocess

result = subprocess.run(["/bin/true"]).returncode
