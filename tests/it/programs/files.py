# %% name_of_the_error
import errno
try: open('/usr/local/games/file', 'w')
except OSError as error: print(errno.errorcode[error.errno])
