# %% steps
import time
def steps():
    for n in range(8):
        while n == 4 and "stands_still" in globals():
            time.sleep(0.05)
        time.sleep(0.05)
        yield n

# %% tqdm
from tqdm import tqdm
for _ in tqdm(steps(), desc="ready", total=8, mininterval=0):
    pass

# %% tqdm_in_tqdm
from tqdm import tqdm
for _ in tqdm(steps(), desc="ready", total=8, mininterval=0):
    for _ in tqdm(range(3), desc="inner", position=1, leave=False, mininterval=0):
        time.sleep(0.02)

# %% rich
from rich.progress import track
for _ in track(steps(), "[bold]ready", total=8):
    pass

# %% rich_for_a_terminal
from rich.console import Console
from rich.progress import Progress
with Progress(console=Console(force_terminal=True, width=60)) as bars:
    tasks = [bars.add_task("ready", total=8), bars.add_task("second", total=8), bars.add_task("third", total=8)]
    for n in steps():
        for task in tasks:
            bars.advance(task)
        if n == 2:
            bars.console.print("a line of the log")
