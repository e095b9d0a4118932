# %% too_many_files
print('ready', flush=True)
import time
with open('/tmp/many', 'wb') as file: file.write(bytes(100 << 20))
time.sleep(1000)
