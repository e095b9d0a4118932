"""A browser with a person in it, who logs in on the pages of `oidc-provider`. The last argument is the page.

The variable PERSON says what the person does: `alice` or `bob` log in as these, `deny` says no. With STOP_AT=FILE the address of
the last page is written there, and the page is not opened.
"""

import os
import re
import sys
import urllib.error
import urllib.parse
import urllib.request
from http.cookiejar import CookieJar

person = os.environ.get("PERSON", "alice")


class Stop(Exception):
    pass


class Redirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, request, fp, code, msg, headers, newurl):
        if "/callback?" in newurl and "STOP_AT" in os.environ:
            with open(os.environ["STOP_AT"], "w") as file:
                file.write(newurl + "\n")
            raise Stop
        return super().redirect_request(request, fp, code, msg, headers, newurl)


opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()), Redirects())


def visit(url, form=None):
    data = urllib.parse.urlencode(form).encode() if form else None
    with opener.open(url, data) as answer:
        return answer.geturl(), answer.read().decode()


try:
    url, page = visit(sys.argv[-1])
    while "/interaction/" in url:
        action = urllib.parse.urljoin(url, re.search(r'action="([^"]+)"', page)[1])
        if person == "deny":
            url, page = visit(urllib.parse.urljoin(url, re.search(r'href="([^"]+abort)"', page)[1]))
        elif 'name="login"' in page:
            url, page = visit(action, {"prompt": "login", "login": person, "password": "any"})
        else:
            url, page = visit(action, {"prompt": "consent"})
    print(url, page)
except Stop:
    pass
except urllib.error.HTTPError as error:
    sys.exit(f"{error} {error.geturl()} {error.read().decode()}")
