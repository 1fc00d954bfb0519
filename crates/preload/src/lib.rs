//! libweft.so: the C ABI of libibverbs and librdmacm for unmodified programs.
mod abi;
mod dl;
mod env;
mod errno;
mod fd;
mod ibv;
mod log;
mod net;
mod real;
