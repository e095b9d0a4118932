//! The commands of `image`.

use clap::{Args, Subcommand};

use super::form::Form;

#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Pull the current version of an image and unpack it
    Pull {
        /// A reference, or any other form that `--image` accepts
        #[arg(value_name = "IMAGE")]
        name: String,
        /// Allow plain HTTP, and certificates that cannot be verified
        #[arg(long)]
        plain_http: bool,
        #[command(flatten)]
        form: Form,
    },
    /// List the images of the store
    Ls(Form),
    /// Remove images; those in use are kept
    Rm {
        /// Names or prefixes of ids
        #[arg(value_name = "IMAGE", required = true)]
        names: Vec<String>,
        #[command(flatten)]
        form: Form,
    },
    /// Remove images without a name, and interrupted downloads
    Prune {
        /// Also remove images that have a name
        #[arg(long)]
        all: bool,
        /// Also remove the compressed layers of unpacked images
        #[arg(long)]
        layers: bool,
        #[command(flatten)]
        form: Form,
    },
    /// Build an image from packages
    Build(BuildArgs),
    /// Show an image as JSON
    Inspect {
        /// A name or a prefix of an id
        #[arg(value_name = "IMAGE")]
        name: String,
        #[command(flatten)]
        form: Form,
    },
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// `slim`, `data`, or a folder with a recipe.toml [default with --with: slim]
    #[arg(value_name = "RECIPE", required_unless_present = "with")]
    pub recipe: Option<String>,
    /// Python packages to add, separated by commas
    #[arg(long, value_name = "PACKAGES", value_delimiter = ',')]
    pub with: Vec<String>,
    /// The archive to write: `oci-archive:FILE[:TAG]`
    #[arg(short = 'o', long, value_name = "IMAGE")]
    pub output: String,
    /// The mirror of Debian packages [default: the mirror of this machine]
    #[arg(long, value_name = "URL")]
    pub mirror: Option<String>,
    /// Use the current packages of the mirror, and update the lock of a recipe in a folder
    #[arg(long)]
    pub update: bool,
    /// Only print what would be downloaded
    #[arg(long)]
    pub dry_run: bool,
    #[command(flatten)]
    pub form: Form,
}
