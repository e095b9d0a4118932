# Results of tools as Python values that can also be read as the raw MCP result; and arguments as JSON.
# Their classes are names of mcp.runtime, so that they can be pickled and documented.

import json

# Fields of a raw result, which a value has unless it has its own field of that name.
RAW_FIELDS = "content", "structuredContent", "isError", "_meta"
NOTHING = object()
# How many values were sent as base64.
encoded = 0


class Raw:
    """What every value also has: the raw result and its fields."""

    __slots__ = ()

    def __reduce__(self):
        # Copies and pickles are plain values, such as str for Text.
        plain = type(self).__mro__[-2]
        return plain, (plain(self),)

    @property
    def raw(self):
        """The MCP result as the server sent it."""
        result = raw_of(self)
        if result is None:
            # A part of a result, which may have a field of that name.
            raise AttributeError("raw")
        return result

    def __getattr__(self, name):
        value = raw_field(self, name)
        if value is NOTHING:
            raise AttributeError("%r has no attribute %r" % (type(self).__name__, name))
        return value


def raw_of(value):
    try:
        return object.__getattribute__(value, "_raw")
    except AttributeError:
        return None


def raw_field(value, name):
    result = raw_of(value)
    if result is None:
        return NOTHING
    if name in RAW_FIELDS:
        return result.get(name, NOTHING)
    structured = result.get("structuredContent")
    return structured.get(name, NOTHING) if isinstance(structured, dict) else NOTHING


def item(self, key, plain):
    if isinstance(key, str):
        value = raw_field(self, key)
        if value is NOTHING:
            raise KeyError(key)
        return value
    return plain(self, key)


class Record(Raw, dict):
    """A JSON object; its fields are attributes as well."""

    __slots__ = ("_raw",)

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            # The names of the fields help more than the missing one.
            raise AttributeError("no field %r; the fields are: %s" % (name, ", ".join(map(str, self)))) from None

    def __setattr__(self, name, value):
        self[name] = value

    def __delattr__(self, name):
        try:
            del self[name]
        except KeyError:
            raise AttributeError(name) from None

    def __missing__(self, key):
        value = raw_field(self, key) if isinstance(key, str) else NOTHING
        if value is NOTHING:
            raise KeyError(key)
        return value

    def __dir__(self):
        return [*super().__dir__(), *(key for key in self if isinstance(key, str) and key.isidentifier())]

    def __reduce__(self):
        return type(self), (dict(self),)


# A field may have the name of a method of dictionaries, such as `items`. As an attribute the field comes first; but Python
# itself calls these methods on mappings, so the value of the field can be called like the method.


class Callable:
    """A value that is also a method of the record that it is in."""

    _codebridge_of = None, None

    def __call__(self, *positional, **named):
        return self._codebridge_of[1](*positional, **named)

    def __reduce__(self):
        plain = type(self).__mro__[2]
        return plain, (plain(self),)


# One for every type that can have attributes.
CALLABLE = tuple((plain, type(plain.__name__, (Callable, plain), {})) for plain in (str, list, float, int, Record))


class FieldOrMethod:
    def __init__(self, name):
        self.name, self.method = name, vars(dict)[name]

    def __get__(self, record, owner=None):
        method = self.method.__get__(record, owner)
        value = NOTHING if record is None else dict.get(record, self.name, NOTHING)
        if value is NOTHING:
            return method
        if isinstance(value, Callable) and value._codebridge_of[0] is record:
            return value
        if type(value) is dict:
            value = Record(value)
        for plain, kind in CALLABLE:
            if isinstance(value, plain) and not isinstance(value, bool):
                value = kind(value)
                object.__setattr__(value, "_codebridge_of", (record, method))
                # Stored in its place, so that a change of one is a change of both.
                dict.__setitem__(record, self.name, value)
                return value
        # True, False and None cannot have attributes; they are available as items.
        return method


for name in vars(dict):
    if not name.startswith("_"):
        setattr(Record, name, FieldOrMethod(name))


class Text(Raw, str):
    def __getitem__(self, key):
        return item(self, key, str.__getitem__)


class Items(Raw, list):
    def __getitem__(self, key):
        return item(self, key, list.__getitem__)


class Number(Raw):
    """A number that came as text can be used as that text: code that reads a file with a number expects a string."""

    __slots__ = ()

    def __contains__(self, part):
        return part in text_of(self)

    def __getitem__(self, key):
        return item(self, key, lambda number, key: text_of(number)[key])

    def __getattr__(self, name):
        value = raw_field(self, name)
        if value is NOTHING and name[:2] != "__":
            value = getattr(text_behind(self), name, NOTHING)
        if value is NOTHING:
            raise AttributeError("%r has no attribute %r" % (type(self).__name__, name))
        return value


def text_behind(number):
    """Returns the text that a number came as, None for one that came as a number."""
    blocks = (raw_of(number) or {}).get("content")
    if isinstance(blocks, list) and len(blocks) == 1 and is_text(blocks[0]) and isinstance(blocks[0].get("text"), str):
        return blocks[0]["text"]
    return None


