# What servers offer beside tools: resources and prompts, as values. `guest` is the interpreter.

import json
import re

runtime = guest.runtime
values = guest.part("values")
# Bytes of the line before the bytes of a resource.
LONGEST_HEAD = 8 << 20


# Lists.


def list_resources(server):
    """Returns the resources that a server lists: uri, name, description, mimeType and others of each. Works with and without await."""
    return listed(server, "resources")


def list_resource_templates(server):
    """Returns the URI templates of a server's resources: uriTemplate, name, description and others of each. Works with and without await."""
    return listed(server, "templates")


def list_prompts(server):
    """Returns the prompts of a server: name, description and arguments of each. Works with and without await."""
    return listed(server, "prompts")


def listed(server, which):
    answer = runtime._ask("offers", {"server": runtime._name(server), "list": which}, values.parse)
    if answer["cut"]:
        guest.notices.append("%s of %s lists more than are shown" % (which, runtime._name(server)))
    return runtime._ReadyList(answer["items"])


# Resources.


class Content:
    """What the content of a resource also has."""

    uri = mime_type = None

    @property
    def mimeType(self):
        return self.mime_type


class ResourceText(runtime._Ready, Content, values.Text):
    """The text of a resource, with `uri` and `mime_type`."""

    @property
    def raw(self):
        """The MCP result."""
        return {"contents": [dict(self.block, text=str.__str__(self))]}


class ResourceBytes(runtime._Ready, Content, values.Blob):
    """The bytes of a resource, with `uri` and `mime_type`."""

    @property
    def raw(self):
        """The MCP result, with the bytes as base64."""
        import binascii

        block = dict(self.block, blob=binascii.b2a_base64(self, newline=False).decode())
        return {"contents": [block]}


def read_resource(server, uri, path=None, **variables):
    """Reads a resource: returns its text or its bytes, with `uri` and `mime_type`, or a list where it has several parts.

    `uri` may be a URI template, with its variables as arguments. With `path` the content is written to a file, which takes
    the least memory, and the path is returned. Works with and without await.
    """
    uri = expanded(text_of(uri, "uri"), variables)
    params = {"server": runtime._name(server), "uri": uri, "line": guest.part("servers").line_of_code()}
    head, data = runtime._ask("read_resource", params, parse)
    if path is not None:
        with open(path, "wb") as file:
            file.write(data)
        return runtime._ReadyText(path if isinstance(path, str) else path.__fspath__())
    contents, start = [], 0
    for about in head["contents"]:
        end = start + about["bytes"]
        contents.append(content_of(about, data[start:end]))
        start = end
    return contents[0] if len(contents) == 1 else runtime._ReadyList(contents)


def content_of(about, data):
    block = {name: value for name, value in about.items() if name not in ("bytes", "is_text")}
    if about["is_text"]:
        content = ResourceText(data, "utf-8")
    else:
        content = ResourceBytes(data)
    content.block = block
    content.uri, content.mime_type = block.get("uri"), block.get("mimeType")
    return content


def parse(payload):
    """Reads an answer that ends with bytes: a line of JSON before them. They are not copied."""
    end = payload.find(b"\n", 0, LONGEST_HEAD)
    if end < 0:
        return json.loads(payload)
    view = memoryview(payload)
    return {"ok": (json.loads(bytes(view[:end])), view[end + 1 :])}


def text_of(value, name):
    if not isinstance(value, str):
        raise TypeError("%s must be text, not %r" % (name, value))
    return str.__str__(value)


# URI templates: RFC 6570.

# What comes before the first variable, between variables, whether names are written, and what stays as it is.
OPERATORS = {
    "": ("", ",", False, ""),
    "+": ("", ",", False, ":/?#[]@!$&'()*+,;=%"),
    "#": ("#", ",", False, ":/?#[]@!$&'()*+,;=%"),
    ".": (".", ".", False, ""),
    "/": ("/", "/", False, ""),
    ";": (";", ";", True, ""),
    "?": ("?", "&", True, ""),
    "&": ("&", "&", True, ""),
}


