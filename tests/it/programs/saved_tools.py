# %% double
def double(n):
    '''Twice as much.'''
    return 2 * n
save_tool(double)

# %% triple
@save_tool
def triple(n):
    return 3 * n

# %% double_replaced
def double(n):
    return n + n + 0.5
save_tool(double)
