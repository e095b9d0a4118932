//! Images from registries: `puller` goes from a name to an unpacked image, `layers` fetches what the store does not have.

mod layers;
mod puller;
#[cfg(test)]
mod tests;

pub(crate) use puller::Puller;
