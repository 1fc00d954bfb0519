//! The software RNIC, sans-IO: object tables and queue pairs bound to an LLP.
