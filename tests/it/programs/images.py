# %% slim_tools
import asyncio, csv, ctypes, decimal, json, lzma, os, sqlite3, ssl, subprocess, sys, zoneinfo
def sh(line): return subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout.strip()
print(sys.version_info[:2], os.environ["LANG"], zoneinfo.ZoneInfo("Europe/Berlin").key)
print(sh("echo '{\"n\": 41}' | jq .n+1"), sh("sqlite3 :memory: 'select 6*7'"), sh("echo a b | awk '{print $2}'"))
open("x.txt", "w").write("needle\nhay\n")
print(sh("rg --no-filename needle x.txt"), sh("git init -q . && git add x.txt && git -c user.name=a -c user.email=b commit -qm c && git log --format=%s"))
print(subprocess.run(["jq", ".n + 1"], input='{"n": 41}', capture_output=True, text=True).stdout)
print(sh("whoami || id -u"), sh("printf x | gzip | zcat"), sh("file -b --mime-type x.txt"))
# Compiled ahead: nothing could be written beside them.
print(json.__cached__ if hasattr(json, "__cached__") else json.__spec__.cached, os.path.exists(json.__spec__.cached))

# %% data_examples
import time
began = time.perf_counter()
import pandas as pd
first = time.perf_counter() - began
df = pd.DataFrame({"month": [1, 1, 2], "revenue": [1.0, 2.0, 4.0]})
df.to_csv("/tmp/sales.csv", index=False); df.to_parquet("/tmp/sales.parquet"); df.to_excel("/tmp/sales.xlsx")
print(pd.read_csv("/tmp/sales.csv").groupby("month").revenue.sum().tolist(), len(pd.read_excel("/tmp/sales.xlsx")))
import numpy as np, scipy.linalg
a = np.random.default_rng(0).random((500, 500))
print(round(float(np.linalg.norm(scipy.linalg.solve(a, a @ a) - a)), 3))
from sklearn.ensemble import RandomForestClassifier
from sklearn.cluster import KMeans
x = np.random.default_rng(1).random((300, 4)); y = x[:, 0] > .5
print(RandomForestClassifier(50, n_jobs=-1, random_state=0).fit(x, y).score(x, y) > .9, KMeans(3, n_init=2).fit(x).n_iter_ > 0)
import matplotlib.pyplot as plt
df.groupby("month").revenue.sum().plot.bar(); plt.savefig("/tmp/chart.png")
print(open("/tmp/chart.png", "rb").read(4))
import polars as pl
print(pl.read_parquet("/tmp/sales.parquet").group_by("month").agg(pl.col("revenue").sum()).sort("month")["revenue"].to_list())
print(pl.scan_csv("/tmp/sales.csv").filter(pl.col("month") == 1).select(pl.len()).collect().item())
print(f"import pandas: {first:.2f} s")

# %% more_data_examples
import seaborn as sns, matplotlib.pyplot as plt, pandas as pd, numpy as np
df = pd.DataFrame({"x": range(20), "y": [2.0 * x + 1 for x in range(20)]})
sns.lineplot(df, x="x", y="y"); plt.savefig("/tmp/sns.png"); print("seaborn", open("/tmp/sns.png", "rb").read(4))
import statsmodels.formula.api as smf
print("statsmodels", round(smf.ols("y ~ x", df).fit().params["x"], 3))
import sympy; x = sympy.symbols("x"); print("sympy", sympy.integrate(2 * x, x))
import networkx; print("networkx", networkx.shortest_path(networkx.path_graph(4), 0, 3))
import plotly.express as px; print("plotly", px.line(df, x="x", y="y").to_html(full_html=False)[:4])
import duckdb; print("duckdb", duckdb.sql("select sum(x) from df").fetchall())
import xlsxwriter, openpyxl
with xlsxwriter.Workbook("/tmp/w.xlsx") as book: book.add_worksheet().write(0, 0, 42)
print("xlsxwriter", openpyxl.load_workbook("/tmp/w.xlsx").active["A1"].value)
import docx; document = docx.Document(); document.add_paragraph("word"); document.save("/tmp/d.docx")
print("docx", docx.Document("/tmp/d.docx").paragraphs[0].text)
import pypdf; writer = pypdf.PdfWriter(); writer.add_blank_page(72, 72); writer.write("/tmp/p.pdf")
print("pypdf", len(pypdf.PdfReader("/tmp/p.pdf").pages))
import bs4, lxml.html
print("soup", bs4.BeautifulSoup("<p>a <b>b</b></p>", "lxml").b.text, lxml.html.fromstring("<p>c</p>").text)
import yaml, tabulate, tqdm, requests
print("yaml", yaml.safe_load("a: [1, 2]"), tabulate.tabulate([[1]], tablefmt="plain"), sum(tqdm.tqdm([1, 2], disable=True)))
print("requests", requests.Request("GET", "https://example.com", params={"a": 1}).prepare().url)

# %% chart
import pandas as pd, matplotlib.pyplot as plt
df = pd.read_csv("/tmp/sales.csv")
df.groupby("month").revenue.sum().plot.bar(); plt.savefig("/tmp/chart.png")
await mcp_filesystem.write_file(path="/out/chart.png", content=open("/tmp/chart.png", "rb").read())

# %% write_to_the_root
import os
refused = []
for place in ('/', '/usr', '/etc', '/root', '/var/tmp'):
    try:
        open(os.path.join(place, 'x'), 'w')
    except OSError:
        refused.append(place)
len(refused)

# %% compiled_library
import asyncio, email.message, json.decoder as it, os
print(os.path.exists(it.__spec__.cached), it.__file__ == it.JSONDecoder.decode.__code__.co_filename)
await asyncio.sleep(0, os.path.exists(email.message.__spec__.cached))
