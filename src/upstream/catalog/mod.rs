//! What all servers say of their tools.
