//! Names that a saved function may not have: it would replace a part of Python, or of the bridge, in every later session.

/// Builtins of CPython 3.9 to 3.14, as far as they are no dunders and no exceptions.
const BUILTINS: &str = "\
    abs aiter all anext any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex copyright \
    credits delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash \
    help hex id input int isinstance issubclass iter len license list locals map max memoryview min next object oct open \
    ord pow print property quit range repr reversed round set setattr slice sorted staticmethod str sum super tuple type \
    vars zip Ellipsis NotImplemented";

/// Exceptions among the builtins.
const EXCEPTIONS: &str = "\
    ArithmeticError AssertionError AttributeError BaseException BaseExceptionGroup BlockingIOError BrokenPipeError \
    BufferError BytesWarning ChildProcessError ConnectionAbortedError ConnectionError ConnectionRefusedError \
    ConnectionResetError DeprecationWarning EOFError EncodingWarning EnvironmentError Exception ExceptionGroup \
    FileExistsError FileNotFoundError FloatingPointError FutureWarning GeneratorExit IOError ImportError ImportWarning \
    IndentationError IndexError InterruptedError IsADirectoryError KeyError KeyboardInterrupt LookupError MemoryError \
    ModuleNotFoundError NameError NotADirectoryError NotImplementedError OSError OverflowError PendingDeprecationWarning \
    PermissionError ProcessLookupError PythonFinalizationError RecursionError ReferenceError ResourceWarning \
    RuntimeError RuntimeWarning StopAsyncIteration StopIteration SyntaxError SyntaxWarning SystemError SystemExit \
    TabError TimeoutError TypeError UnboundLocalError UnicodeDecodeError UnicodeEncodeError UnicodeError \
    UnicodeTranslateError UnicodeWarning UserWarning ValueError Warning ZeroDivisionError _IncompleteInputError";

/// Keywords, with those that are some only in places where a name may be one too.
const KEYWORDS: &str = "\
    False None True and as assert async await break case class continue def del elif else except finally for from global \
    if import in is lambda match nonlocal not or pass raise return try type while with yield _";

/// Names of the bridge in user code; `src/guest/namespace.py` defines most of them.
const OURS: &str = "In LOADED_MCP_SERVERS MCPError Out display mcp mcp_servers runtime save_tool";

/// Returns what has a name already; None for a free one.
pub(super) fn owner_of(name: &str) -> Option<&'static str> {
    let is_in = |names: &str| names.split(' ').any(|reserved| reserved == name);
    if name.starts_with("__") && name.ends_with("__") {
        Some("Python")
    } else if is_in(BUILTINS) || is_in(EXCEPTIONS) {
        Some("a builtin of Python")
    } else if is_in(KEYWORDS) {
        Some("a keyword of Python")
    } else if is_in(OURS) {
        Some("a name of the bridge")
    } else if name.starts_with("mcp_") {
        Some("the name of a server")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_mean_something_in_every_session_are_not_free() {
        for name in [
            "__builtins__", "__import__", "__name__", "print", "open", "len", "ValueError", "match",
            "lambda", "runtime", "mcp", "mcp_servers", "mcp_github", "mcp_", "save_tool",
            "LOADED_MCP_SERVERS", "display", "In", "Out", "_",
        ] {
            assert!(owner_of(name).is_some(), "{name}");
        }
        for name in ["double", "_double", "__double", "printer", "mcp2", "my_mcp_x", "Print", "", "runtime2"]
        {
            assert_eq!(owner_of(name), None, "{name}");
        }
    }

    #[test]
    fn every_name_of_the_bridge_is_known() {
        let names = include_str!("../guest/namespace.py");
        let (_, defined) = names.rsplit_once("return dict(").unwrap();
        for name in defined
            .split(['(', ',', ')'])
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, _)| name.trim())
        {
            assert!(owner_of(name).is_some(), "{name}");
        }
    }
}
