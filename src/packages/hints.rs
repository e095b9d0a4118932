//! What a missing module is called as a package, and what a wrong name probably means.

use codebridge_images::{Recipe, package_name, parse_requirements};

use crate::nearest::nearest;

/// Modules whose package has another name.
const DISTRIBUTIONS: &[(&str, &str)] = &[
    ("Bio", "biopython"),
    ("Crypto", "pycryptodome"),
    ("OpenSSL", "pyopenssl"),
    ("PIL", "pillow"),
    ("attr", "attrs"),
    ("bs4", "beautifulsoup4"),
    ("cv2", "opencv-python-headless"),
    ("dateutil", "python-dateutil"),
    ("docx", "python-docx"),
    ("dotenv", "python-dotenv"),
    ("fitz", "pymupdf"),
    ("git", "gitpython"),
    ("google.protobuf", "protobuf"),
    ("jose", "python-jose"),
    ("jwt", "pyjwt"),
    ("magic", "python-magic"),
    ("mpl_toolkits", "matplotlib"),
    ("nacl", "pynacl"),
    ("pkg_resources", "setuptools"),
    ("pptx", "python-pptx"),
    ("psycopg2", "psycopg2-binary"),
    ("serial", "pyserial"),
    ("skimage", "scikit-image"),
    ("sklearn", "scikit-learn"),
    ("slugify", "python-slugify"),
    ("umap", "umap-learn"),
    ("websocket", "websocket-client"),
    ("yaml", "pyyaml"),
    ("zmq", "pyzmq"),
];

/// Names that are often mistyped, beside those of the table.
const COMMON: &[&str] = &[
    "altair", "duckdb", "httpx", "humanize", "jinja2", "lxml", "matplotlib", "networkx", "numpy", "openpyxl",
    "orjson", "pandas", "plotly", "polars", "pyarrow", "pydantic", "requests", "rich", "scipy", "seaborn",
    "sqlalchemy", "statsmodels", "sympy", "tabulate", "xgboost",
];

/// Returns the package of a module; None if the name cannot be that of a package.
pub fn distribution_of(module: &str) -> Option<String> {
    let top = module.split('.').next().unwrap_or_default();
    let known = |wanted: &str| DISTRIBUTIONS.iter().find(|(name, _)| *name == wanted);
    if let Some((_, package)) = known(module).or_else(|| known(top)) {
        return Some((*package).to_owned());
    }
    let is_plain = top.len() <= 64 && top.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let name = package_name(top);
    (is_plain && !name.is_empty()).then_some(name)
}

/// Returns the package of a module whose name was given as that of a package.
pub(super) fn package_of_module(name: &str) -> Option<String> {
    let module = DISTRIBUTIONS.iter().find(|(module, _)| package_name(module) == name);
    module.filter(|(_, package)| *package != name).map(|(_, package)| (*package).to_owned())
}

/// Returns the package that was probably meant by a name that the index does not have.
pub(super) fn meant_by(name: &str) -> Option<String> {
    if let Some(package) = package_of_module(name) {
        return Some(package);
    }
    let known = DISTRIBUTIONS.iter().map(|(_, package)| *package).chain(COMMON.iter().copied());
    nearest(name, known).filter(|nearest| *nearest != name).map(str::to_owned)
}

/// Returns the name of the built-in image for data analysis if it has a package.
pub fn recipe_with(package: &str) -> Option<&'static str> {
    const DATA: &str = "data";
    let text = Recipe::find(DATA).ok()?.requirements?;
    parse_requirements(&text).iter().any(|one| package_name(&one.name) == package).then_some(DATA)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_and_mistyped_names_lead_to_packages() {
        let package = |module| distribution_of(module).unwrap();
        assert_eq!(package("cv2"), "opencv-python-headless");
        assert_eq!(package("yaml.scanner"), "pyyaml");
        assert_eq!(package("some_thing.part"), "some-thing");
        assert_eq!(distribution_of("x; import os"), None);
        assert_eq!(meant_by("sklearn").as_deref(), Some("scikit-learn"));
        assert_eq!(meant_by("matplotlb").as_deref(), Some("matplotlib"));
        assert_eq!((meant_by("zzzzqqq"), meant_by("numpy")), (None, None));
    }

    #[test]
    fn an_image_that_has_the_package_is_named() {
        assert_eq!(recipe_with("pandas"), Some("data"));
        assert_eq!(recipe_with("humanize-not"), None);
    }
}