def text_of(number):
    text = text_behind(number)
    if text is None:
        raise TypeError("%r object is a number, not a text" % type(number).__name__)
    return text


class Whole(Number, int):
    pass


class Real(Number, float):
    pass


class Blob(Raw, bytes):
    """The bytes of an image, a sound or a file, with their MIME type."""

    mime_type = None

    @property
    def mimeType(self):
        return self.mime_type

    def __getitem__(self, key):
        if isinstance(key, str) and key in self.block:
            return self.block[key]
        return item(self, key, bytes.__getitem__)

    def __repr__(self):
        return "<%s, %d bytes>" % (self.mime_type, len(self))

    def _repr_mimebundle_(self, include=None, exclude=None):
        return {self.mime_type: bytes(self), "text/plain": repr(self)} if self.mime_type else {}


class Blocks(Items):
    """The blocks of a result with an image or a sound: shown one after the other."""

    def _ipython_display_(self):
        import sys

        display = sys.modules["mcp.runtime"]._guest.part("display").display
        for block in self:
            print(block.get("text")) if is_text(block) else display(block)


for kind in Record, Text, Items, Whole, Real, Blob, Blocks:
    kind.__module__ = "mcp.runtime"
    kind.__qualname__ = kind.__name__
KINDS = ((str, Text), (list, Items), (dict, Record), (float, Real), (int, Whole))


def parse(payload):
    return json.loads(payload, object_hook=Record)


def not_a_result(result):
    """Returns what is wrong with an answer that is not an MCP result; None for one that is."""
    if not isinstance(result, dict):
        return "the answer of the server is not an MCP result: %.200s" % json.dumps(result, ensure_ascii=False)
    blocks = result.get("content")
    if isinstance(blocks, (list, type(None))) or result.get("structuredContent") is not None:
        return None
    return "the content in the answer of the server is not a list of blocks: %.200s" % json.dumps(blocks, ensure_ascii=False)


def value_of(result):
    """Returns the value of a raw result."""
    blocks = result.get("content")
    blocks = blocks if isinstance(blocks, list) else []
    structured = result.get("structuredContent")
    if structured is not None:
        return with_raw(unwrapped(structured, blocks), result)
    if len(blocks) == 1:
        value = value_of_block(blocks[0])
        if value is not blocks[0]:
            return with_raw(value, result)
    return with_raw([block if is_text(block) else value_of_block(block) for block in blocks], result)


def unwrapped(structured, blocks):
    """Returns the value of structured content. It has to be an object, so servers put other values into a field of one."""
    if isinstance(structured, dict) and len(structured) == 1:
        (name, value), = structured.items()
        if name == "result" and not isinstance(value, dict):
            return value
        if len(blocks) == 1 and is_text(blocks[0]) and isinstance(value, str) and value == blocks[0].get("text"):
            return value
    return structured


def is_text(block):
    return isinstance(block, dict) and block.get("type") == "text"


def value_of_block(block):
    if is_text(block):
        text = block.get("text")
        text = text if isinstance(text, str) else ""
        try:
            # Most texts are not JSON, which their first character tells.
            return parse(text) if text.lstrip()[:1] in set('{["-0123456789tfn') else text
        except (ValueError, RecursionError):
            return text
    if not isinstance(block, dict):
        return block
    # A file is a resource within the result.
    resource = block.get("resource") if block.get("type") == "resource" else None
    data, kind = (resource.get("blob"), resource.get("mimeType")) if isinstance(resource, dict) else (block.get("data"), block.get("mimeType"))
    if isinstance(data, str):
        import binascii

        try:
            blob = Blob(binascii.a2b_base64(data))
        except ValueError:
            return block
        blob.block, blob.mime_type = block, kind
        return blob
    return block


def with_raw(value, result):
    """Attaches the raw result to a value; True, False and None stay as they are."""
    if isinstance(value, Blob):
        value._raw = result
        return value
    for plain, kind in KINDS:
        if isinstance(value, plain) and not isinstance(value, bool):
            if kind is Items and any(isinstance(block, Blob) for block in value):
                kind = Blocks
            value = value if kind is Record and type(value) is Record else kind(value)
            object.__setattr__(value, "_raw", result)
            return value
    return value


def error_text(result):
    """Returns the message of an error result."""
    blocks = result.get("content")
    texts = [block.get("text") for block in (blocks if isinstance(blocks, list) else []) if is_text(block)]
    return "\n".join(text for text in texts if isinstance(text, str) and text) or "the tool failed without a message"


def jsonable(value):
    """Converts values that JSON cannot write."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        import binascii

        global encoded
        encoded += 1
        return binascii.b2a_base64(value, newline=False).decode()
    if hasattr(value, "__fspath__"):
        return value.__fspath__()
    if isinstance(value, (set, frozenset)):
        return list(value)
    for method in "isoformat", "tolist", "model_dump":
        if callable(getattr(value, method, None)):
            return getattr(value, method)()
    raise TypeError("a value of type %s cannot be sent to a tool" % type(value).__name__)