def expanded(template, variables):
    """Puts variables into a URI template; a URI without them stays as it is."""
    if not variables:
        return template
    used = set()

    def put(match):
        return expression(match[1], match[2], variables, used)

    uri = re.sub(r"\{([+#./;?&]?)([^{}]+)\}", put, template)
    unknown = sorted(variables.keys() - used)
    if unknown:
        raise TypeError("the URI template %s has no variable %s" % (template, ", ".join(unknown)))
    return uri


def expression(operator, names, variables, used):
    from urllib.parse import quote

    first, between, named, safe = OPERATORS[operator]
    parts = []
    for name in names.split(","):
        name, _, longest = name.strip().rstrip("*").partition(":")
        used.add(name)
        value = variables.get(name)
        if value is None:
            if operator in ("", "+", "/"):
                raise TypeError("the URI template needs the variable %s" % name)
            continue
        items = value if isinstance(value, (list, tuple)) else [value]
        items = [argument_text(item)[: int(longest) if longest else None] for item in items]
        text = ",".join(quote(item, safe=safe) for item in items)
        parts.append("%s=%s" % (name, text) if named else text)
    return first + between.join(parts) if parts else ""


# Prompts, and proposals for arguments.


class Prompt(runtime._Ready, values.Record):
    """A prompt: `description` and `messages`, each with `role` and `content`; `text` has the texts of all messages."""

    __slots__ = ()

    @property
    def text(self):
        blocks = [message.get("content") for message in self.get("messages") or () if isinstance(message, dict)]
        return "\n\n".join(filter(None, map(text_in, blocks)))

    def __reduce__(self):
        return dict, (dict(self),)


def text_in(block):
    """Returns the text of a block, or of the resource in it."""
    if isinstance(block, list):
        return "\n\n".join(filter(None, map(text_in, block)))
    if not isinstance(block, dict):
        return None
    text = block.get("text")
    if isinstance(text, str):
        return text
    return text_in(block.get("resource"))


def get_prompt(server, name, arguments=None, **more):
    """Gets a prompt with its arguments filled in: `messages`, `description`, and `text` with the texts of all messages.

    Arguments are a dict, or are named. Works with and without await.
    """
    params = {
        "server": runtime._name(server),
        "name": text_of(name, "name"),
        "arguments": texts(arguments, more),
        "line": guest.part("servers").line_of_code(),
    }
    result = runtime._ask("get_prompt", params, values.parse)
    if not isinstance(result, dict) or not isinstance(result.get("messages"), list):
        raise runtime.MCPError("%s: the answer of the server is not a prompt: %.200r" % (params["server"], result))
    return Prompt(result)


def complete(server, of, argument, value="", arguments=None, **more):
    """Returns the values that a server proposes for an argument of a prompt, or for a variable of a URI template.

    `of` is the name of the prompt or the URI template, `value` the beginning of the value; the arguments that are known
    already can be given as well. Works with and without await.
    """
    params = {
        "server": runtime._name(server),
        "of": text_of(of, "of"),
        "argument": text_of(argument, "argument"),
        "value": argument_text(value),
        "others": texts(arguments, more),
        "line": guest.part("servers").line_of_code(),
    }
    result = runtime._ask("complete", params, values.parse)
    completion = result.get("completion") if isinstance(result, dict) else None
    proposals = completion.get("values") if isinstance(completion, dict) else None
    if not isinstance(proposals, list):
        raise runtime.MCPError("%s: the answer of the server has no values: %.200r" % (params["server"], result))
    return runtime._ReadyList(proposals)


def texts(arguments, more):
    """Returns arguments as texts: the protocol has no others here."""
    if arguments is not None and not isinstance(arguments, dict):
        raise TypeError("arguments must be a dict, not %r" % (arguments,))
    every = dict(arguments or {}, **more)
    return {str(name): argument_text(value) for name, value in every.items() if value is not None}


def argument_text(value):
    return str.__str__(value) if isinstance(value, str) else json.dumps(value, default=values.jsonable, ensure_ascii=False)
